"""Bytes that a forward pass reads and writes: weights, cache, and what goes in and out of matrix products."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from calc.formats import CACHE_BITS, CacheFormat
from calc.formats.stored import Piece
from calc.hardware.shards import copies_within
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.mixers import CompressedAttention, Mixer
from calc.model.mla import LatentAttention
from calc.model.tensor import Tensor
from calc.serving.kv_cache import token_bits
from calc.time.flops import Product, WindowTokens, is_multiplied, product_of


def touched(experts: Any, top_k: Any, tokens: Any) -> Any:
    """The share of equal experts that some token chooses, where each takes top_k of them at random: an expert is left
    out by one token with a chance of 1 - top_k / experts."""
    return 1 - (1 - top_k / experts) ** tokens


class StoredProducts(NamedTuple):
    """How the weights of a stage are stored, by the product that reads them; the rest by component."""

    nbytes: dict[Product, int]
    """Bytes, all experts included."""
    quantized: dict[Product, bool]
    """Whether most of a product's weights, in the whole model, are stored in fewer than 16 bits."""

    @classmethod
    def of(
        cls, architecture: Architecture, pieces: Iterable[Piece], *stage: range, included: frozenset[str] = frozenset()
    ) -> Self:
        sizes, narrow = dict[Product, int](), dict[Product, int]()
        for piece in pieces:
            tensor = piece.tensor
            product = product_of(architecture, tensor)
            if tensor.excluded_as is None or tensor.excluded_as in included:
                nbytes = piece.nbytes * piece.a_layer * copies_within(architecture, tensor, *stage)
                sizes[product] = sizes.get(product, 0) + nbytes
            if is_multiplied(tensor):
                sign = 1 if piece.form.bits < 16 else -1
                narrow[product] = narrow.get(product, 0) + sign * tensor.parameters
        return cls(sizes, {product: balance > 0 for product, balance in narrow.items()})


def row_elements(matrices: Iterable[tuple[Product, Tensor, int]]) -> dict[Product, int]:
    """Elements that one row takes into the matrix products of a stage and brings out of them."""
    widths: dict[Product, int] = {}
    for product, tensor, copies in matrices:
        widths[product] = widths.get(product, 0) + sum(tensor.shape[-2:]) * copies
    return widths


def read_bits(mixer: Mixer, kv: CacheFormat) -> dict[WindowTokens, Any]:
    """Bits of a layer's cache that attention reads of each token, by how far back: those of the window; or all index
    keys, and the rest of what the indexer picks."""
    bits = token_bits(mixer, kv)
    match mixer:
        case CompressedAttention(rate=rate) if rate is not None:
            entry, key = mixer.d_head * CACHE_BITS[kv] / rate, (mixer.d_index or 0) * CACHE_BITS[kv] / rate
            if mixer.n_index is None:
                return {mixer.window: bits, None: entry}
            return {mixer.window: bits, mixer.top_entries * rate: entry, None: key}
        case LatentAttention(indexer=indexer) if indexer is not None:
            index = indexer.cached_elements() * CACHE_BITS[kv]
            if kv == "fp8_ds_mla":
                index = fp8_index_bits(indexer.d_index) * indexer.owned
            return {indexer.top_tokens: bits - index, None: index}
        case GQA(indexer=indexer) if indexer is not None:
            index = indexer.cached_elements() * CACHE_BITS[kv]
            return {indexer.top_tokens: bits - index, None: index}
    return {mixer.window: bits}


def fp8_index_bits(width: int) -> int:
    """An index key in fp8 with an fp32 scale for each 128 (vLLM `flashmla_sparse.py`)."""
    return 8 * width + 32 * -(-width // 128)


def written_bits(mixer: Mixer, kv: CacheFormat) -> Any:
    """Bits that a token adds to a layer's cache."""
    more = mixer.compressed_elements() * CACHE_BITS[kv] if isinstance(mixer, CompressedAttention) else 0
    return token_bits(mixer, kv) + more
