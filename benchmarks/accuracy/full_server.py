"""TensorRT-LLM's tables of a server at its most throughput, as its documentation says that they were run: so many equal
requests at once, of which as many run as the cache holds.

Commands and numbers of requests: github.com/NVIDIA/TensorRT-LLM/blob/00f3768/docs/source/performance/perf-overview.md;
limits of a pass: `finetune_setting` in tensorrt_llm/bench/build/tuning.py there.
"""

from bisect import bisect_left
from math import ceil

from benchmarks.accuracy.speed_cases import Case, divided
from calc import Layout
from calc.model.feedforward import MoE
from calc.serving.engines import ENGINES
from calc.serving.kv_cache import bytes_per_token, growth, window_bytes
from calc.time.estimate import End, Estimate
from calc.time.operations import Forward, decode, prefill
from calc.time.serving import Speed, largest_share
from calc.units import GIB

REQUESTS = {
    (128, 128): 30_000,
    (128, 2048): 3000,
    (128, 4096): 1500,
    (500, 2000): 3000,
    (1000, 1000): 3000,
    (1000, 2000): 1500,
    (2048, 128): 3000,
    (2048, 2048): 1500,
    (5000, 500): 1500,
    (20_000, 2000): 1000,
}
"""Of a run, by the tokens of prompt and output."""
GRAPHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512, 1024, 2048, 4096, 8192)
"""Batches with a CUDA graph; a smaller one is padded (`enable_padding`). Passes with a prompt have none."""
MOST_SEQUENCES, LEAST_TOKENS, MOST_TOKENS = 4096, 2048, 32_768
"""Of a rank and pass."""
SHARES: dict[End, float] = {"slow": 0.90, "expected": 0.92, "fast": 0.95}
"""Its share of what is free for the cache: 0.95 in many rows, 0.90 where that was too much."""
RESERVE = 3 * GIB
"""What it keeps beside weights."""


def full_batch(case: Case, end: End = "expected") -> tuple[Speed, int]:
    """As many sequences as run at once; models with experts by data-parallel attention, as the table says."""
    row, ranks, model = case.row, case.layout.tp, case.architecture
    sparse = any(isinstance(block.ffn, MoE) for block in model.blocks)
    layout = Layout(dp=ranks, ep=ranks) if sparse and ranks > 1 else Layout(tp=ranks)
    run = divided(row["engine"], model, case.precision, layout, case.gpu)
    length = row["input_len"] + row["output_len"]
    bits = growth(ENGINES[row["engine"]]().rank(model, layout).all_blocks, case.precision.kv)
    each = length * bytes_per_token(bits) + window_bytes(bits, length)
    free = SHARES[end] * (case.gpu.usable_bytes - sum(run.demands[0].weights.values()) - RESERVE)
    most = min(int(free // each), MOST_SEQUENCES) * layout.dp
    return run, min(most, REQUESTS[row["input_len"], row["output_len"]])


def mixed(*passes: Forward) -> Forward:
    """One step that does several at once: chunked prefill with decode."""
    return Forward(
        tuple(part for forward in passes for part in forward.parts), sum(forward.logits for forward in passes)
    )


def full_rate(case: Case) -> Estimate | None:
    """Output tokens a second of the whole run; None where the cache holds no request."""
    prompt, output = case.row["input_len"], case.row["output_len"]
    requests = REQUESTS[prompt, output]

    def rate(end: End) -> float:
        run, batch = full_batch(case, end)
        rounds, rest = divmod(requests, batch)
        seconds = rounds * round_of(run, batch, prompt, output, end)
        if rest:
            seconds += round_of(run, rest, prompt, output, end)
        return requests * output / seconds

    return Estimate.over(rate) if full_batch(case, "slow")[1] else None


def round_of(run: Speed, batch: int, prompt: int, output: int, end: End) -> float:
    """Seconds in which each of the sequences gets all its tokens: passes that take prompts as far as they have room,
    which come together since all are equally long, and passes of nothing but decode."""
    here, context = largest_share(batch, run.layout.dp), prompt + output // 2
    tokens = min(max(LEAST_TOKENS, ceil(here * (1 + prompt / output))), MOST_TOKENS)
    passes = min(output, here * prompt / max(1, tokens - here))
    prompts = mixed(decode(here, context), prefill(here / passes, prompt))
    padding = GRAPHS[bisect_left(GRAPHS, here)] - here
    alone = mixed(decode(here, context), decode(padding, 1)) if padding else decode(here, context)
    seconds = passes * launched(run, prompts, end) + (output - passes) * run.seconds(alone, end, decodes=True)
    return float(seconds)


def launched(run: Speed, forward: Forward, end: End) -> float:
    """Seconds of a pass without a CUDA graph: no less than the host takes to launch its kernels."""
    on, stage = run.machines(end), run.demands[0]
    host = on.host(stage, decodes=False)
    return max(float(run.seconds(forward, end, decodes=True)), float(host))
