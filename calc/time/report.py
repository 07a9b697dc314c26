"""Report of times: a decode step and a prompt; and where passes stand under the roofline."""

from collections.abc import Iterable
from typing import Any

from calc.errors import ConfigError, Frozen, Message
from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.hardware.overhead import Overhead
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.engine import Engine
from calc.serving.engines.rules import Question
from calc.serving.memory import Allocation, Serving
from calc.serving.verdict import ON_HOST
from calc.serving.workload import Workload
from calc.time.cluster import USUAL, Cluster
from calc.time.estimate import ENDS, End, Estimate
from calc.time.operations import Forward, prefill
from calc.time.origin import Origin, origin
from calc.time.roofline import Bound, Timed, Work, bound_of
from calc.time.serving import Speed, accepted_tokens, halfway, largest_share, speed_on

MS = 1000
RIGHT = (0.6, 0.8)
"""Shares of a draft model's guesses that are right, for example."""
BATCHES = (1, 8, 64, 512)
"""Sequences of the decode steps under the roofline."""


class OperationTime(Frozen):
    """One kind of work of a pass, in milliseconds, as usual."""

    what: str
    ms: float
    compute_ms: float
    memory_ms: float
    bound: Bound


class DecodeTime(Frozen):
    """A step in which every sequence gets a token; halfway through the output."""

    step_ms: Estimate
    tokens_per_s: Estimate  # of all sequences
    bound: Bound
    operations: tuple[OperationTime, ...]


class PrefillTime(Frozen):
    """Time from all prompts' arrival at once to the last one's first token."""

    ttft_ms: Estimate
    tokens_per_s: Estimate  # of the prompts
    bound: Bound
    operations: tuple[OperationTime, ...]


class TimeReport(Frozen):
    """Speed of one kind of GPU in serving."""

    gpu: str
    decode: DecodeTime
    prefill: PrefillTime
    origin: Origin
    assumptions: tuple[Message, ...]


def time_report(serving: Serving, gpu: GPU, workload: Workload, cluster: Cluster = USUAL) -> TimeReport:
    """Times of a report's batch, prompt and layout. The prompt is passed in chunks as the engine has them."""
    if serving.architecture.pooled:
        raise ConfigError(
            Message("The speed of models that make a vector or scores of a text is not known here."), "time"
        )
    chunk = on_gpus_alone(serving, gpu, workload).limits.step_tokens
    speed = speed_on(gpu, serving, cluster)
    batch, prompt = workload.batch, workload.prompt
    parts, step = decode_step(speed, workload)
    passed = speed.prompt_parts(largest_share(batch, speed.layout.dp), prompt, "expected", chunk)
    first = {end: float(speed.prompt(batch, prompt, end, chunk)) for end in ENDS}
    return TimeReport(
        gpu=gpu.id,
        decode=DecodeTime(
            step_ms=Estimate.over(lambda end: MS * step[end]),
            tokens_per_s=Estimate.over(lambda end: batch / step[end]),
            bound=bound_of(parts),
            operations=by_operation(parts),
        ),
        prefill=PrefillTime(
            ttft_ms=Estimate.over(lambda end: MS * first[end]),
            tokens_per_s=Estimate.over(lambda end: batch * prompt / first[end]),
            bound=bound_of(passed),
            operations=by_operation(passed),
        ),
        origin=origin(serving.architecture, gpu, serving.engine.name),
        assumptions=(*assumptions(gpu, serving), *drafted(speed, serving, gpu, workload, cluster)),
    )


def on_gpus_alone(serving: Serving, gpu: GPU, workload: Workload) -> Allocation:
    """The allocation of a model that GPUs hold whole. Raises ConfigError where weights or cache stay on the host."""
    allocation = serving.on(gpu, workload)
    if allocation.serving.engine.leaves_on_host(serving.architecture, serving.layout.gpus):
        raise ConfigError(ON_HOST, "time")
    return allocation


def by_operation(parts: Iterable[Timed]) -> tuple[OperationTime, ...]:
    """Kinds of work, summed over all stages and passes, the longest first."""
    total: dict[Work, list[float]] = {}
    for part in parts:
        sums = total.setdefault(part.what, [0.0, 0.0, 0.0])
        for i, seconds in enumerate((part.seconds, part.compute, part.memory)):
            sums[i] += float(seconds)
    rows = [
        OperationTime(
            what=what,
            ms=MS * seconds,
            compute_ms=MS * compute,
            memory_ms=MS * memory,
            bound=Timed(what, seconds, compute, memory).bound,
        )
        for what, (seconds, compute, memory) in total.items()
        if seconds
    ]
    return tuple(sorted(rows, key=lambda row: -row.ms))


