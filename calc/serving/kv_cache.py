"""KV cache and recurrent state: what a sequence leaves in memory."""

from collections.abc import Iterable, Mapping
from typing import Any

from calc.formats import CACHE_BITS, CacheFormat
from calc.model.block import Block
from calc.model.mixers import CompressedAttention, Mixer, Recurrent
from calc.model.mla import LatentAttention


def token_bits(mixer: Mixer, kv: CacheFormat) -> int:
    """Bits cached per token and layer."""
    if kv == "fp8_ds_mla" and isinstance(mixer, LatentAttention):
        return fp8_latent_bits(mixer)
    return int(mixer.cached_elements() * CACHE_BITS[kv])


def fp8_latent_bits(mixer: LatentAttention) -> int:
    """The latent in fp8 with an fp32 scale for each 128, the rotary key in 16 bits: 656 bytes of 512 + 64 elements; an
    index key in fp8 with its scale (vLLM `flashmla_sparse.py`)."""
    index = mixer.indexer.d_index if mixer.indexer is not None and mixer.indexer.owned else 0
    scales = -(-mixer.kv_rank // 128) + -(-index // 128)
    return 8 * (mixer.kv_rank + index) + 32 * scales + 16 * mixer.d_rope


def growth(blocks: Iterable[Block], kv: CacheFormat) -> dict[int | None, int]:
    """Bits cached per token of all layers, by their window; None: the layers that keep the whole context."""
    bits: dict[int | None, int] = {}
    for block in blocks:
        places = len(block.runs_in)
        for mixer in block.mixers:
            bits[mixer.window] = bits.get(mixer.window, 0) + places * token_bits(mixer, kv)
            if isinstance(mixer, CompressedAttention):
                bits[None] = bits.get(None, 0) + places * int(mixer.compressed_elements() * CACHE_BITS[kv])
    return bits


def state_bytes(blocks: Iterable[Block]) -> int:
    """Bytes a sequence of recurrent state, in fp32, and of the convolutions' memory, in 16 bits; of any length."""
    return sum(
        len(block.runs_in) * (4 * mixer.state_elements() + 2 * mixer.conv_elements())
        for block in blocks
        for mixer in block.mixers
        if isinstance(mixer, Recurrent)
    )


def bytes_per_token(growth: Mapping[int | None, int]) -> int:
    """Bytes that one more token of one sequence adds, in the layers that keep the whole context."""
    return growth.get(None, 0) // 8


def window_bytes(growth: Mapping[int | None, int], context: int) -> int:
    """Bytes a sequence in the layers that look back on a window only: they stop growing once it is full."""
    return sum(bits * min(context, window) for window, bits in growth.items() if window is not None) // 8


def cache_bytes(growth: Mapping[int | None, int], state: int, batch: int, context: int) -> int:
    """Bytes of `batch` sequences of `context` tokens: the least that their next tokens need."""
    of_one: int = sequence_bytes(context, bytes_per_token(growth), window_bytes(growth, context), state)
    return batch * of_one


def sequence_bytes(context: Any, per_token: Any, windows: Any, state: Any) -> Any:
    """Bytes of one sequence: of the layers that keep the whole context, of those with a window, and of states. Sizes
    are numbers or symbols."""
    return context * per_token + windows + state
