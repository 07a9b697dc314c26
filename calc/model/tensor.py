from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

Shape = tuple[int, ...]
Shapes = dict[str, Shape]
Sides = tuple[tuple[str, int], ...]
"""Each side of a tensor: what it counts, as a symbol or a word of the papers, and how many there are."""
WindowTokens = int | None
"""Tokens back; None: all."""

Elements = dict[str, Any]
"""Elements of a token, or bytes, by name; numbers or formulas."""
Norm = Literal["rms", "layer", "none"]
"""Kind of norm with a weight: RMSNorm, and Cohere's that takes the mean off; with a weight and a bias: LayerNorm; with
neither: OLMo's."""
Component = Literal[
    "embedding",
    "attention",
    "mlp",
    "experts_routed",
    "experts_shared",
    "router",
    "ssm_linear",
    "norms",
    "lm_head",
    "vision",
    "other",
]
Excluded = Literal["persistent_buffers", "multi_token_prediction", "vision"]
FixedDtype = Literal["fp32", "int64"]
"""Types that a checkpoint keeps some tensors in, whatever the format of the others."""


def norm_shapes(name: str, kind: Norm, width: int) -> Shapes:
    """Weights of a norm, by name [width]."""
    if kind == "none":
        return {}
    weights: Shapes = {f"{name}.weight": (width,)}
    return weights | {f"{name}.bias": (width,)} if kind == "layer" else weights


def weights(modules: Shapes) -> Shapes:
    """Shapes by name of each module's weight."""
    return {f"{name}.weight": shape for name, shape in modules.items()}


def with_biases(modules: Shapes) -> Shapes:
    """Shapes by name of each module's weight and bias, which is as long as the first side."""
    return weights(modules) | {f"{name}.bias": shape[:1] for name, shape in modules.items()}


def biased(bias: bool, modules: Shapes) -> Shapes:
    """Each module's weight, and its bias where it has one."""
    return with_biases(modules) if bias else weights(modules)


def joined(shapes: Shapes, parts: tuple[str, ...], whole: str) -> Shapes:
    """The shapes with several matrices over the same input as one."""
    left = dict(shapes)
    for leaf in ("weight", "bias"):
        joint = [left.pop(f"{part}.{leaf}") for part in parts if f"{part}.{leaf}" in left]
        if joint:
            left[f"{whole}.{leaf}"] = (sum(shape[0] for shape in joint), *joint[0][1:])
    return left


@dataclass(frozen=True, slots=True)
class Tensor:
    """One weight of the checkpoint, with everywhere that it occurs."""

    name: str
    """Checkpoint name; `{layer}` and `{expert}` stand where it repeats."""
    shape: Shape
    component: Component
    layers: tuple[int, ...] = ()
    """Indices of the layers that hold it; empty outside the layers."""
    experts: int = 1
    """Routed experts that it belongs to: one copy for each, or all stacked in its first dimension; or heads, where each
    has one of its own."""
    top_k: int = 1
    """Experts of these that one token of text passes through."""
    excluded_as: Excluded | None = None
    """Why it is listed apart and not in the total; None when it is in the total."""
    first: int = 0
    """Number of its first expert: those for images follow those for text, ERNIE 4.5 VL."""
    begins: int = 0
    """Index of the layer that its stack begins with, where a model has several: HRM."""
    before_layers: bool = False
    """Whether it stands with the embedding, outside the layers; else what does follows them."""
    dtype: FixedDtype | None = None
    """Type that checkpoints store it in always; None: that of the weights."""

    @property
    def a_layer(self) -> int:
        """Times that it occurs in a layer."""
        return self.experts if "{expert}" in self.name else 1

    @property
    def count(self) -> int:
        return max(1, len(self.layers)) * self.a_layer

    @property
    def stacked(self) -> int:
        """Experts that lie in one occurrence; 1: a single one, or what every token passes through."""
        return 1 if "{expert}" in self.name else self.experts

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def layer_numel(self) -> int:
        """Elements in one layer, or outside the layers."""
        return self.numel * self.a_layer

    @property
    def parameters(self) -> int:
        return self.numel * self.count

    @property
    def active(self) -> int:
        """Elements that one token passes through: top_k of the routed experts, everything else whole."""
        return self.parameters * self.top_k // self.experts

    def names(self) -> Iterator[str]:
        """The name of each occurrence, as the checkpoint has it."""
        for layer in self.layers or (0,):
            for expert in range(self.a_layer):
                yield self.name.format(layer=layer - self.begins, expert=self.first + expert)