def drafted(speed: Speed, serving: Serving, gpu: GPU, workload: Workload, cluster: Cluster) -> Iterable[Message]:
    """Tokens per second with a draft model, by how often it guesses right."""
    if (drafting := serving.engine.draft(serving.precision)) is None:
        return
    model, precision, count = drafting
    other = Serving.of(model, type(serving.engine)(), precision, serving.layout, serving.overhead)
    draft = speed_on(gpu, other, cluster, kernels=serving.engine.kernels)
    batch, context = workload.batch, halfway(workload)
    step = float(speed.speculative(batch, context, "expected", count, draft))
    plain = 1 / float(speed.step(batch, context, "expected"))
    few, many = (accepted_tokens(rate, count) / step for rate in RIGHT)
    pays = next((percent for percent in range(101) if accepted_tokens(percent / 100, count) / step > plain), None)
    rates: dict[str, Any] = {"n": count, "few": few, "many": many, "plain": plain, "less": RIGHT[0], "more": RIGHT[1]}
    if pays is None:
        yield Message(
            "The draft model does not pay here: with {n} draft tokens at once a sequence gets {many:.1f} tokens/s "
            "where {more:.0%} of them are accepted, and {plain:.1f} without.",
            **rates,
        )
        return
    yield Message(
        "With {n} draft tokens at once a sequence gets {few:.1f} tokens/s where {less:.0%} of them are accepted, "
        "{many:.1f} where {more:.0%} are, and {plain:.1f} without a draft model, which pays from {least:.0%} on.",
        least=pays / 100,
        **rates,
    )


def assumptions(gpu: GPU, serving: Serving) -> Iterable[Message]:
    yield Message(
        "Times are the larger of arithmetic and memory traffic of each operation, at shares of the printed peaks that "
        "kernels were measured at, and the time of links and host; low and high are both ends of these ranges."
    )
    if not gpu.tflops:
        yield Message("The peak of {gpu} is not known: nothing is taken to be limited by compute.", gpu=gpu.name)
    if serving.layout.dp > 1:
        yield Message("Sequences spread evenly over the copies, and tokens over the experts.")
    if serving.engine.loads_draft:
        yield Message("A step yields one token a sequence: what speculation adds depends on the rate of acceptance.")


class Reply(Frozen):
    """Decoding with all sequences of the batch; the first token of one prompt that does not wait for others."""

    tokens_per_s_per_user: Estimate
    tokens_per_s: Estimate  # of all sequences
    ttft_ms: Estimate
    bound: Bound  # what takes most of a decode step
    origin: Origin


def reply(serving: Serving, gpu: GPU, workload: Workload, cluster: Cluster = USUAL) -> Reply:
    """Speed of a report's batch, prompt and layout, halfway through the output."""
    chunk = on_gpus_alone(serving, gpu, workload).limits.step_tokens
    speed = speed_on(gpu, serving, cluster)
    (parts, seconds), batch = decode_step(speed, workload), workload.batch
    return Reply(
        tokens_per_s_per_user=Estimate.over(lambda end: 1 / seconds[end]),
        tokens_per_s=Estimate.over(lambda end: batch / seconds[end]),
        ttft_ms=Estimate.over(lambda end: MS * float(speed.prompt(1, workload.prompt, end, chunk))),
        bound=bound_of(parts),
        origin=origin(serving.architecture, gpu, serving.engine.name),
    )


def user_rate(serving: Serving, gpu: GPU, workload: Workload, cluster: Cluster = USUAL) -> float:
    """Tokens per second of each user, expected: `tokens_per_s_per_user` of a reply, without its range."""
    speed = speed_on(gpu, serving, cluster)
    return 1 / float(speed.step(workload.batch, halfway(workload), "expected"))


def decode_step(speed: Speed, workload: Workload) -> tuple[tuple[Timed, ...], dict[End, float]]:
    """Parts of a decode step of the batch, halfway through the output, as expected, and its seconds by end of the
    range."""
    parts = {end: tuple(speed.decode_parts(workload.batch, halfway(workload), end)) for end in ENDS}
    return parts["expected"], {end: float(sum(part.seconds for part in each)) for end, each in parts.items()}


class OperatingPoint(Frozen):
    """One pass of one rank under a GPU's roofline, doi:10.1145/1498765.1498785."""

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
    speed = speed_on(gpu, Serving.of(architecture, engine, precision, layout, Overhead()))
    decoding = (
        point(speed, Message("Decode, batch {n:,}", n=batch), speed.decoding(batch, context), decodes=True)
        for batch in BATCHES
    )
    return *decoding, point(speed, Message("Prefill, {n:,} tokens", n=context), prefill(1, context), decodes=False)


def point(speed: Speed, what: Message, forward: Forward, *, decodes: bool) -> OperatingPoint:
    (stage,) = speed.demands
    operations, parts = stage.operations(forward), tuple(speed.parts(forward, "expected", decodes=decodes))
    flops = float(sum(operation.flops for operation in operations))
    moved = float(sum(operation.bytes for operation in operations))
    seconds = float(sum(part.seconds for part in parts))
    return OperatingPoint(what=what, intensity=flops / moved, tflops=flops / seconds / 1e12, bound=bound_of(parts))
