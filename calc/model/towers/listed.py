"""An encoder as the list of its weights, and the layers that most encoders are stacks of."""

from collections.abc import Iterator
from dataclasses import dataclass

from calc.errors import Frozen
from calc.model.tensor import Shapes
from calc.model.towers.named_shapes import NamedShape, weights, with_biases

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

    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")  # one name: in one matrix
    out: str = "self_attn.out_proj"
    mlp: tuple[str, ...] = ("mlp.fc1", "mlp.fc2")  # three names: gate, up, down; none: listed apart
    norms: tuple[str, ...] = ("layer_norm1", "layer_norm2")
    head_norms: tuple[str, ...] = ()  # over the dimension of a head; never with a bias
    scales: tuple[str, ...] = ()  # parameters as wide as the layer
    qkv_bias: bool = True
    key_bias: bool = True  # only Whisper's line has none where queries and values have one
    out_bias: bool = True
    mlp_bias: bool = True
    norm_bias: bool = True

    def shapes(self, d: int, f: int, *, q: int | None = None, kv: int | None = None, d_head: int = 0) -> Shapes:
        """Shape of each weight in a layer d wide, whose feed-forward is f wide: queries [q, d], keys and values
        [kv, d]; q is d and kv is q where they are left out."""
        q = d if q is None else q
        kv = q if kv is None else kv
        sides = (q + 2 * kv,) if len(self.qkv) == 1 else (q, kv, kv)
        attention: Shapes = {name: (side, d) for name, side in zip(self.qkv, sides, strict=True)}
        mlp: Shapes = {name: (d, f) if name == self.mlp[-1] else (f, d) for name in self.mlp}
        parts: tuple[tuple[Shapes, bool], ...] = (
            (attention, self.qkv_bias),
            ({self.out: (d, q)}, self.out_bias),
            (mlp, self.mlp_bias),
            (dict.fromkeys(self.norms, (d,)), self.norm_bias),
            (dict.fromkeys(self.head_norms, (d_head,)), False),
        )
        tensors: Shapes = dict.fromkeys(self.scales, (d,))
        for modules, bias in parts:
            tensors |= with_biases(modules) if bias else weights(modules)
        if self.qkv_bias and not self.key_bias:
            del tensors[f"{self.qkv[1]}.bias"]
        return tensors


def biased(bias: bool, modules: Shapes) -> Shapes:
    """Each module's weight, and its bias where it has one."""
    return with_biases(modules) if bias else weights(modules)
