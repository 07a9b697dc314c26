"""vLLM's plan of its cache: blocks, tokens and requests that so many bytes hold, and whether it starts with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from calc.formats import CacheFormat
from calc.hardware.gpu import GPU
from calc.model.architecture import Architecture
from calc.model.mixers import CompressedAttention
from calc.serving.engines.cache import Pool
from calc.serving.engines.sizes import Limits
from calc.serving.engines.vllm.blocks import Specs, caches_prefixes, specs
from calc.serving.engines.vllm.layers import (
    Layers,
    LayerSetting,
    blocks_with_drafts,
    cached_layers,
    compressed,
    setting,
)
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.engines.vllm.packed import packed_groups, packed_specs
from calc.serving.engines.vllm.pool import Group, block_bytes, groups
from calc.serving.engines.vllm.since import holds


@dataclass(frozen=True)
class CachePlan(Pool):
    """How the cache of one rank is divided."""

    groups: tuple[Group, ...]
    block_bytes: tuple[int, ...]
    in_flight: int  # tokens that pass at once
    options: VLLMOptions

    def block_size(self, length: int) -> int:
        return min(length if group.block is None else group.block for group in self.groups)

    def request_blocks(self, length: int) -> int:
        """Those of all groups."""
        blocks = 0
        for group in self.groups:
            blocks += group.blocks(length, self.in_flight)
        return blocks

    def stated_bytes(self, stage: int) -> int | None:
        """Those of --kv-cache-memory-bytes, or of the blocks of --num-gpu-blocks-override."""
        if self.options.num_gpu_blocks_override is not None:
            return self.options.num_gpu_blocks_override * self.block_bytes[stage]
        return self.options.kv_cache_memory_bytes

    def tokens(self, blocks: int, length: int) -> int:
        if holds("tokens are concurrency times length", self.options):
            return int(self.concurrency(blocks, length) * length)
        dcp = max(part.spec.dcp for group in self.groups for part in group.parts)
        return blocks // len(self.groups) * self.block_size(length) * dcp

    def least_blocks(self, sequences: int) -> int:
        """Graphs of decode steps read a recurrent state for each (`config/compilation.py:
        resolve_cudagraph_mode_and_sizes`)."""
        captured = not self.options.enforce_eager and holds("states have a block each", self.options)
        keeps_states = any(part.spec.kind == "state" for group in self.groups for part in group.parts)
        return sequences if captured and keeps_states else 0

    def usable_blocks(self, blocks: int) -> int:
        """All but the null block."""
        return blocks - holds("the null block is reserved", self.options)


class Division(NamedTuple):
    """What a rank's layers keep, however they are cut into pipeline stages and experts are spread."""

    whole: Architecture
    rank: Architecture
    groups: tuple[Group, ...]
    layers: Layers
    setting: LayerSetting
    dcp: int

    def plan(self, stages: Sequence[range], limits: Limits) -> CachePlan | None:
        """The plan with the layers on these stages; None for a model that caches nothing."""
        if not self.groups:
            return None
        stops = [*(stage.stop for stage in stages[:-1]), 2**31]  # draft layers stand on the last stage
        of_stages = block_bytes(self.groups, stops)
        return CachePlan(self.groups, of_stages, limits.in_flight_tokens, self.setting.options)


def divide(
    whole: Architecture,
    rank: Architecture,
    kv: CacheFormat,
    options: VLLMOptions,
    gpu: GPU,
    tp: int,
    dcp: int = 1,
    draft: Architecture | None = None,
) -> Division:
    """The groups of one of tp tensor-parallel ranks, of which dcp share cached tokens; the same on all GPUs of a CUDA
    capability. `kv` in 16 bits is what vLLM calls auto. Layers of a draft, of which it is a rank, count on behind."""
    of_layers = setting(rank, kv, options, gpu, tp)
    if compressed(rank):
        return Division(whole, rank, packed_groups(compressed_specs(rank, options)), {}, of_layers, dcp)
    layers = cached_layers(rank, of_layers)
    if draft is not None:
        for cached, places in cached_layers(
            draft, setting(draft, kv, VLLMOptions(version=options.version), gpu, tp)
        ).items():
            layers.setdefault(cached, []).extend(rank.num_layers + place for place in places)
    if not layers:
        return Division(whole, rank, (), {}, of_layers, dcp)
    prefixes = caches_prefixes(layers, options, attention_free=of_layers.family.attention_free)
    cache_groups = groups(specs(layers, options, prefixes=prefixes, drafts=of_layers.drafts, dcp=dcp), options)
    return Division(whole, rank, cache_groups, layers, of_layers, dcp)


def compressed_specs(rank: Architecture, options: VLLMOptions) -> Specs:
    by_spec: Specs = {}
    for block, places in blocks_with_drafts(rank, options):
        for mixer in block.mixers:
            assert isinstance(mixer, CompressedAttention)
            for spec, layers in packed_specs(mixer, list(places)).items():
                by_spec[spec] = sorted([*by_spec.get(spec, []), *layers])
    return by_spec
