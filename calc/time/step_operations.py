"""Where the time of a training step goes: its kinds of work on the slowest stage, forward, backward and recomputed, the
pipeline's bubble, what replicas exchange and further pieces of a stage send, and the optimizer."""

from calc.errors import Frozen
from calc.time.roofline import Bound
from calc.time.training_time import TrainingSpeed

MS = 1000


class StepOperation(Frozen):
    """One kind of work of a step, in milliseconds, as usual."""

    what: str
    ms: float
    forward_ms: float = 0.0
    backward_ms: float = 0.0
    recomputed_ms: float = 0.0
    compute_ms: float = 0.0
    memory_ms: float = 0.0
    bound: Bound | None  # None: a stage waits for others


def step_operations(speed: TrainingSpeed) -> tuple[StepOperation, ...]:
    """All of a step, the longest first; their sum is its seconds."""
    each, once = speed.between_replicas("expected")
    busy, batches = speed.busy("expected"), speed.work.accumulation
    sends = speed.between_stages("expected")
    exposed = speed.exposed(each + sends, busy, "expected")
    sent = exposed * sends / (each + sends) if sends else 0.0
    exchange = batches * (exposed - sent) + speed.exposed(once, busy, "expected")
    update = MS * speed.optimizer("expected")
    operations = [
        StepOperation(what="bubble", ms=MS * speed.bubble * (busy + exposed), bound=None),
        StepOperation(what="exchange", ms=MS * exchange, bound="link"),
        StepOperation(what="sends", ms=MS * batches * sent, bound="link"),
        StepOperation(what="update", ms=update, memory_ms=update, bound="bandwidth"),
    ]
    for part in speed.parts(speed.demands[speed.slowest("expected")], "expected"):
        passes, whole = speed.passes(part.what), MS * batches * part.seconds
        operations.append(
            StepOperation(
                what=part.what,
                ms=whole,
                forward_ms=whole * passes.forward / passes.all,
                backward_ms=whole * passes.backward / passes.all,
                recomputed_ms=whole * passes.recomputed / passes.all,
                compute_ms=MS * batches * part.compute,
                memory_ms=MS * batches * part.memory,
                bound=part.bound,
            )
        )
    return tuple(sorted((operation for operation in operations if operation.ms), key=lambda operation: -operation.ms))
