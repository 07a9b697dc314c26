"""How fast a server answers one of its users: what stands beside the memory of a report."""

from collections.abc import Iterable

from calc.errors import Frozen
from calc.hardware.gpu import GPU
from calc.serving.memory import Serving
from calc.serving.workload import Workload
from calc.time.efficiency import Edits
from calc.time.estimate import ENDS, End, Estimate
from calc.time.origin import Origin, origin
from calc.time.roofline import Bound, Timed, binds
from calc.time.serving_time import Speed, speed_laid_out


class Reply(Frozen):
    """Decoding with all sequences of the batch; the first token of one prompt that does not wait for others."""

    tokens_per_s_per_user: Estimate
    tokens_per_s: Estimate  # of all sequences
    ttft_ms: Estimate
    bound: Bound  # what takes most of a decode step
    origin: Origin


def reply(serving: Serving, gpu: GPU, workload: Workload, edits: Edits | None = None) -> Reply:
    """For the batch, the prompt and the layout of a report, halfway through the output; `edits` are shares that a
    reader knows better."""
    speed = speed_laid_out(serving.laid_out, gpu, serving.engine, edits=edits, file=serving.file)
    chunk, batch = serving.on(gpu, workload).limits.step_tokens, workload.batch
    parts = {end: decode_parts(speed, workload, end) for end in ENDS}
    seconds = {end: step_seconds(parts[end]) for end in ENDS}
    return Reply(
        tokens_per_s_per_user=Estimate.over(lambda end: 1 / seconds[end]),
        tokens_per_s=Estimate.over(lambda end: batch / seconds[end]),
        ttft_ms=Estimate.over(lambda end: 1000 * float(speed.prompt(1, workload.prompt, end, chunk))),
        bound=binds(parts["expected"]),
        origin=origin(serving.architecture, gpu, serving.engine.name),
    )


def user_rate(serving: Serving, gpu: GPU, workload: Workload, edits: Edits | None = None) -> float:
    """Tokens per second of each user, expected: `tokens_per_s_per_user` of a reply, without its range."""
    speed = speed_laid_out(serving.laid_out, gpu, serving.engine, edits=edits, file=serving.file)
    return 1 / step_seconds(decode_parts(speed, workload, "expected"))


def decode_parts(speed: Speed, workload: Workload, end: End) -> tuple[Timed, ...]:
    """What a decode step of the batch takes, halfway through the output."""
    return tuple(speed.decode_parts(workload.batch, max(2, workload.context - workload.generated // 2), end))


def step_seconds(parts: Iterable[Timed]) -> float:
    """Seconds of a step."""
    return float(sum(part.seconds for part in parts))


def usd_per_million(tokens_per_s: float, gpus: int, usd_per_gpu_hour: float) -> float:
    """US dollars of a million output tokens on GPUs that are kept busy so."""
    return gpus * usd_per_gpu_hour / (3600 * tokens_per_s) * 1e6
