"""Bytes that a forward pass reads and writes: weights, cache, and what goes in and out of matrix products."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from calc.formats import CACHE_BITS, CacheFormat
from calc.formats.stored import Piece
from calc.hardware.shards import copies_within
from calc.model.architecture import Architecture
from calc.model.mixers import AttentionMixer
from calc.model.tensor import Tensor, WindowTokens
from calc.time.flops import Product, is_multiplied, product_of


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
        counted = included | {None}
        for tensor, form, a_layer, nbytes, _ in pieces:
            product = product_of(architecture, tensor)
            if tensor.excluded_as in counted:
                copies = a_layer * copies_within(architecture, tensor, *stage)
                sizes[product] = sizes.get(product, 0) + copies * nbytes
            if is_multiplied(tensor):
                sign = 1 if form.bits < 16 else -1
                narrow[product] = narrow.get(product, 0) + sign * tensor.parameters
        return cls(sizes, {product: balance > 0 for product, balance in narrow.items()})


def row_elements(matrices: Iterable[tuple[Product, Tensor, int]]) -> dict[Product, int]:
    """Elements that one row takes into the matrix products of a stage and brings out of them."""
    widths: dict[Product, int] = {}
    for product, tensor, copies in matrices:
        widths[product] = widths.get(product, 0) + sum(tensor.shape[-2:]) * copies
    return widths


def read_bits(mixer: AttentionMixer, kv: CacheFormat) -> dict[WindowTokens, Any]:
    """Bits of a layer's cache that attention reads of each token, by how far back."""
    if kv == "fp8_ds_mla" and (packed := mixer.packed_bits()) is not None:
        return packed
    return {back: elements * CACHE_BITS[kv] for back, elements in mixer.read_elements().items()}


def written_bits(mixer: AttentionMixer, kv: CacheFormat) -> Any:
    """Bits that a token adds to a layer's cache."""
    if kv == "fp8_ds_mla" and (packed := mixer.packed_bits()) is not None:
        return sum(packed.values())
    return mixer.written_elements() * CACHE_BITS[kv]
