"""An encoder as the list of its weights, and the layers that most encoders are stacks of."""

from collections.abc import Iterator
from dataclasses import dataclass

from calc.errors import Frozen
from calc.model.tensor import Shape, Shapes

NamedShape = tuple[str, Shape, int]
"""Name, shape, and number of layers that hold it."""
TEXT = -1
"""A side of a shape: the language model's width; -4 is four times that."""
GATED = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


class ListedTower(Frozen):
    """Encoders and projectors of one model, by their weights."""

    modules: tuple[NamedShape, ...]
    statistics: tuple[NamedShape, ...] = ()  # tensors of the checkpoint, and no parameters
    images: bool  # whether the config has a section for an encoder of images
    num_layers: int | None  # what that section says
    hidden: int | None
    deepstack: int = 0  # layers of the encoder that go into the language model's first ones by mergers of their own
    wrapper: str = ""  # model_type of the whole

    def shapes(self, text_hidden: int) -> Iterator[NamedShape]:
        """Name, shape and number of layers that hold it, of each weight."""
        for name, shape, copies in self.modules:
            yield name, tuple(side if side >= 0 else -side * text_hidden for side in shape), copies

    def buffers(self) -> Iterator[NamedShape]:
        """Tensors of the checkpoint that are no parameters."""
        yield from self.statistics


@dataclass(frozen=True)
class Layer:
    """Names and biases of one layer of a transformer that encodes images or sound; by default CLIP's and SigLIP's."""

    qkv: str = "self_attn.{}_proj"  # with {}: three matrices; without: one
    letters: tuple[str, str, str] = ("q", "k", "v")
    out: str = "self_attn.out_proj"
    mlp: tuple[str, ...] = ("mlp.fc1", "mlp.fc2")  # three names: gate, up, down; none: listed apart
    norms: tuple[str, ...] = ("layer_norm1", "layer_norm2")
    head_norms: tuple[str, ...] = ()  # over the dimension of a head; never with a bias
    scales: tuple[str, ...] = ()  # parameters as wide as the layer
    bias: bool = True  # of all parts but those that say otherwise
    qkv_bias: bool | None = None
    key_bias: bool = True  # only Whisper's line has none where queries and values have one
    out_bias: bool | None = None
    mlp_bias: bool | None = None
    norm_bias: bool | None = None

    def shapes(self, d: int, f: int, *, q: int | None = None, kv: int | None = None, d_head: int = 0) -> Shapes:
        """Shape of each weight in a layer d wide, whose feed-forward is f wide: queries [q, d], keys and values
        [kv, d]; q is d and kv is q where they are left out."""
        q = d if q is None else q
        kv = q if kv is None else kv
        attention: Shapes = {self.qkv: (q + 2 * kv, d)}
        if "{}" in self.qkv:
            names = [self.qkv.replace("{}", letter) for letter in self.letters]
            attention = {name: (side, d) for name, side in zip(names, (q, kv, kv), strict=True)}
        parts: tuple[tuple[Shapes, bool | None], ...] = (
            (attention, self.qkv_bias),
            ({self.out: (d, q)}, self.out_bias),
            ({name: (d, f) if name == self.mlp[-1] else (f, d) for name in self.mlp}, self.mlp_bias),
            (dict.fromkeys(self.norms, (d,)), self.norm_bias),
            (dict.fromkeys(self.head_norms, (d_head,)), False),
        )
        tensors: Shapes = dict.fromkeys(self.scales, (d,))
        for modules, bias in parts:
            tensors |= biased(self.bias if bias is None else bias, modules)
        if not self.key_bias:
            tensors.pop(f"{self.qkv.replace('{}', self.letters[1])}.bias", None)
        return tensors


FUSED = Layer(qkv="attn.qkv", out="attn.proj", norms=("norm1", "norm2"))
"""Queries, keys and values in one matrix, under timm's names."""


def weights(modules: Shapes) -> Shapes:
    """Each module's weight."""
    return {f"{name}.weight": shape for name, shape in modules.items()}


def with_biases(modules: Shapes) -> Shapes:
    """Each module's weight and bias."""
    return weights(modules) | {f"{name}.bias": shape[:1] for name, shape in modules.items()}


def biased(bias: bool, modules: Shapes) -> Shapes:
    """Each module's weight, and its bias where it has one."""
    return with_biases(modules) if bias else weights(modules)


def placed(path: str, shapes: Shapes, copies: int = 1) -> Iterator[NamedShape]:
    """Weights under a path, each held by so many layers; none where there are no layers."""
    for name, shape in shapes.items() if copies else ():
        yield f"{path}.{name}" if path else name, shape, copies
