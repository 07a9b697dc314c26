"""What a forward pass computes, 2 floating-point operations for each multiply-add, and the bytes that it reads and
writes: weights, cache, and what goes in and out of matrix products. The operations of norms, rotary embedding,
activation functions, softmax and sampling are left out: together less than 1 % of a forward pass, and bound by memory.
"""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, Self

from calc.formats import CACHE_BITS, CacheFormat
from calc.formats.stored import Piece
from calc.hardware.shards import copies_within
from calc.model.architecture import Architecture
from calc.model.mixers import AttentionMixer
from calc.model.tensor import Component, Tensor, WindowTokens

Product = Literal[Component, "latents", "image"]
"""Matrix products by what their weights belong to. Latents: MLA's second projection of keys and values, which prefill
computes anew for cached tokens; image: projections of an image's tokens, none of which are in a text."""
NOT_MULTIPLIED = frozenset({"A_log", "D", "ape", "tid2eid"})
"""Parameters with two sides that are no matrix: decays, skips, positions, a table of experts."""


def unrolled(architecture: Architecture) -> Architecture:
    """The model with a shared block standing in every layer that runs it."""
    shared = tuple(
        block.model_copy(update={"layers": block.runs_in, "places": ()}) if block.places else block
        for block in architecture.shared
    )
    return architecture.model_copy(update={"shared": shared}) if shared else architecture


def is_multiplied(tensor: Tensor) -> bool:
    """Whether tokens are multiplied by it: no vector, table, norm, or parameter of a recurrence."""
    if tensor.component in ("embedding", "norms"):
        return False
    sides = len(tensor.shape) - (tensor.experts != 1 and "{expert}" not in tensor.name)
    if sides < 2:
        return False
    module, _, leaf = tensor.name.rpartition(".")
    return leaf not in NOT_MULTIPLIED and not leaf.endswith("bias") and "norm" not in module.rpartition(".")[2]


def product_of(architecture: Architecture, tensor: Tensor) -> Product:
    """Which product a weight belongs to."""
    if tensor.component == "attention":
        if tensor.name.endswith("kv_b_proj.weight"):
            return "latents"
        if tensor.name.endswith(("k_proj.weight", "v_proj.weight")) and f".{architecture.names.cross}." in tensor.name:
            return "image"
    return tensor.component


def matrices_within(
    architecture: Architecture, *stage: range, included: frozenset[str] = frozenset()
) -> list[tuple[Product, Tensor, int]]:
    """Every matrix of a stage, in one piece or several, with its product and the number of layers that hold it;
    `included` are tensors listed apart that run too."""
    return [
        (product_of(architecture, tensor), tensor, copies_within(architecture, tensor, *stage))
        for tensor in architecture.tensors()
        if is_multiplied(tensor) and (tensor.excluded_as is None or tensor.excluded_as in included)
    ]


def product_flops(
    architecture: Architecture, matrices: Iterable[tuple[Product, Tensor, int]], *stage: range
) -> dict[Product, Any]:
    """FLOPs of one row through the matrices of a stage: 2 for each weight. A row of routed experts goes through one of
    them."""
    flops: dict[Product, Any] = {}
    for product, tensor, copies in matrices:
        each = tensor.active // max(1, len(tensor.layers))
        each = each // tensor.top_k if product == "experts_routed" and tensor.top_k else each  # 0: those of images
        flops[product] = flops.get(product, 0) + 2 * copies * each
    if architecture.tied and stage[-1].stop == architecture.num_layers:
        flops["lm_head"] = 2 * architecture.vocab * (architecture.d_embedding or architecture.hidden)
    return flops


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
