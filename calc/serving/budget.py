"""What vLLM leaves for the cache on a GPU, and how many tokens and requests that is."""

from math import ceil

from calc.errors import Frozen
from calc.hardware.gpu import GPU
from calc.serving.memory import Serving, Stage
from calc.serving.paging import Pool, alike, pool_of
from calc.serving.vllm import profile_bytes, sequences, step_tokens, utilization
from calc.serving.workload import Workload
from calc.units import GIB


class KVBudget(Frozen):
    """Bytes of the fullest GPU. `bytes` counts the middle of the ranges that are not closed; what lies outside the
    share that vLLM takes (CUDA context, and graphs before 0.21) comes on top."""

    gpu: str
    gpu_memory_utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    requested: int
    weights: int
    profile: int
    bytes: int
    bytes_low: int
    bytes_high: int
    blocks: int
    tokens: int
    concurrency: float
    """Requests of the whole context that fit at once."""
    outside_low: int
    outside_high: int


def kv_budget(gpu: GPU, serving: Serving, workload: Workload) -> KVBudget:
    """The share of the GPU less weights, the profile run's peak and what libraries take, and since 0.21 less the
    estimate of CUDA graphs; the stage with the fewest blocks decides."""
    tokens, seqs, share = step_tokens(workload, gpu), sequences(workload, gpu), utilization(workload)
    requested = ceil(gpu.usable_bytes * share)
    ranges = serving.overhead.ranges("vllm", serving.layout.gpus)
    inside = ["libraries"] if workload.older(0, 21) else ["libraries", "cuda_graphs"]
    low = round(GIB * sum(r.low for name, r in ranges.items() if name in inside))
    high = round(GIB * sum(r.high for name, r in ranges.items() if name in inside))
    outside = [r for name, r in ranges.items() if name in ("cuda_context", "cuda_graphs") and name not in inside]
    found = []
    for stage, loaded in zip(serving.stages, serving.loaded("vllm"), strict=True):
        vocab = serving.whole.vocab if stage.last else 0
        width = serving.precision.activation_bytes
        profile = profile_bytes(stage.blocks, serving.rank.hidden, vocab, tokens=tokens, seqs=seqs, width=width)
        room = requested - loaded - profile
        if not alike(stage.blocks, serving.precision.kv):
            continue  # its layers read the cache of others
        blocks, of_tokens, concurrency = capacity(stage, serving, workload, room - (low + high) // 2, tokens)
        found.append(
            KVBudget(
                gpu=gpu.id,
                gpu_memory_utilization=share,
                max_num_seqs=seqs,
                max_num_batched_tokens=tokens,
                requested=requested,
                weights=loaded,
                profile=profile,
                bytes=room - (low + high) // 2,
                bytes_low=room - high,
                bytes_high=room - low,
                blocks=blocks,
                tokens=of_tokens,
                concurrency=concurrency,
                outside_low=round(GIB * sum(r.low for r in outside)),
                outside_high=round(GIB * sum(r.high for r in outside)),
            )
        )
    return min(found, key=lambda budget: budget.concurrency)


def capacity(stage: Stage, serving: Serving, workload: Workload, budget: int, in_flight: int) -> tuple[int, int, float]:
    """Blocks, tokens and requests of the whole context that fit a stage's budget."""
    return held(pool_of(stage.blocks, serving.precision.kv, workload), workload, budget, in_flight)


def held(pages: Pool, workload: Workload, budget: int, in_flight: int) -> tuple[int, int, float]:
    """Blocks, tokens as vLLM prints them and requests of the whole context that fit a pool of so many bytes."""
    blocks = pages.blocks(budget)
    requests = pages.concurrency(blocks, workload.context, in_flight)
    if pages.only_states or (len(pages.groups) > 1 and not workload.older(0, 21)):
        return blocks, int(requests * workload.context), requests
    return blocks, pages.tokens(blocks), requests
