"""KV cache and recurrent state: what a sequence leaves in memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from calc.formats import CACHE_BITS, HEAD_SCALE_BITS, CacheFormat
from calc.model.block import Block
from calc.model.mixers import CompressedAttention, Mixer
from calc.model.tensor import WindowTokens


def cached_bits(mixer: Mixer, kv: CacheFormat, elements: Mapping[WindowTokens, Any]) -> dict[WindowTokens, Any]:
    """Bits of so many elements of a layer's cache, with their scales, by how far back they lie."""
    packed = mixer.packed_bits() if kv == "fp8_ds_mla" else None
    if packed is not None:
        return packed
    bits = {back: each * CACHE_BITS[kv] for back, each in elements.items()}
    if kv in HEAD_SCALE_BITS:
        first = next(iter(bits))
        bits[first] += mixer.cached_head_vectors() * HEAD_SCALE_BITS[kv]
    return bits


def token_bits(mixer: Mixer, kv: CacheFormat) -> int:
    """Bits cached per token and layer, scales included."""
    return int(sum(cached_bits(mixer, kv, {None: mixer.cached_elements()}).values()))


def growth(
    blocks: Iterable[Block], kv: CacheFormat, bits_of: Callable[[Mixer, CacheFormat], int] = token_bits
) -> dict[int | None, int]:
    """Bits cached per token of all layers, by their window; None: the layers that keep the whole context. `bits_of`:
    how an engine keeps a token of a layer."""
    bits: dict[int | None, int] = {}
    for block in blocks:
        places = len(block.cached_in)
        for mixer in block.mixers:
            bits[mixer.window] = bits.get(mixer.window, 0) + places * bits_of(mixer, kv)
        for attention in block.attentions:
            if compressed := attention.compressed_elements():
                bits[None] = bits.get(None, 0) + places * int(compressed * CACHE_BITS[kv])
    return bits


class Compression(NamedTuple):
    """Bits of a sequence that layers which compress tokens hold otherwise than `growth` says. Tokens wait with their
    gates until an entry is made of them; overlapping ones are kept until the next one is, gates in fp32 as their bias
    is (transformers `modeling_deepseek_v4.py`, `DeepseekV4HCACache` and `DeepseekV4CSACache`)."""

    rate: int  # tokens of an entry
    entry: int
    average: int  # of a token, in `growth`
    waiting: int  # of a token that waits
    overlap: int  # of the tokens of the last entry

    def bits(self, length: int, passed: int) -> int:
        """Bits once `passed` of the tokens passed at once: they wait in one piece with those before, whatever becomes
        of them."""
        waiting = ((length - passed) % self.rate + passed) * self.waiting
        entries = length // self.rate * self.entry - length * self.average
        return waiting + entries + (self.overlap if length >= self.rate else 0)


def compressions(blocks: Iterable[Block], kv: CacheFormat) -> Iterator[Compression]:
    """One for each block that compresses tokens."""
    for block in blocks:
        for mixer in block.mixers:
            if isinstance(mixer, CompressedAttention) and mixer.rate is not None:
                layers, entry = len(block.runs_in), mixer.entry_elements()
                yield Compression(
                    rate=mixer.rate,
                    entry=layers * int(entry * CACHE_BITS[kv]),
                    average=layers * int(mixer.compressed_elements() * CACHE_BITS[kv]),
                    waiting=layers * 16 * mixer.waiting_elements(),
                    overlap=layers * (mixer.overlap - 1) * mixer.rate * entry * (16 + 32),
                )


StateBytes = Callable[[Sequence[Block]], int]
"""Bytes of recurrent state of a sequence in some layers, as an engine holds them."""


def state_bytes(blocks: Iterable[Block]) -> int:
    """Bytes a sequence of recurrent state and of the convolutions' memory, of any length, in the types that
    transformers keeps them in."""
    return sum(len(block.runs_in) * mixer.memory_bytes() for block in blocks for mixer in block.recurrences)


def length_bytes(blocks: Sequence[Block], kv: CacheFormat, length: int, states: int) -> int:
    """Bytes of a sequence of so many tokens that do not grow with it: `states` of recurrent layers, and tokens that
    wait to be compressed."""
    return states + sum(compression.bits(length, 1) for compression in compressions(blocks, kv)) // 8


def bytes_per_token(growth: Mapping[int | None, int]) -> int:
    """Bytes that one more token of one sequence adds, in the layers that keep the whole context."""
    return growth.get(None, 0) // 8


def window_bytes(growth: Mapping[int | None, int], context: int) -> int:
    """Bytes a sequence in the layers that look back on a window only: they stop growing once it is full."""
    return sum(bits * min(context, window) for window, bits in growth.items() if window is not None) // 8


def cache_bytes(growth: Mapping[int | None, int], state: int, batch: int, context: int) -> int:
    """Bytes of `batch` sequences of `context` tokens: the least that their next tokens need."""
    return batch * int(sequence_bytes(context, bytes_per_token(growth), window_bytes(growth, context), state))


def sequence_bytes(context: Any, per_token: Any, windows: Any, state: Any) -> Any:
    """Bytes of one sequence: of the layers that keep the whole context, of those with a window, and of states. Sizes
    are numbers or symbols."""
    return context * per_token + windows + state
