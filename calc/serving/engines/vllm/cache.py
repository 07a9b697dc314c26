"""vLLM's plan of its cache: the limits of a start, the blocks of each layer, the pool of equal blocks that groups of
layers draw on, and the tokens and requests that so many bytes of it hold.

Limits as `engine/arg_utils.py` has them, sizes of blocks as `Platform.update_block_size_for_backend`, groups as
`v1/core/kv_cache_planning.py`; DeepSeek-V4's pages of several sizes in one block as `models/deepseek_v4/`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import lcm
from operator import sub
from typing import NamedTuple

from calc.formats import CacheFormat
from calc.hardware.gpu import GPU
from calc.hardware.shards import blocks_within
from calc.model.architecture import Architecture
from calc.model.mixers import CompressedAttention
from calc.model.mla import fp8_vector_bytes
from calc.serving.engines.cache import Pool
from calc.serving.engines.loading import round_up
from calc.serving.engines.sizes import Limits
from calc.serving.engines.vllm.encoder import largest_item, profiled_images
from calc.serving.engines.vllm.layers import (
    ATTENTION_FREE,
    Kernel,
    Kind,
    Layers,
    LayerSetting,
    blocks_with_drafts,
    cached_layers,
    compresses,
    sees_images_whole,
    setting,
    state_bytes,
)
from calc.serving.engines.vllm.options import VLLMOptions, holds
from calc.units import GIB

LONGEST_WHOLE_PROMPT = 32_768
"""Tokens of a prompt that vLLM before 0.8 does not cut."""


def limits(options: VLLMOptions, gpu: GPU, architecture: Architecture, max_model_len: int, *, pp: int = 1) -> Limits:
    """The limits of a server, for requests of up to max_model_len tokens on pp pipeline stages."""
    tokens, sequences = defaults(options, gpu, architecture, max_model_len)
    sequences, tokens = options.max_num_seqs or sequences, options.max_num_batched_tokens or tokens
    if options.max_num_batched_tokens is None:
        if sees_images_whole(architecture, options):
            tokens = max(tokens, largest_item(architecture, options, max_model_len))
        if architecture.encodes:  # prompts are not cut (`is_chunked_prefill_supported`)
            tokens = max(tokens, max_model_len)
        tokens = min(tokens, sequences * max_model_len)
    if options.max_num_seqs is None:
        sequences = min(sequences, tokens)
    images = profiled_images(architecture, options, gpu, tokens, sequences, max_model_len)
    # one a pipeline stage, and one that is scheduled while the last one runs (`VllmConfig.max_concurrent_batches`)
    steps = pp + (options.async_scheduling is not False) if holds("steps in flight", options) else 1
    return Limits(
        step_tokens=tokens,
        sequences=sequences,
        share=None if architecture.encodes else share_of(options),
        in_flight_tokens=tokens * steps,
        encoder_bytes=images.resident_bytes,
        image_patches=images.patches,
        image_tokens=images.largest,
        least_step=images.largest if sees_images_whole(architecture, options) else 1,
    )


def share_of(options: VLLMOptions) -> float:
    """Share of a GPU's memory that must be free at start, and that a server with a cache then takes."""
    return options.gpu_memory_utilization or (0.92 if holds("0.92 of the GPU", options) else 0.9)


def is_a100(gpu: GPU) -> bool:
    return "A100" in gpu.name


def defaults(options: VLLMOptions, gpu: GPU, architecture: Architecture, max_model_len: int) -> tuple[int, int]:
    """Tokens of a step and sequences on this GPU (`get_batch_defaults`). Large steps made the A100 slower; the GB10 has
    the memory of a large GPU but not its speed. The first engine (`_set_default_args_v0`) cuts no prompts but long
    ones; it had recurrent models for longer than others."""
    first = not holds("states stand in blocks", options) and architecture.recurrent
    if first or not holds("prompts are cut into chunks", options):
        return (max_model_len if 2048 < max_model_len <= LONGEST_WHOLE_PROMPT else 2048), 256
    if gpu.memory_bytes >= 160 * GIB and holds("16,384 tokens from 160 GiB on", options):
        return 16_384, 1024
    if gpu.memory_bytes >= 70 * GIB and not is_a100(gpu) and gpu.capability != "12.1":
        return 8192, 1024
    return 2048, 256


