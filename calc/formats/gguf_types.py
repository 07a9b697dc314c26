"""The type of each tensor of a GGUF file, as llama.cpp's `llama-quantize` chooses it (src/llama-quant.cpp)."""

from collections.abc import Callable, Sequence

from calc.errors import ConfigError, Message
from calc.formats.format_names import FloatFormat
from calc.formats.gguf_architectures import ARCHITECTURES
from calc.formats.gguf_tensors import in_f32, is_quantised, is_weight
from calc.formats.mixes import COUNTED, MIX_TYPES, MIXES, OF_EIGHT_TINY, ModelSizes, Role, fitted, role_of, type_of
from calc.formats.precision import Precision
from calc.formats.table import Format
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.feedforward import MoE
from calc.model.tensor import Tensor

FLOAT_TYPES: dict[FloatFormat, str] = {"fp32": "F32", "fp16": "F16", "bf16": "BF16"}
NATIVE_MXFP4 = frozenset({"gpt_oss"})
"""Families whose experts are published in MXFP4 and stay so in every file."""
OF_70B = frozenset({"llama", "mistral", "mixtral", "nemotron-nas", "olmo", "qwen2", "Yi"})
"""Families that llama.cpp knows a model of 70 billion of, by its 80 layers."""
HEADS_BY_LAYER = frozenset({"bamba", "granitemoehybrid", "jamba", "kimi_linear", "lfm2", "lfm2_moe", "nemotron_h"})
"""Families whose header states KV heads layer by layer: none in layers without attention."""


def gguf_types(model: Architecture, tensors: Sequence[Tensor], precision: Precision) -> Callable[[Tensor, int], Format]:
    """The type of a tensor in a layer. Raises ConfigError for a format that no file has."""
    weights = precision.weights
    if weights not in MIXES and weights not in FLOAT_TYPES and weights != "mxfp4":
        raise ConfigError(
            Message("GGUF files do not store weights in {format}.", format=weights), "weights", ["Q4_K_M", "Q8_0"]
        )
    places = counted(tensors)
    sizes = sizes_of(model, places)
    plain = next((name for weight, name in FLOAT_TYPES.items() if weight == weights), "F16")

    quantised = {tensor.name for tensor in tensors if is_quantised(tensor)}

    def choose(tensor: Tensor, layer: int) -> Format:
        if tensor.component == "experts_routed" and is_weight(tensor) and model.model_type in NATIVE_MXFP4:
            return MIX_TYPES["MXFP4"]
        if weights in FLOAT_TYPES or tensor.apart == "vision" or tensor.name not in quantised:
            return MIX_TYPES["F32" if in_f32(tensor) else plain]
        columns = tensor.shape[-1]
        if weights == "mxfp4":
            return fitted("MXFP4" if len(tensor.shape) == 3 and tensor.shape[0] > 1 else "Q8_0", columns)
        role = role_of(tensor.name)
        if role == "embedding" and model.tied:
            role = "output"
        if role == "output" and not sizes.falcon and columns % (MIX_TYPES[MIXES[weights].base].block[1] or 1):
            return fitted("Q8_0", columns)
        place = layer
        if tensor.apart is not None:
            place = sizes.layers - 1  # a draft layer, behind the last
        elif role in COUNTED and not (role != "v" and sizes.experts > 1 and MIXES[weights].of_eight != OF_EIGHT_TINY):
            place = places[role].index((layer, tensor.name))
        return fitted(type_of(weights, role, place, sizes, imatrix=precision.imatrix), columns)

    return choose


Places = dict[Role, list[tuple[int, str]]]


def counted(tensors: Sequence[Tensor]) -> Places:
    """The tensors of each role whose type hangs on the place, in the order that they are quantised in."""
    places: Places = {role: [] for role in COUNTED}
    for tensor in tensors:
        role = role_of(tensor.name)
        if role in COUNTED and is_quantised(tensor) and tensor.apart is None:
            places[role] += [(layer, tensor.name) for layer in tensor.layers]
    return {role: sorted(where) for role, where in places.items()}


def sizes_of(model: Architecture, places: Places) -> ModelSizes:
    blocks = model.all_blocks
    attention = [(block.layers[0], m) for block in blocks for m in block.mixers if isinstance(m, GQA)]
    first, mixer = min(attention, key=lambda row: row[0], default=(0, None))
    group = mixer.n_q // mixer.n_kv if mixer is not None else 1
    experts = max((block.ffn.n_experts for block in blocks if isinstance(block.ffn, MoE)), default=0)
    return ModelSizes(
        layers=model.num_layers,
        values=len(places["v"]),
        group=0 if first > 0 and model.model_type in HEADS_BY_LAYER else group,
        experts=experts,
        falcon=ARCHITECTURES.get(model.model_type) == "falcon",
        of_70b=model.model_type in OF_70B and model.num_layers == 80 and (group > 1 or model.model_type != "llama"),
    )
