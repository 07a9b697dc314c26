"""How many tokens a block holds, and what it takes in each layer (`Platform.update_block_size_for_backend`)."""

from itertools import product
from math import lcm
from typing import NamedTuple

from calc.serving.engines.vllm.kernels import Kernel
from calc.serving.engines.vllm.layers import Kind, Layers
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.engines.vllm.since import holds

DEFAULT = 16
LATENT_BLOCK_WITH_STATES = 128
"""Tokens of which a block of latents has to be a multiple where states stand beside them."""


class Spec(NamedTuple):
    """What a layer keeps, in blocks."""

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


class BlockSizes(NamedTuple):
    """Tokens of a block, and bytes that a state's page is padded to."""

    block: int
    state_page: int = 0


def specs(layers: Layers, options: VLLMOptions, *, prefixes: bool, drafts: int, dcp: int = 1) -> Specs:
    """The layers' caches in blocks. `prefixes`: whether those of prefixes stay; `drafts`: tokens guessed at once; `dcp`
    ranks share what keeps the whole context (`FullAttentionSpec.max_memory_usage_bytes`), each has all states."""
    sizes = block_sizes(layers, options, prefixes=prefixes)
    states = [cached for cached in layers if cached.kind == "state"]
    exports = all(cached.checkpoint is not None for cached in states)
    by_spec: Specs = {}
    for cached, places in layers.items():
        if cached.kind == "state":
            count = drafts + (2 + (cached.checkpoint is not None and exports) if prefixes else 1)
            page, block = max(cached.nbytes, sizes.state_page), sizes.block if prefixes else None
            spec = Spec("state", block, page, states=count, shape=cached.shape)
        else:
            block = cached.block or sizes.block
            if cached.kind == "window" and cached.kernel and holds("windows choose their blocks", options):
                block = cached.kernel.largest_within(block)
            spec = Spec(cached.kind, block, block * cached.nbytes, cached.reach, shape=cached.shape, dcp=dcp)
        by_spec.setdefault(spec, []).extend(places)
    return by_spec


def caches_prefixes(layers: Layers, options: VLLMOptions, *, attention_free: bool) -> bool:
    """By default, unless nothing but states is kept, and beside states not in older versions."""
    if options.enable_prefix_caching is not None:
        return options.enable_prefix_caching
    states = any(cached.kind == "state" for cached in layers)
    return not attention_free and (not states or holds("hybrids cache prefixes", options))


def block_sizes(layers: Layers, options: VLLMOptions, *, prefixes: bool) -> BlockSizes:
    """The size that every kernel takes, or --block-size; beside states as many tokens as fill a state."""
    read = sorted((places[0], i, cached) for i, (cached, places) in enumerate(layers.items()) if cached.kernel)
    kernels = list(dict.fromkeys(cached.kernel for _, _, cached in read if cached.kernel))
    if not kernels:
        return BlockSizes(options.block_size or DEFAULT)
    block = options.block_size or common_block(kernels)
    states = [cached for cached in layers if cached.kind == "state"]
    state = max((cached.nbytes for cached in states), default=0)
    if not state:
        return BlockSizes(block)
    step = max(kernels[0].least, block)
    if has_latents(layers) and holds("latents beside states in blocks of 128", options):
        step = max(step, LATENT_BLOCK_WITH_STATES)
    checkpoints = [cached.checkpoint for cached in states]
    if prefixes and None not in checkpoints:
        step = lcm(step, *(checkpoint for checkpoint in checkpoints if checkpoint))
    token = token_bytes(layers)
    filled = step * -(-state // (step * token))
    whole = lcm(*(kernel.least for kernel in kernels))
    block = max(block, whole * -(-filled // whole))
    return BlockSizes(block, block * token)


def common_block(kernels: list[Kernel]) -> int:
    """16 tokens where all kernels take that, else the least that they all take."""
    if all(kernel.accepts(DEFAULT) for kernel in kernels):
        return DEFAULT
    shared = sorted({lcm(*sizes) for sizes in product(*(kernel.sizes for kernel in kernels))})
    return next(size for size in shared if all(kernel.accepts(size) for kernel in kernels))


def has_latents(layers: Layers) -> bool:
    return any(cached.kind == "mla" for cached in layers)


def token_bytes(layers: Layers) -> int:
    """Bytes of a token in one layer of attention, the widest."""
    return max(cached.nbytes for cached in layers if cached.kind != "state")