DEFAULT = 16
LATENT_BLOCK_WITH_STATES = 128
"""Tokens of which a block of latents has to be a multiple where there are states too."""


class Spec(NamedTuple):
    """Cache of a layer, in blocks."""

    kind: Kind
    block: int | None  # tokens of one; None: those of a whole request
    page: int  # bytes of one
    reach: int = 0  # tokens of a window or a chunk
    states: int = 0  # blocks of a request, where they hold states
    shape: tuple[int, ...] = ()
    dcp: int = 1  # ranks that share the tokens of a request

    def blocks(self, length: int, in_flight: int) -> int:
        """Blocks of a request of that length while so many tokens pass. A window may start anywhere in a block."""
        if self.kind == "state":
            return self.states
        assert self.block is not None
        if self.kind == "window":
            return -(-min(self.reach - 1 + in_flight, length) // self.block) + 1
        if self.kind == "chunk":
            return -(-min(self.reach + in_flight, length) // self.block)
        own = -(-length // self.dcp)
        return -(-own // self.block)


Specs = dict[Spec, list[int]]
"""Layers by what they keep."""


def layers_by_spec(pairs: Iterable[tuple[Spec, Iterable[int]]]) -> Specs:
    """All layers that keep the same, in ascending order."""
    by_spec: Specs = {}
    for spec, layers in pairs:
        by_spec[spec] = sorted([*by_spec.get(spec, []), *layers])
    return by_spec


def specs(layers: Layers, options: VLLMOptions, *, prefixes: bool, drafts: int, dcp: int = 1) -> Specs:
    """The layers' caches in blocks. `prefixes`: whether those of prefixes stay; `drafts`: tokens drafted at once; `dcp`
    ranks share what keeps the whole context (`FullAttentionSpec.max_memory_usage_bytes`), each has all states."""
    usual, state_page = block_sizes(layers, options, prefixes=prefixes)
    states = [cached for cached in layers if cached.kind == "state"]
    exports = all(cached.checkpoint is not None for cached in states)
    by_spec: Specs = {}
    for cached, places in layers.items():
        if cached.kind == "state":
            count = drafts + (2 + (cached.checkpoint is not None and exports) if prefixes else 1)
            page, block = max(cached.nbytes, state_page), usual if prefixes else None
            spec = Spec("state", block, page, states=count, shape=cached.shape)
        else:
            block = cached.block or usual
            if cached.kind == "window" and cached.kernel and holds("windows choose their blocks", options):
                block = cached.kernel.largest_within(block)
            spec = Spec(cached.kind, block, block * cached.nbytes, cached.reach, shape=cached.shape, dcp=dcp)
        by_spec.setdefault(spec, []).extend(places)
    return by_spec


def block_sizes(layers: Layers, options: VLLMOptions, *, prefixes: bool) -> tuple[int, int]:
    """Tokens of a block: the size that every kernel takes, or --block-size; with states as many as fill a state. And
    bytes that a state's page is padded to."""
    read = sorted((places[0], i, cached) for i, (cached, places) in enumerate(layers.items()) if cached.kernel)
    kernels = list(dict.fromkeys(cached.kernel for _, _, cached in read if cached.kernel))
    if not kernels:
        return options.block_size or DEFAULT, 0
    block = options.block_size or common_block(kernels)
    states = [cached for cached in layers if cached.kind == "state"]
    state = max((cached.nbytes for cached in states), default=0)
    if not state:
        return block, 0
    step = max(kernels[0].least, block)
    if any(cached.kind == "mla" for cached in layers) and holds("latents beside states in blocks of 128", options):
        step = max(step, LATENT_BLOCK_WITH_STATES)
    checkpoints = [cached.checkpoint for cached in states]
    if prefixes and None not in checkpoints:
        step = lcm(step, *(checkpoint for checkpoint in checkpoints if checkpoint))
    token = max(cached.nbytes for cached in layers if cached.kind != "state")  # of the widest layer
    filled = step * -(-state // (step * token))
    whole = lcm(*(kernel.least for kernel in kernels))
    block = max(block, whole * -(-filled // whole))
    return block, block * token


def common_block(kernels: list[Kernel]) -> int:
    """16 tokens where all kernels take that, else the least that they all take."""
    if all(kernel.accepts(DEFAULT) for kernel in kernels):
        return DEFAULT
    shared = sorted({lcm(*sizes) for sizes in product(*(kernel.sizes for kernel in kernels))})
    return next(size for size in shared if all(kernel.accepts(size) for kernel in kernels))


class AlikeLayers(NamedTuple):
    """Alike layers of a group, in ascending order."""

    spec: Spec
    layers: tuple[int, ...]

    def nbytes(self, stops: Sequence[int]) -> list[int]:
        """Bytes of a block on each of the pipeline stages that end before these layers."""
        page, layers = self.spec.page, self.layers
        upto = [page * bisect_left(layers, stop) for stop in stops]
        return list(map(sub, upto, [0, *upto]))


class Group(NamedTuple):
    """Layers that share a table of blocks."""

    parts: tuple[AlikeLayers, ...]

    @property
    def block(self) -> int | None:
        """Tokens of a block; None: a whole request."""
        return self.parts[0].spec.block

    def nbytes(self, stops: Sequence[int]) -> list[int]:
        """Bytes of a block on each pipeline stage."""
        if len(self.parts) == 1:
            return self.parts[0].nbytes(stops)
        return list(map(sum, zip(*[part.nbytes(stops) for part in self.parts], strict=True)))

    def blocks(self, length: int, in_flight: int) -> int:
        """Blocks of a request of that length, of which all its layers take as many."""
        return self.parts[0].spec.blocks(length, in_flight)


def groups(specs: Specs, options: VLLMOptions) -> tuple[Group, ...]:
    """Layers that keep alike share a group. All of one type with blocks of one size are one; else blocks of all kinds
    take the same bytes, and each kind makes as many groups as the rarest, or most frequent, one needs."""
    if not holds("windows free their blocks", options):
        specs = without_windows(specs, DEFAULT)
    elif options.disable_hybrid_kv_cache_manager:
        specs = with_full_attention(specs)
    if len({uniform_type(spec) for spec in specs}) == 1:
        return (Group(tuple(AlikeLayers(spec, tuple(layers)) for spec, layers in specs.items())),)
    equal = with_equal_pages(specs)
    if equal is None:
        return groups(with_full_attention(specs), options)
    few, many = min(map(len, equal.values())), max(map(len, equal.values()))
    near = 1.5 if holds("groups half as large again", options) else 1.25
    size = many if many < near * few else few
    split_groups = []
    for spec, layers in equal.items():
        n = -(-len(layers) // size)
        split_groups += [Group((AlikeLayers(spec, tuple(layers[i::n])),)) for i in range(n)]
    return tuple(split_groups)


def uniform_type(spec: Spec) -> tuple[object, ...]:
    """Properties that layers of one group share: how many blocks a request takes. Latents count as full attention."""
    if spec.kind in ("full", "mla"):
        return "full", spec.block
    return spec.kind, spec.block, spec.reach, spec.states, spec.page if spec.kind == "state" else 0


def with_full_attention(specs: Specs) -> Specs:
    """Specs where layers with a window or chunk keep the whole context, if others do, in blocks as those have."""
    blocks = {spec.block for spec in specs if spec.kind in ("full", "mla")}
    return without_windows(specs, blocks.pop() if len(blocks) == 1 else None) if blocks else specs


def without_windows(specs: Specs, block: int | None) -> Specs:
    """Specs where all attention keeps the whole context, in blocks of so many tokens; None: of their own."""

    def whole(spec: Spec) -> Spec:
        if spec.kind not in ("window", "chunk"):
            return spec
        assert spec.block is not None
        tokens = block or spec.block
        return spec._replace(kind="full", block=tokens, page=spec.page // spec.block * tokens, reach=0)

    return layers_by_spec((whole(spec), layers) for spec, layers in specs.items())


def with_equal_pages(specs: Specs) -> Specs | None:
    """Specs where all pages take as many bytes as the largest: a smaller one holds more tokens where that fills it,
    else it is padded. None where it is of latents, which are not padded, together with windows, which may as well keep
    the whole context."""
    page, windows = max(spec.page for spec in specs), any(spec.kind == "window" for spec in specs)
    equal = []
    for spec, layers in specs.items():
        if spec.kind != "state" and page % spec.page == 0:
            assert spec.block is not None
            spec = spec._replace(block=spec.block * (page // spec.page))
        elif spec.kind == "mla" and windows:
            return None
        equal.append((spec._replace(page=page), layers))
    return layers_by_spec(equal)


def block_bytes(groups: Sequence[Group], stops: Sequence[int]) -> tuple[int, ...]:
    """Bytes of a block of the pool on each of the pipeline stages that end before these layers: those of the widest
    group."""
    of_groups = [group.nbytes(stops) for group in groups]
    return tuple(map(max, zip(*of_groups, strict=True))) if len(groups) > 1 else tuple(of_groups[0])


BLOCK = 256
WINDOW_BLOCK = 64
STATE_BLOCKS = {4: 4, 128: 8}
"""Tokens of a block of a compressor's raw states, by its rate: its page is then about as large as the others."""
PAGE = 576
"""Bytes of which a page is a multiple."""
ROTARY, GROUP = 64, 64
"""Elements of each vector that stay in 16 bits; of the others, how many share a scale of one byte."""


def packed_specs(mixer: CompressedAttention) -> Iterator[Spec]:
    """A window of vectors; beyond it one for each `rate` tokens, with an index key where entries are picked; and the
    raw keys and gates, in fp32, of the entries that are not whole yet."""

    def spec(kind: Kind, block: int, nbytes: int, reach: int = 0, rate: int = 1) -> Spec:
        return Spec(kind, block, round_up(block // rate * nbytes, PAGE), reach, shape=(nbytes, rate))

    plain = mixer.d_head - ROTARY  # in fp8, with a scale of one byte for each 64 and one to spare
    vector = plain + 2 * ROTARY + plain // GROUP + 1
    yield spec("window", WINDOW_BLOCK, vector, mixer.window)
    if mixer.rate is None:
        return
    reach, tokens, raw = mixer.overlap * mixer.rate, STATE_BLOCKS[mixer.rate], 4 * 2 * mixer.overlap
    if mixer.d_index is not None:
        yield spec("mla", BLOCK, fp8_vector_bytes(mixer.d_index), rate=mixer.rate)
        yield spec("window", tokens, raw * mixer.d_index, reach)
    yield spec("mla", BLOCK, vector, rate=mixer.rate)
    yield spec("window", tokens, raw * mixer.d_head, reach)


def packed_groups(specs: Specs) -> tuple[Group, ...]:
    """Layers that take as many blocks a request are a group. Those in which each size of page occurs as often repeat a
    pattern, and are split into groups of so many repeats that the least is padded."""
    buckets: dict[tuple[object, ...], list[AlikeLayers]] = {}
    for layer_spec, layers in specs.items():
        buckets.setdefault(uniform_type(layer_spec), []).append(AlikeLayers(layer_spec, tuple(layers)))
    balanced = [parts for parts in buckets.values() if len({len(part.layers) for part in parts}) == 1]
    least = max((len(parts[0].layers) for parts in balanced if len(parts) > 1), default=0)
    repeats = least_padding([len(parts[0].layers) for parts in balanced], least) if least else 0
    grouped = []
    for parts in buckets.values():
        n = -(-len(parts[0].layers) // repeats) if repeats and parts in balanced else 1
        grouped += [Group(tuple(AlikeLayers(part.spec, part.layers[i::n]) for part in parts)) for i in range(n)]
    return tuple(grouped)


def least_padding(counts: Sequence[int], least: int) -> int:
    """The size, of at least so many, whose multiples pad these counts least; the largest of several."""
    return min(range(least, max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))


@dataclass(frozen=True)
class CachePlan(Pool):
    """Division of one rank's cache."""

    groups: tuple[Group, ...]
    block_bytes: tuple[int, ...]
    in_flight: int  # tokens that pass at once
    options: VLLMOptions
    states: tuple[int, ...]  # bytes on each stage of recurrent states that stand in no block

    def fixed_bytes(self, stage: int) -> int:
        return self.states[stage]

    def profiled_bytes(self, stage: int) -> int:
        return self.states[stage]

    @property
    def is_additive(self) -> bool:
        return len(self.groups) == 1

    def block_size(self, length: int) -> int:
        return min(length if group.block is None else group.block for group in self.groups)

    def request_blocks(self, length: int) -> int:
        blocks = 0
        for group in self.groups:
            blocks += group.blocks(length, self.in_flight)
        return blocks

    @property
    def stated_blocks(self) -> int | None:
        return self.options.num_gpu_blocks_override

    def stated_bytes(self, stage: int) -> int | None:
        """Bytes of --kv-cache-memory-bytes, or of the blocks of --num-gpu-blocks-override."""
        if self.stated_blocks is not None:
            return self.stated_blocks * self.block_bytes[stage]
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
    """Cache of a rank's layers, however they are cut into pipeline stages and experts are spread."""

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
        of_stages, options = block_bytes(self.groups, stops), self.setting.options
        states = (0,) * len(of_stages)
        # the first engine sets states aside for all sequences that may run (`MambaCacheManager`)
        if not holds("states stand in blocks", options) and not any(cached.kind == "state" for cached in self.layers):
            sequences, slots = limits.sequences, limits.sequences
            if not options.enforce_eager:  # as many as the graph of the largest decode step (`pad_for_cudagraph`)
                slots = next((size for size in (1, 2, 4) if size >= sequences), round_up(sequences, 8))
            states = tuple(slots * state_bytes(self.rank, blocks_within(self.rank, stage), options) for stage in stages)
        return CachePlan(self.groups, of_stages, limits.in_flight_tokens, options, states)


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
    if compresses(rank):
        return Division(whole, rank, packed_groups(compressed_specs(rank, options)), {}, of_layers, dcp)
    layers = cached_layers(rank, of_layers)
    if draft is not None:
        of_draft = setting(draft, kv, VLLMOptions(version=options.version), gpu, tp)
        for cached, places in cached_layers(draft, of_draft).items():
            layers.setdefault(cached, []).extend(rank.num_layers + place for place in places)
    if not layers:
        return Division(whole, rank, (), {}, of_layers, dcp)
    if not holds("states stand in blocks", options):
        attending = {cached: places for cached, places in layers.items() if cached.kind != "state"}
        layers = attending or layers
    prefixes = options.enable_prefix_caching
    if prefixes is None:  # unless nothing but states is kept, and with states not in older versions
        states = any(cached.kind == "state" for cached in layers)
        prefixes = of_layers.family not in ATTENTION_FREE and (not states or holds("hybrids cache prefixes", options))
    cache_groups = groups(specs(layers, options, prefixes=prefixes, drafts=of_layers.drafts, dcp=dcp), options)
    return Division(whole, rank, cache_groups, layers, of_layers, dcp)


def compressed_specs(rank: Architecture, options: VLLMOptions) -> Specs:
    by_layer: list[tuple[Spec, Iterable[int]]] = []
    for block, places in blocks_with_drafts(rank, options):
        for mixer in block.mixers:
            assert isinstance(mixer, CompressedAttention)
            by_layer += [(spec, places) for spec in dict.fromkeys(packed_specs(mixer))]
    return layers_by_spec(by_layer)
