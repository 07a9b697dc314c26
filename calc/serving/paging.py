"""Pages of vLLM's cache: one pool of equal blocks, which groups of alike layers share (`kv_cache_utils.py`)."""

from collections.abc import Iterable, Sequence

from calc.errors import Frozen
from calc.formats import CACHE_BITS, CacheFormat
from calc.model.block import Block
from calc.model.mixers import CompressedAttention, Recurrent
from calc.model.mla import LatentAttention
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.kv_cache import token_bits

PAGE = 16


class Layers(Frozen):
    """Layers that cache alike: bits a token, or for recurrent ones bytes of one state a sequence."""

    count: int
    window: int | None = None
    bits: int = 0
    state: int = 0


class Group(Frozen):
    """Layers that share a table of blocks; `block` is tokens of one, None where it holds a whole state."""

    block: int | None
    window: int | None = None
    states: int = 1  # of a request, where a block holds one

    def blocks(self, length: int, in_flight: int) -> int:
        """Blocks of a request of that length while so many tokens pass: a window may start anywhere in a block."""
        if self.block is None:
            return self.states
        if self.window is None:
            return -(-length // self.block)
        return -(-min(self.window - 1 + in_flight, length) // self.block) + 1


class Pool(Frozen):
    """What one block takes, and which groups draw on the pool."""

    block_bytes: int
    groups: tuple[Group, ...]

    def blocks(self, budget: int) -> int:
        return max(0, budget) // self.block_bytes

    def request(self, length: int, in_flight: int) -> int:
        """Blocks of a request of that length."""
        return sum(group.blocks(length, in_flight) for group in self.groups)

    def concurrency(self, blocks: int, length: int, in_flight: int) -> float:
        """Requests of that length that the pool serves at once."""
        return blocks / self.request(length, in_flight)

    def tokens(self, blocks: int) -> int:
        """Tokens of one group's share, as start-up logs print them for models with one kind of layer."""
        return blocks // len(self.groups) * min(group.block for group in self.groups if group.block)

    def caching_prefixes(self) -> "Pool":
        """The same where vLLM caches prefixes: a request has a second state, at the last full block
        (`mamba_cache_mode` align, github.com vllm-project/vllm#30877)."""
        groups = (g if g.block else g.model_copy(update={"states": 2}) for g in self.groups)
        return self.model_copy(update={"groups": tuple(groups)})

    @property
    def keeps_all(self) -> bool:
        """Whether every layer keeps the whole context, so that a number of bytes stands for a token."""
        return len(self.groups) == 1 and self.groups[0].block is not None and self.groups[0].window is None

    @property
    def only_states(self) -> bool:
        """Whether no layer caches by the token."""
        return not any(group.block for group in self.groups)


def pool_of(blocks: Sequence[Block], kv: CacheFormat, options: VLLMOptions) -> Pool:
    """The pool of layers, at least one of which keeps something, in the stated version of vLLM."""
    layers = alike(blocks, kv)
    if options.older(0, 10):
        layers = before_hybrids(layers)
    if options.older(0, 8):
        layers = before_latents(layers, blocks)
    return pool(layers)


def alike(blocks: Iterable[Block], kv: CacheFormat) -> list[Layers]:
    """The layers that keep something, by what they keep."""
    counts: dict[tuple[int | None, int, int], int] = {}
    for block in blocks:
        for mixer in block.mixers:
            kinds = [(mixer.window, token_bits(mixer, kv), 0)]
            if isinstance(mixer, CompressedAttention):
                kinds.append((None, int(mixer.compressed_elements() * CACHE_BITS[kv]), 0))
            if isinstance(mixer, Recurrent):
                kinds = [(None, 0, recurrent_bytes(mixer))]
            for kind in kinds:
                if any(kind[1:]):
                    counts[kind] = counts.get(kind, 0) + len(block.runs_in)
    return [Layers(count=n, window=window, bits=bits, state=state) for (window, bits, state), n in counts.items()]


def recurrent_bytes(mixer: Recurrent) -> int:
    """Bytes a sequence and layer: the state in 16 bits unless the config asks for fp32, and of the convolution's memory
    one column fewer than transformers has."""
    columns = getattr(mixer, "d_conv", 1)
    return (4 if mixer.fp32_state else 2) * mixer.state_elements() + 2 * mixer.conv_elements() // columns * (
        columns - 1
    )


def pool(layers: Sequence[Layers]) -> Pool:
    """The pool for a model's layers. Alike layers, and all that keep the whole context, are
    one group. Else blocks of all kinds take the same bytes: those of narrower layers hold more tokens, and attention's
    hold as many as fill a recurrent state. A group then has as many layers as the rarest kind, and some are empty; or
    as the most frequent, where that is less than half as many again."""
    if all(kind.bits and kind.window is None for kind in layers) or len(layers) == 1:
        (window,), state = {kind.window for kind in layers}, layers[0].state
        one = sum(kind.count * (kind.bits * PAGE // 8 + kind.state) for kind in layers)
        return Pool(block_bytes=one, groups=(Group(block=None if state else PAGE, window=window),))
    widest, state = max(kind.bits for kind in layers), max(kind.state for kind in layers)
    page = max(PAGE, PAGE * -(-state * 8 // (PAGE * widest))) * widest // 8 if widest else state
    few, many = min(kind.count for kind in layers), max(kind.count for kind in layers)
    size = many if many < 1.5 * few else few
    groups = [
        Group(block=page * 8 // kind.bits if kind.bits else None, window=kind.window)
        for kind in layers
        for _ in range(-(-kind.count // size))
    ]
    return Pool(block_bytes=page * size, groups=tuple(groups))


def before_hybrids(layers: Sequence[Layers]) -> list[Layers]:
    """The same before vLLM 0.10: layers with a window keep the whole context, too."""
    return [kind.model_copy(update={"window": None}) for kind in layers]


def before_latents(layers: Sequence[Layers], blocks: Iterable[Block]) -> list[Layers]:
    """The same before vLLM 0.8: a latent is padded to 256 bytes."""
    if not any(isinstance(mixer, LatentAttention) for block in blocks for mixer in block.mixers):
        return list(layers)
    return [kind.model_copy(update={"bits": -(-kind.bits // 2048) * 2048}) for kind in layers]
