"""Storage in mlx-lm: groups of a row that share a scale and a bias, and mixes by the place of a matrix.

Read in mlx-lm 0.32.2 (`utils.py`: `quantize_model`; `convert.py`: `mixed_quant_predicate_builder`; `quant_predicate` in
`models`). Every Linear, Embedding and stack of experts whose rows are whole groups is quantized, so head and tables of
tokens are too; layers for multi-token prediction and encoders are dropped.
"""

from collections.abc import Iterator
from dataclasses import replace

from calc.formats.format_names import FLOATS, MLX_FORMATS, WeightFormat
from calc.formats.mixes import more_bits
from calc.formats.precision import Precision
from calc.formats.scheme import Scheme
from calc.formats.stored import Piece, by_format
from calc.formats.table import FIXED, FORMATS, Format, affine
from calc.model.architecture import Architecture
from calc.model.tensor import Tensor
from calc.serving.engines.families import families
from calc.serving.engines.mlx.cache import EXPANDED_LATENTS

MIXED_HIGH_BITS: dict[WeightFormat, int] = {
    "mlx-mixed_4_6": 6,
    "mlx-mixed_3_6": 6,
    "mlx-mixed_3_4": 4,
    "mlx-mixed_2_6": 6,
}
"""Bits of a mixed format that the head has, and in some layers values and down-projections."""
WITH_GROUP_SIZE = frozenset(name for name in MLX_FORMATS if name[-3:] == "bit" or name in MIXED_HIGH_BITS)
"""Formats whose groups may be of another size."""
ROUTERS_IN_EIGHT = families("mlx", "routers_in_eight")
LAST_IN_EIGHT = families("mlx", "last_in_eight")
"""Families whose `quant_predicate` asks for 8 bits of the router, or of the matrices whose names end as in LAST."""
LAST = (".o_proj.weight", ".mlp.down_proj.weight", "lm_head.weight")
ROUTERS_PLAIN = families("mlx", "routers_plain")
"""Families whose routers stay in 16 bits."""


def mlx_file(model: Architecture, precision: Precision, group: int | None = None) -> list[Piece]:
    """The tensors of a model as mlx-lm stores them, each with its format; `group`: weights that share a scale."""
    types = MLXTypes(model, precision, group)
    pieces: list[Piece] = []
    for tensor in types.tensors():
        if tensor.dtype is not None:
            pieces.append(Piece.of(tensor, FIXED[tensor.dtype]))
        elif tensor.layers:
            pieces += by_format(tensor, types.form)
        else:
            pieces.append(Piece.of(tensor, types.form(tensor, 0)))
    return pieces


class MLXTypes:
    """The format of each tensor of a model as mlx-lm stores it; `group`: weights that share a scale, where that is not
    the format's own."""

    def __init__(self, model: Architecture, precision: Precision, group: int | None = None) -> None:
        self.model, self.stated = model, precision.checkpoint
        weights = precision.weights
        self.base = FORMATS[weights]
        self.plain = self.base if weights in FLOATS else None
        if self.stated is not None:
            self.base = next((rule.form for rule in self.stated.rules if not rule.modules.names), self.base)
        elif group is not None and weights in WITH_GROUP_SIZE:
            self.base = affine(self.base.bits, group)
        self.group = self.base.block[1] or 1
        self.high_bits = affine(MIXED_HIGH_BITS[weights], self.group) if weights in MIXED_HIGH_BITS else None

    def tensors(self) -> Iterator[Tensor]:
        """Tensors of a file: without layers for multi-token prediction and encoders."""
        for tensor in self.model.tensors():
            if tensor.component != "vision" and tensor.excluded_as in (None, "persistent_buffers"):
                yield from self.absorbed_projections(replace(tensor, excluded_as=None))

    def absorbed_projections(self, tensor: Tensor) -> Iterator[Tensor]:
        """The tensor as it is; latent attention's up-projection as two: of queries, and of values."""
        mixers = (mixer for block in self.model.blocks for mixer in block.attentions)
        latent = next((mixer for mixer in mixers if mixer.absorbs), None)
        grouped = None if latent is None else latent.as_grouped()
        up = tensor.name.endswith("kv_b_proj.weight")
        if latent is None or grouped is None or not up or self.model.model_type in EXPANDED_LATENTS:
            yield tensor
            return
        path, heads = tensor.name.removesuffix("kv_b_proj.weight"), latent.score_heads
        rank, rotary = latent.shared_parts[0], sum(latent.shared_parts[1:])
        query, value = grouped.attended_widths
        yield replace(tensor, name=f"{path}embed_q.weight", shape=(heads * rank, query - rotary))
        yield replace(tensor, name=f"{path}unembed_out.weight", shape=(heads * value, rank))

    def form(self, tensor: Tensor, layer: int) -> Format:
        """Format of a tensor in a layer; layer 0 for those outside of the layers."""
        if self.plain is not None:
            return self.plain
        if not self.is_quantized(tensor):
            return FORMATS["bf16"]
        if self.stated is not None:
            return self.stated_form(self.stated, tensor, layer)
        if self.high_bits is not None:
            return self.high_bits if self.has_more_bits(tensor, layer) else self.base
        family, name = self.model.model_type, tensor.name
        eight = tensor.component == "router" and family in ROUTERS_IN_EIGHT
        return affine(8) if eight or (family in LAST_IN_EIGHT and name.endswith(LAST)) else self.base

    def stated_form(self, stated: Scheme, tensor: Tensor, layer: int) -> Format:
        """Format that a checkpoint's config states of a module, by mlx-lm's name for it."""
        path = mlx_path(tensor).format(layer=layer - tensor.begins)
        if stated.skip.hold(path):
            return FORMATS["bf16"]
        return next((rule.form for rule in stated.rules if rule.modules.hold(path)), self.base)

    def is_quantized(self, tensor: Tensor) -> bool:
        """Whether its module can be, and its rows are whole groups."""
        stacked = tensor.stacked > 1
        if len(tensor.shape) - stacked != 2 or not (stacked or tensor.name.endswith(".weight")):
            return False
        if tensor.component == "router" and self.model.model_type in ROUTERS_PLAIN:
            return False
        return not tensor.name.endswith("_bias") and self.columns(tensor) % self.group == 0

    def columns(self, tensor: Tensor) -> int:
        """Inputs of a matrix. Stacks of experts have them in either order in checkpoints and last in MLX."""
        if tensor.name.endswith(".weight"):
            return tensor.shape[-1]
        inputs = tensor.numel // tensor.stacked // self.model.hidden
        return inputs if is_down(tensor.name) else self.model.hidden

    def has_more_bits(self, tensor: Tensor, layer: int) -> bool:
        """Whether a mixed recipe gives it the higher bits, by parts of its path as mlx-lm names it."""
        name = tensor.name
        if tensor.component == "lm_head":
            return True
        chosen = is_down(name) or any(part in name for part in ("v_proj", "v_a_proj", "v_b_proj"))
        return chosen and more_bits(layer, self.model.num_layers)


def mlx_path(tensor: Tensor) -> str:
    """A module as mlx-lm names it: the experts of a layer are one."""
    path = tensor.name.removesuffix(".weight").replace("experts.{expert}", "switch_mlp")
    for checkpoint, name in (("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")):
        path = path.replace(f"switch_mlp.{checkpoint}", f"switch_mlp.{name}")
    return path.replace("gate_up_proj", "gate_proj")


def is_down(name: str) -> bool:
    """Whether mlx-lm calls it `down_proj`, or a part of its path is called so."""
    return "down_proj" in name or ".experts.{expert}.w2." in name or name.endswith("moe.output_linear.weight")
