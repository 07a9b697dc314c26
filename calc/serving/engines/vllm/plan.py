"""vLLM's plan of its cache: blocks, tokens and requests that so many bytes hold, and whether it starts with them."""

from collections.abc import Sequence
from typing import NamedTuple

from calc.formats import CacheFormat
from calc.hardware.gpu import GPU
from calc.model.architecture import Architecture
from calc.model.mixers import CompressedAttention
from calc.serving.engines.vllm.blocks import Specs, caches_prefixes, specs
from calc.serving.engines.vllm.layers import blocks_with_drafts, cached_layers, compressed, setting
from calc.serving.engines.vllm.limits import Limits
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.engines.vllm.packed import packed_groups, packed_specs
from calc.serving.engines.vllm.pool import Group, block_bytes, groups
from calc.serving.engines.vllm.since import holds


class CachePlan(NamedTuple):
    """How the cache of one rank is divided. Budgets are bytes for the cache on each pipeline stage."""

    groups: tuple[Group, ...]
    block_bytes: tuple[int, ...]  # on each pipeline stage; 0 where its layers read the cache of others
    in_flight: int  # tokens that pass at once
    override: int | None  # --num-gpu-blocks-override
    reserves_null_block: bool  # whether the check at start leaves it out
    by_concurrency: bool  # whether tokens are concurrency times length

    def block_size(self, length: int) -> int:
        """Tokens of the least block of a group, for requests of up to that length."""
        return min(length if group.block is None else group.block for group in self.groups)

    def request_blocks(self, length: int) -> int:
        """Blocks of a request of that length, of all groups."""
        return sum(group.blocks(length, self.in_flight) for group in self.groups)

    def blocks(self, budgets: Sequence[int]) -> int:
        """Blocks that every stage has room for, the null block included."""
        if self.override is not None:
            return self.override
        return min(max(0, budget) // one for budget, one in zip(budgets, self.block_bytes, strict=True) if one)

    def concurrency(self, blocks: int, length: int) -> float:
        """Requests of that length that so many blocks hold at once, as vLLM prints it."""
        return blocks / self.request_blocks(length)

    def tokens(self, blocks: int, length: int) -> int:
        """The size of the cache in tokens, as vLLM prints it."""
        if self.by_concurrency:
            return int(self.concurrency(blocks, length) * length)
        return blocks // len(self.groups) * self.block_size(length)

    def usable_blocks(self, budgets: Sequence[int]) -> int:
        """Blocks that the check at start counts on."""
        return self.blocks(budgets) - self.reserves_null_block

    def starts(self, budgets: Sequence[int], length: int) -> bool:
        """Whether one request of that length fits, without which vLLM refuses to start."""
        return self.request_blocks(length) <= self.usable_blocks(budgets)

    def max_length(self, budgets: Sequence[int], most: int) -> int:
        """The longest request that fits, of at most so many tokens; 0 where none does."""
        usable, low, high = self.usable_blocks(budgets), 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.request_blocks(middle) <= usable else (low, middle - 1)
        return low

    def required_bytes(self, stage: int, batch: int, length: int) -> int:
        """Bytes on a stage that hold so many requests of that length, and the null block."""
        return self.block_bytes[stage] * (batch * self.request_blocks(length) + 1)


def plan(
    rank: Architecture,
    stages: Sequence[range],
    kv: CacheFormat,
    options: VLLMOptions,
    gpu: GPU,
    *,
    tp: int,
    limits: Limits,
) -> CachePlan | None:
    """The plan of one of tp tensor-parallel ranks, its layers on these pipeline stages; None for a model that caches
    nothing. `kv` in 16 bits is what vLLM calls auto."""
    if compressed(rank):
        found = packed_groups(compressed_specs(rank, options))
    else:
        of_layers = setting(rank, kv, options, gpu, tp)
        layers = cached_layers(rank, of_layers)
        if not layers:
            return None
        prefixes = caches_prefixes(layers, options, attention_free=of_layers.family.attention_free)
        found = groups(specs(layers, options, prefixes=prefixes, drafts=of_layers.drafts), options)
    behind = range(stages[-1].start, 2**31)  # draft layers stand on the last stage
    return CachePlan(
        groups=found,
        block_bytes=block_bytes(found, [*stages[:-1], behind]),
        in_flight=limits.in_flight_tokens,
        override=options.num_gpu_blocks_override,
        reserves_null_block=holds("the null block is reserved", options),
        by_concurrency=holds("tokens are concurrency times length", options),
    )


def compressed_specs(rank: Architecture, options: VLLMOptions) -> Specs:
    found: Specs = {}
    for block, places in blocks_with_drafts(rank, options):
        for mixer in block.mixers:
            assert isinstance(mixer, CompressedAttention)
            for spec, layers in packed_specs(mixer, list(places)).items():
                found[spec] = sorted([*found.get(spec, []), *layers])
    return found
