"""Where prefill and decode stand under a GPU's roofline, doi:10.1145/1498765.1498785: FLOPs for each byte that is
moved, and FLOP/s that are reached."""

from collections.abc import Iterator

from calc.errors import Frozen, Message
from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.engine import Engine
from calc.serving.engines.rules import Question
from calc.serving.workload import Workload
from calc.time.forward import Forward, prefill
from calc.time.roofline import Bound, binds
from calc.time.serving_time import Speed, speed_of

BATCHES = (1, 8, 64, 512)


class OperatingPoint(Frozen):
    """One pass of one rank."""

    what: Message
    intensity: float  # FLOP for each byte of memory traffic
    tflops: float  # that it reaches, as expected
    bound: Bound


def operating_points(
    architecture: Architecture, engine: Engine, precision: Precision, gpu: GPU, layout: Layout, context: int
) -> tuple[OperatingPoint, ...]:
    """Decode steps of ever more sequences of a context, and the prefill of one prompt as long. Raises ConfigError where
    the engine does not take it."""
    engine.check(Question(architecture, precision, layout, workload=Workload(context=context)))
    rank = layout.rank(architecture, engine.vocabulary(architecture.vocab, layout.tp))
    stages = (range(architecture.num_layers),)
    speed = speed_of(architecture, rank, stages, precision, layout, gpu, engine.kernels, file=engine.file)
    return tuple(points(speed, context))


def points(speed: Speed, context: int) -> Iterator[OperatingPoint]:
    for batch in BATCHES:
        what = Message("Decode, batch {n:,}", n=batch)
        yield point(speed, what, speed.decoding(batch, context), decodes=True)
    yield point(speed, Message("Prefill, {n:,} tokens", n=context), prefill(1, context), decodes=False)


def point(speed: Speed, what: Message, forward: Forward, *, decodes: bool) -> OperatingPoint:
    (stage,) = speed.demands
    operations, parts = stage.operations(forward), tuple(speed.parts(forward, "expected", decodes=decodes))
    flops = float(sum(operation.flops for operation in operations))
    moved = float(sum(operation.bytes for operation in operations))
    seconds = float(sum(part.seconds for part in parts))
    return OperatingPoint(what=what, intensity=flops / moved, tflops=flops / seconds / 1e12, bound=binds(parts))
