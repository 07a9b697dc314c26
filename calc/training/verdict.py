"""One GPU type against one training step: does it fit, what still would, and how many GPUs would do."""

from calc.errors import Frozen, Message
from calc.hardware.gpu import GPU
from calc.hardware.overhead import left_for_overhead
from calc.hardware.solver import least
from calc.serving.fewest import MOST_GPUS
from calc.serving.verdict import Word
from calc.training.step import Training, TrainingMemory
from calc.units import GIB

MOST = 2**30  # beyond this, memory is not what limits


class TrainingVerdict(Frozen):
    """Bytes are those of one GPU; words as in calc.fit.Verdict."""

    gpu: str
    gpus: int
    verdict: Word
    required: int
    usable: int
    spare: int
    max_micro_batch: int | None  # sequences of a micro-batch at this length; None: memory sets no limit
    max_sequence: int | None  # tokens a sequence at this micro-batch; None: memory sets no limit
    min_gpus: int | None  # with weights, gradients and optimizer sharded over them all (ZeRO-3); None: not even 1,024
    reason: Message
    notes: tuple[Message, ...]


def judge_training(gpu: GPU, training: Training) -> TrainingVerdict:
    """The verdict on this many GPUs as laid out; what still fits, fits even at the high end of the overhead."""
    memory, usable = training.memory(), gpu.usable_bytes
    native = gpu.lacks(training.recipe.compute) if training.recipe.compute != "fp32" else None
    return TrainingVerdict(
        gpu=gpu.id,
        gpus=training.layout.gpus,
        verdict=word(memory, usable),
        required=memory.total,
        usable=usable,
        spare=usable - memory.total,
        max_micro_batch=limit(training.most_sequences(usable, MOST)),
        max_sequence=limit(training.most_tokens(usable, MOST)),
        min_gpus=fewest_replicas(training, usable),
        reason=reason(memory, usable),
        notes=() if native is None else (native,),
    )


def word(memory: TrainingMemory, usable: int) -> Word:
    """The verdict in a word."""
    return "fits" if memory.high <= usable else "tight" if memory.low <= usable else "does not fit"


def limit(size: int) -> int | None:
    """The largest size that fits; None where memory sets no limit."""
    return None if size == MOST else size


def reason(memory: TrainingMemory, usable: int) -> Message:
    """What the verdict hangs on."""
    allocated = memory.total - memory.overhead
    if usable < allocated:
        name, size = max(memory.parts.items(), key=lambda part: part[1])
        return Message(
            "The step needs {held:.2f} GiB before any overhead, {more:.2f} more than there are; the largest part is "
            "the {part} with {size:.2f}.",
            held=allocated / GIB,
            more=(allocated - usable) / GIB,
            part=name,
            size=size / GIB,
        )
    return left_for_overhead(usable - allocated, memory.overhead_low, memory.overhead_high)


def fewest_replicas(training: Training, usable: int) -> int | None:
    """The fewest GPUs on which it fits as laid out, but with as many data-parallel replicas as it takes, and ZeRO-3.
    Between two of the bounds, more replicas are taken never to fit worse."""
    replica = training.layout.gpus // training.layout.dp
    most = MOST_GPUS // replica

    def fits(dp: int) -> bool:
        laid_out = training.over(dp)
        return laid_out is not None and laid_out.fits(usable)

    if fits(1):
        return replica
    first = 2
    for end in training.replica_bounds(most):
        if fits(end):
            replicas = least(fits, end, max(first, training.least_replicas(usable, end)))
            return None if replicas is None else replica * replicas
        first = end + 1
    return None
