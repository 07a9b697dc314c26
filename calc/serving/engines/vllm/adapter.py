"""Until the plan is there: the pages of before."""

from collections.abc import Sequence

from calc.hardware.gpu import GPU
from calc.hardware.solver import largest
from calc.model.architecture import Architecture
from calc.serving import paging
from calc.serving.engines.engine import LaidOut, Limits, Pool
from calc.serving.engines.vllm.options import VLLMOptions
from calc.units import GIB


class OldPool(Pool):
    def __init__(self, pools: Sequence[paging.Pool | None], options: VLLMOptions, limits: Limits) -> None:
        self.pools, self.limits, self.options = pools, limits, options
        self.least = next(pool for pool in pools if pool)

    @property
    def block_size(self) -> int:
        return min((group.block for group in self.least.groups if group.block), default=16)

    def block_bytes(self, stage: int) -> int:
        pool = self.pools[stage]
        return 0 if pool is None else pool.block_bytes

    def request_blocks(self, length: int) -> int:
        return self.least.request(length, self.limits.in_flight_tokens)

    def tokens(self, blocks: int, length: int) -> int:
        if self.least.only_states or (len(self.least.groups) > 1 and not self.options.older(0, 21)):
            return int(self.concurrency(blocks, length) * length)
        return self.least.tokens(blocks)

    def starts(self, budgets: Sequence[int], length: int) -> bool:
        return self.blocks(budgets) > self.request_blocks(length)

    def max_length(self, budgets: Sequence[int], most: int) -> int:
        blocks = self.blocks(budgets)
        return largest(lambda length: blocks > self.request_blocks(length), most)


def plan(laid_out: LaidOut, options: VLLMOptions, gpu: GPU, limits: Limits) -> OldPool | None:
    kv = laid_out.precision.kv
    kept = [stage.blocks if paging.alike(stage.blocks, kv) else None for stage in laid_out.stages]
    if not any(kept):
        return None
    pools = [None if blocks is None else paging.pool_of(blocks, kv, options) for blocks in kept]
    if options.enable_prefix_caching:
        pools = [None if pool is None else pool.caching_prefixes() for pool in pools]
    return OldPool(pools, options, limits)


def limits(options: VLLMOptions, gpu: GPU, architecture: Architecture, length: int, pp: int) -> Limits:
    large = gpu.memory_bytes >= 70 * GIB and "A100" not in gpu.name
    if options.max_num_batched_tokens is not None:
        step = options.max_num_batched_tokens
    elif options.older(0, 8):
        step = length if 2048 < length <= 32_768 else 2048
    else:
        step = 16_384 if large and gpu.memory_bytes >= 160 * GIB else 8192 if large else 2048
    sequences = options.max_num_seqs or (1024 if large and not options.older(0, 8) else 256)
    share = options.gpu_memory_utilization or (0.9 if options.older(0, 20) else 0.92)
    return Limits(step_tokens=step, sequences=sequences, share=share, in_flight_tokens=step)
