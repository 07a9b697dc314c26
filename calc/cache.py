"""KV cache and recurrent state: what a sequence leaves in memory."""

from collections.abc import Iterable, Mapping

from calc.architecture import Block
from calc.mixers import CompressedAttention, Recurrent
from calc.precision import CACHE_BITS, CacheFormat


def growth(blocks: Iterable[Block]) -> dict[int | None, int]:
    """Elements cached per token of all layers, by their window; None: the layers that keep the whole context."""
    elements: dict[int | None, int] = {}
    for block in blocks:
        for mixer in block.mixers:
            places = len(block.places or block.layers)
            elements[mixer.window] = elements.get(mixer.window, 0) + places * mixer.cached_elements()
            if isinstance(mixer, CompressedAttention):
                elements[None] = elements.get(None, 0) + places * mixer.compressed_elements()
    return elements


def state_bytes(blocks: Iterable[Block]) -> int:
    """Bytes a sequence of recurrent state, in fp32, and of the convolutions' memory, in 16 bits; of any length."""
    return sum(
        len(block.places or block.layers) * (4 * mixer.state_elements() + 2 * mixer.conv_elements())
        for block in blocks
        for mixer in block.mixers
        if isinstance(mixer, Recurrent)
    )


def bytes_per_token(growth: Mapping[int | None, int], kv: CacheFormat) -> int:
    """Bytes that one more token of one sequence adds, in the layers that keep the whole context."""
    return growth.get(None, 0) * CACHE_BITS[kv] // 8


def window_bytes(growth: Mapping[int | None, int], kv: CacheFormat, context: int) -> int:
    """Bytes a sequence in the layers that look back on a window only: they stop growing once it is full."""
    held = sum(elements * min(context, window) for window, elements in growth.items() if window is not None)
    return held * CACHE_BITS[kv] // 8


def cache_bytes(growth: Mapping[int | None, int], state: int, kv: CacheFormat, batch: int, context: int) -> int:
    """Bytes of `batch` sequences of `context` tokens."""
    return batch * (context * bytes_per_token(growth, kv) + window_bytes(growth, kv, context) + state)
