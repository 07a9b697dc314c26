"""Floating-point operations, 2 for each multiply-add. Norms, rotary embedding, activation functions, softmax and
sampling are left out: together less than 1 % of a forward pass, and bound by memory."""

from collections.abc import Iterable
from typing import Any, Literal

from calc.hardware.shards import copies_within
from calc.model.architecture import Architecture
from calc.model.tensor import Component, Tensor

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
