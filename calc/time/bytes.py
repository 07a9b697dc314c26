"""Bytes that a forward pass reads and writes: weights, cache, and what goes in and out of matrix products."""

from collections.abc import Iterable
from typing import Any

from calc.formats import CACHE_BITS, CacheFormat
from calc.formats.stored import Piece
from calc.hardware.shards import copies_within
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.mixers import CompressedAttention, Mixer, Recurrent
from calc.model.mla import LatentAttention
from calc.serving.kv_cache import state_bytes, token_bits
from calc.time.flops import Product, is_multiplied, product_of
from calc.time.forward import Part


def touched(experts: Any, top_k: Any, tokens: Any) -> Any:
    """The share of equal experts that some token chooses, where each takes top_k of them at random: an expert is left
    out by one token with a chance of 1 - top_k / experts."""
    return 1 - (1 - top_k / experts) ** tokens


def weight_bytes(
    architecture: Architecture, pieces: Iterable[Piece], stage: range, apart: frozenset[str] = frozenset()
) -> dict[Product, int]:
    """Bytes of the weights of a stage by the product that reads them, all experts included; the rest by component."""
    sizes: dict[Product, int] = {}
    for piece in pieces:
        tensor = piece.tensor
        if tensor.apart is None or tensor.apart in apart:
            product = product_of(architecture, tensor)
            held = piece.nbytes * piece.a_layer * copies_within(architecture, tensor, stage)
            sizes[product] = sizes.get(product, 0) + held
    return sizes


def row_elements(architecture: Architecture, stage: range, apart: frozenset[str] = frozenset()) -> dict[Product, int]:
    """Elements that one row takes into the matrix products of a stage and brings out of them."""
    widths: dict[Product, int] = {}
    for tensor in architecture.tensors():
        if is_multiplied(tensor) and (tensor.apart is None or tensor.apart in apart):
            product = product_of(architecture, tensor)
            wide = sum(tensor.shape[-2:]) * copies_within(architecture, tensor, stage)
            widths[product] = widths.get(product, 0) + wide
    return widths


def index_bits(mixer: Mixer, kv: CacheFormat) -> Any:
    """Bits of the index key that a token and layer keeps."""
    match mixer:
        case LatentAttention(indexer=indexer) if indexer is not None and kv == "fp8_ds_mla":
            return (8 * indexer.d_index + 32 * -(-indexer.d_index // 128)) * indexer.owned
        case LatentAttention(indexer=indexer) if indexer is not None:
            return indexer.d_index * indexer.owned * CACHE_BITS[kv]
        case GQA(indexer=indexer) if indexer is not None:
            return indexer.d_index * CACHE_BITS[kv]
    return 0


def cache_read(mixer: Mixer, part: Part, kv: CacheFormat) -> Any:
    """Bytes of one layer's cache that attention reads: the window, or all index keys and what the indexer picks."""
    bits = token_bits(mixer, kv)
    if isinstance(mixer, CompressedAttention):
        if mixer.rate is None:
            return bits * part.context(mixer.window) / 8
        entry, key = mixer.d_head * CACHE_BITS[kv], (mixer.d_index or 0) * CACHE_BITS[kv]
        seen = part.context() if mixer.n_index is None else part.context(mixer.top_entries * mixer.rate)
        return (bits * part.context(mixer.window) + (entry * seen + key * part.context()) / mixer.rate) / 8
    indexer = getattr(mixer, "indexer", None)
    if indexer is None:
        return bits * part.context(mixer.window) / 8
    index = index_bits(mixer, kv)
    return ((bits - index) * part.context(indexer.top_tokens) + index * part.context()) / 8


def cache_written(mixer: Mixer, part: Part, kv: CacheFormat) -> Any:
    """Bytes that one layer adds to the cache."""
    more = mixer.compressed_elements() * CACHE_BITS[kv] if isinstance(mixer, CompressedAttention) else 0
    return (token_bits(mixer, kv) + more) * part.tokens / 8


def state_traffic(block: Block, part: Part) -> Any:
    """Bytes of recurrent state that the layers of a block read and write, once for each sequence."""
    recurrent = any(isinstance(mixer, Recurrent) for mixer in block.mixers)
    return 2 * state_bytes([block]) * part.sequences if recurrent else 0
