"""KV cache: what a sequence leaves in memory."""

from collections.abc import Mapping

from calc.architecture import Architecture
from calc.precision import CACHE_BITS, CacheFormat


def growth(architecture: Architecture) -> dict[int | None, int]:
    """Elements cached per token of all layers, by their window; None: the layers that keep the whole context."""
    elements: dict[int | None, int] = {}
    for block in architecture.blocks:
        mixer = block.mixer
        elements[mixer.window] = elements.get(mixer.window, 0) + len(block.layers) * mixer.cached_elements()
    return elements


def bytes_per_token(growth: Mapping[int | None, int], kv: CacheFormat) -> int:
    """Bytes that one more token of one sequence adds, in the layers that keep the whole context."""
    return growth.get(None, 0) * CACHE_BITS[kv] // 8


def window_bytes(growth: Mapping[int | None, int], kv: CacheFormat, context: int) -> int:
    """Bytes a sequence in the layers that look back on a window only: they stop growing once it is full."""
    held = sum(elements * min(context, window) for window, elements in growth.items() if window is not None)
    return held * CACHE_BITS[kv] // 8


def cache_bytes(growth: Mapping[int | None, int], kv: CacheFormat, batch: int, context: int) -> int:
    """Bytes of `batch` sequences of `context` tokens."""
    return batch * (context * bytes_per_token(growth, kv) + window_bytes(growth, kv, context))
