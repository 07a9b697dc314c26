"""The type of each tensor of a GGUF file, as llama.cpp's `llama-quantize` chooses it (src/llama-quant.cpp)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from calc.errors import ConfigError, Message
from calc.formats.format_names import FloatFormat, WeightFormat
from calc.formats.gguf_tensors import gguf_tensors, in_f32, is_quantized, is_weight
from calc.formats.mixes import (
    MIX_TYPES,
    MIXES,
    OF_EIGHT_TINY,
    ROLES_BY_PLACE,
    ModelSizes,
    Role,
    always,
    fitted,
    role_of,
    steps_of,
    types_of,
)
from calc.formats.precision import Precision
from calc.formats.table import Format
from calc.model.architecture import Architecture
from calc.model.tensor import Tensor

FLOAT_TYPES: dict[FloatFormat, str] = {"fp32": "F32", "fp16": "F16", "bf16": "BF16"}
IN_FILES: tuple[WeightFormat, ...] = (*FLOAT_TYPES, "mxfp4")
"""Formats of files besides mixes."""


class GGUFTypes:
    """The types of a model's tensors in files of one format. Raises ConfigError for a format that no file has."""

    def __init__(self, model: Architecture, precision: Precision) -> None:
        self.inputs, self.weights, self.imatrix = mix_inputs(model), precision.weights, precision.imatrix
        if self.weights not in MIXES and self.weights not in IN_FILES:
            raise ConfigError(
                Message("GGUF files do not store weights in {format}.", format=self.weights),
                "weights",
                ["Q4_K_M", "Q8_0"],
            )
        self.plain = next((name for weight, name in FLOAT_TYPES.items() if weight == self.weights), "F16")

    def formats(self, tensor: Tensor) -> dict[Format, tuple[int, ...]]:
        """The layers of a tensor by the type that they store it in; of one outside the layers there are none."""
        role, sizes = self.inputs.roles.get(tensor.name), self.inputs.sizes
        if role is None or not tensor.layers or not self.inputs.is_mixed(tensor) or not self.depends_on_place(role):
            return {self.format(tensor, tensor.layers[0] if tensor.layers else 0): tensor.layers}
        by_type: dict[str, list[int]] = {}
        places = self.places(tensor, role, tensor.layers)
        kinds = types_of(self.weights, role, places, sizes, imatrix=self.imatrix)
        for layer, kind in zip(tensor.layers, kinds, strict=True):
            by_type.setdefault(kind, []).append(layer)
        layers_by_format: dict[Format, tuple[int, ...]] = {}
        for kind, layers in by_type.items():
            form = fitted(kind, tensor.shape[-1])
            layers_by_format[form] = tuple(sorted((*layers_by_format.get(form, ()), *layers)))
        return layers_by_format

    def depends_on_place(self, role: Role) -> bool:
        """Whether the layers may differ in the type of a role."""
        if self.weights not in MIXES or role not in ROLES_BY_PLACE:
            return False
        steps = steps_of(self.weights, role, self.inputs.sizes, imatrix=self.imatrix)
        return bool(steps) and steps[0].where is not always

    def places(self, tensor: Tensor, role: Role, layers: Sequence[int]) -> Sequence[int]:
        """Places of some layers, on which the type of a role depends."""
        sizes = self.inputs.sizes
        if tensor.excluded_as is not None:
            return [sizes.layers - 1] * len(layers)  # a draft layer, behind the last
        by_layer = role != "v" and sizes.experts > 1 and MIXES[self.weights].of_eight != OF_EIGHT_TINY
        if by_layer or role not in ROLES_BY_PLACE:
            return layers
        places = self.inputs.places[role]
        return [places[layer, tensor.name] for layer in layers]

    def format(self, tensor: Tensor, layer: int) -> Format:
        weights, sizes = self.weights, self.inputs.sizes
        if tensor.component == "experts_routed" and self.inputs.native and is_weight(tensor):
            return MIX_TYPES["MXFP4"]
        if weights in FLOAT_TYPES or not self.inputs.is_mixed(tensor):
            return MIX_TYPES["F32" if in_f32(tensor) else self.plain]
        columns = tensor.shape[-1]
        if weights == "mxfp4":
            return fitted("MXFP4" if len(tensor.shape) == 3 and tensor.shape[0] > 1 else "Q8_0", columns)
        role = self.inputs.roles[tensor.name]
        if role == "embedding" and self.inputs.tied:
            role = "output"
        if role == "output" and not sizes.falcon and columns % (MIX_TYPES[MIXES[weights].base].block[1] or 1):
            return fitted("Q8_0", columns)
        (kind,) = types_of(weights, role, self.places(tensor, role, (layer,)), sizes, imatrix=self.imatrix)
        return fitted(kind, columns)


@dataclass(frozen=True)
class MixInputs:
    """Tensors of a model's files and their properties, on which the rules of every mix depend."""

    tensors: tuple[Tensor, ...]
    roles: dict[str, Role]  # of the tensors that a mix chooses a type for
    places: dict[Role, dict[tuple[int, str], int]]  # of roles whose type depends on the place, in the order of the file
    sizes: ModelSizes
    tied: bool
    native: bool  # routed experts stay in MXFP4

    def is_mixed(self, tensor: Tensor) -> bool:
        native = self.native and tensor.component == "experts_routed" and is_weight(tensor)
        return tensor.name in self.roles and tensor.excluded_as != "vision" and not native


@lru_cache(maxsize=8)
def mix_inputs(model: Architecture) -> MixInputs:
    """Inputs of the rules for a model, whatever the mix; remembered, as one model is laid out in many mixes."""
    tensors = gguf_tensors(model)
    quantized = [tensor for tensor in tensors if is_quantized(tensor)]
    roles = {tensor.name: role_of(tensor.name) for tensor in quantized}
    where: dict[Role, list[tuple[int, str]]] = {role: [] for role in ROLES_BY_PLACE}
    for tensor in quantized:
        if roles[tensor.name] in ROLES_BY_PLACE and tensor.excluded_as is None:
            where[roles[tensor.name]] += [(layer, tensor.name) for layer in tensor.layers]
    places = {role: {name: place for place, name in enumerate(sorted(names))} for role, names in where.items()}
    return MixInputs(tensors, roles, places, sizes_of(model, len(places["v"])), model.tied, model.gguf.native_mxfp4)


def sizes_of(model: Architecture, values: int) -> ModelSizes:
    blocks = model.all_blocks
    attention = [(block.layers[0], m) for block in blocks for m in block.attentions if m.head_width]
    first, mixer = min(attention, key=lambda row: row[0], default=(0, None))
    group = mixer.n_q // mixer.cached_heads if mixer is not None else 1
    experts = max((moe.n_experts for moe in model.experts), default=0)
    return ModelSizes(
        layers=model.num_layers,
        values=values,
        group=0 if first > 0 and model.gguf.heads_by_layer else group,
        experts=experts,
        falcon=model.gguf.falcon,
        of_70b=model.num_layers == 80 and model.gguf.is_70b(grouped=group > 1),
    )
