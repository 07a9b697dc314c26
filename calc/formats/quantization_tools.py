"""The tools that quantize checkpoints, and how each says in a `quantization_config` what it did."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from calc.errors import Message, shown
from calc.formats.format_names import MatrixFormat, MLXFormat
from calc.formats.scheme import EVERY_MODULE, EXPERTS, LINEARS, ModuleNames, Rule, Scheme
from calc.formats.table import FORMATS, Format, affine, gptq_integers, grouped
from calc.model.tensor import Component

MODELOPT, MLX = "modelopt", "mlx"
COMPRESSED_TENSORS: Literal["compressed-tensors"] = "compressed-tensors"


class Reading(NamedTuple):
    """The format of most matrices, what exactly is said, and what is taken for granted."""

    name: MatrixFormat | MLXFormat
    scheme: Scheme
    note: Message | None = None


class Unread(Exception):
    """Something in a quantization_config that can't be followed, in a sentence."""

    def __init__(self, why: Message) -> None:
        super().__init__(why)
        self.why = why


def texts(value: Any) -> tuple[str, ...]:
    """The names of a list; none where it is no list."""
    return tuple(name for name in value if isinstance(name, str) and name) if isinstance(value, list) else ()


def skipped(stated: Mapping[str, Any], *lists: str) -> ModuleNames:
    """The modules that stay in 16 bits, by the names that a tool has for its lists of them."""
    return ModuleNames(names=tuple(name for key in lists for name in texts(stated.get(key))))


def whole_number(stated: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """The whole number of a field, `default` where it is left out. Raises Unread."""
    value = stated.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= 2**20:
        raise Unread(Message("{key} is {value}, not a whole number.", key=key, value=shown(value)))
    return value


def bit_width(bits: Any) -> int:
    """Bits of a weight. Raises Unread."""
    if bits not in (2, 3, 4, 8) or isinstance(bits, float):
        raise Unread(Message("weights of {bits} bits are not known; those of 2, 3, 4 and 8 are.", bits=shown(bits)))
    return int(bits)


def everything(
    name: MatrixFormat, form: Format, skip: ModuleNames, components: frozenset[Component] = LINEARS
) -> Reading:
    """All linear modules in one format, but for those that are skipped."""
    return Reading(name, Scheme(rules=(Rule(form=form, components=components),), skip=skip))


def fp8(stated: Mapping[str, Any]) -> Reading:
    """Blocks where `weight_block_size` says so (DeepSeek-V3), else one scale a matrix, and a second for its inputs
    where they are static. What ModelOpt quantized further (NVFP4 experts of DeepSeek-V4) goes before it."""
    skip = skipped(stated, "modules_to_not_convert", "ignored_layers")
    if stated.get("weight_block_size") is not None:
        name, form = blocks(stated["weight_block_size"])
    else:
        scales = 2 if stated.get("activation_scheme") == "static" else 1
        name, form = "fp8-tensor", replace(FORMATS["fp8-tensor"], matrix_bits=32 * scales)
    reading, layers = everything(name, form, skip), stated.get("quantized_layers")
    if not isinstance(layers, Mapping) or not layers:
        return reading
    further = named_layers(layers)
    rules = (*further.scheme.rules, *reading.scheme.rules)
    return Reading(further.name, Scheme(rules=rules, skip=skip))


def blocks(sides: Any) -> tuple[MatrixFormat, Format]:
    """8 bits with a scale for each block of these sides: MXFP8's are one byte for 32 weights in a row."""
    if not isinstance(sides, list) or len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise Unread(Message("the sides of a block are {sides}, not two numbers.", sides=shown(sides)))
    if sides == [1, 32]:
        return "mxfp8", FORMATS["mxfp8"]
    return "fp8", replace(FORMATS["fp8"], block=(sides[0], sides[1]))


def fbgemm(stated: Mapping[str, Any]) -> Reading:
    """FBGEMM fp8: a scale an output channel; Llama 3.1 405B FP8 skips attention and the outer layers."""
    form = replace(FORMATS["fp8-channel"], scale_bits=32)
    return everything("fp8-channel", form, skipped(stated, "modules_to_not_convert"))


def gptq(stated: Mapping[str, Any]) -> Reading:
    """Reading as the kernels hold it: zero points only where asymmetric, the index of groups only with `desc_act`. The
    files hold both always, `qzeros` and `g_idx`, those of AutoRound the first alone. `dynamic` (GPTQModel) and
    `extra_config` (AutoRound) name modules that differ."""
    name, form = gptq_form(stated)
    skips: list[str] = list(skipped(stated, "modules_to_not_convert").names)
    rules: list[Rule] = []
    dynamic, extra = stated.get("dynamic"), stated.get("extra_config")
    for pattern, how in dynamic.items() if isinstance(dynamic, Mapping) else ():
        if pattern.startswith("-:"):
            skips.append(f"re:{pattern[2:]}")
        elif isinstance(how, Mapping):
            modules = ModuleNames(names=(f"re:{pattern.removeprefix('+:')}",))
            rules.append(Rule(form=gptq_form({**stated, **how})[1], modules=modules))
    for module, how in extra.items() if isinstance(extra, Mapping) else ():
        if isinstance(how, Mapping) and how.get("bits", 4) in (16, 32):
            skips.append(module)
        elif isinstance(how, Mapping):
            rules.append(Rule(form=gptq_form({**stated, **how})[1], modules=ModuleNames(names=(module,))))
    components: frozenset[Component] = LINEARS | {"lm_head"} if stated.get("lm_head") is True else LINEARS
    rules.append(Rule(form=form, components=components))
    return Reading(name, Scheme(rules=tuple(rules), skip=ModuleNames(names=tuple(skips))))


def gptq_form(stated: Mapping[str, Any]) -> tuple[MatrixFormat, Format]:
    bits, group = bit_width(stated.get("bits", 4)), whole_number(stated, "group_size", 128)
    zeros, index = stated.get("sym") is False, stated.get("desc_act") is True
    has_index = stated.get("quant_method") != "auto-round"
    form = gptq_integers(bits, None if group < 1 else group, zeros=zeros, index=index, has_index=has_index)
    return ("int8-gptq" if bits == 8 else "int4-gptq"), form


def awq(stated: Mapping[str, Any]) -> Reading:
    """4-bit weights and zero points with a 16-bit scale a group."""
    bits = bit_width(stated.get("bits", stated.get("w_bit", 4)))
    group = whole_number(stated, "group_size", whole_number(stated, "q_group_size", 128))
    zeros = stated.get("zero_point") is not False
    form = grouped(bits, None if group < 1 else group, zeros=zeros, tool="awq", source="AWQ, arXiv:2306.00978")
    return everything("int4", form, skipped(stated, "modules_to_not_convert"))


def bitsandbytes(stated: Mapping[str, Any]) -> Reading:
    """NF4 with or without double quantization, or 8 bits with a scale a row."""
    skip = skipped(stated, "llm_int8_skip_modules")
    if stated.get("load_in_8bit") is True:
        return everything("int8-bnb", FORMATS["int8-bnb"], skip)
    name: MatrixFormat = "nf4-dq" if stated.get("bnb_4bit_use_double_quant") is True else "nf4"
    return everything(name, FORMATS[name], skip)


def mxfp4(stated: Mapping[str, Any]) -> Reading:
    """gpt-oss: the routed experts."""
    return everything("mxfp4", FORMATS["mxfp4"], skipped(stated, "modules_to_not_convert"), EXPERTS)


def compressed_tensors(stated: Mapping[str, Any]) -> Reading:
    """One format for each group of modules: those of `targets`, of which `Linear` are all."""
    groups = stated.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise Unread(Message("config_groups is {groups}, not an object of groups.", groups=shown(groups)))
    rules, names = [], []
    for group in groups.values():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            continue  # activations or the cache only
        name, form = compressed_form(weights, group.get("input_activations"))
        targets = texts(group.get("targets"))
        rules.append(Rule(form=form, modules=ModuleNames(names=() if "Linear" in targets else targets)))
        names.append(name)
    if not rules:
        raise Unread(Message("no group of config_groups says how weights are stored."))
    rules.sort(key=lambda rule: not rule.modules.names)  # what is named goes before all the rest
    return Reading(names[0], Scheme(rules=tuple(rules), skip=skipped(stated, "ignore")))


def compressed_form(weights: Mapping[str, Any], inputs: Any) -> tuple[MatrixFormat, Format]:
    """`weights` of a group: bits, int or float, and what shares a scale. `inputs`: `input_activations`, which have a
    scale of their own in the file where they are static."""
    bits, kind, strategy = bit_width(weights.get("num_bits")), weights.get("type", "int"), weights.get("strategy")
    group, zeros = weights.get("group_size"), weights.get("symmetric") is False
    across = group if type(group) is int and group > 0 else None
    static = isinstance(inputs, Mapping) and inputs.get("dynamic") is not True
    if kind == "float" and bits == 4:
        return ("mxfp4", FORMATS["mxfp4"]) if across == 32 else ("nvfp4", nvfp4(inputs=isinstance(inputs, Mapping)))
    if kind == "float" and bits == 8:
        block = weights.get("block_structure")
        if strategy == "block" and block is not None:
            return blocks(block)
        if across == 32:
            return "mxfp8", FORMATS["mxfp8"]
        if strategy == "channel":
            return "fp8-channel", FORMATS["fp8-channel"]
        return "fp8-tensor", replace(FORMATS["fp8-tensor"], matrix_bits=64 if static else 32)
    if kind == "int" and bits == 8 and strategy in ("channel", "tensor"):
        return "int8", FORMATS["int8"]
    if kind == "int":
        index = weights.get("actorder") in ("group", "dynamic", True)  # the others order before they make groups
        form = grouped(bits, across, zeros=zeros, index=index, tool=COMPRESSED_TENSORS, source="pack-quantized")
        form = replace(form, matrix_bits=2 * 32)  # weight_shape
        return ("int8-gptq" if bits == 8 else "int4"), form
    raise Unread(Message("weights of {bits} bits of type {kind} are not known.", bits=bits, kind=shown(kind)))


def nvfp4(*, inputs: bool, smoothing: bool = False) -> Format:
    """NVFP4 with a scale of all scales, another of the inputs where they are quantized too, and AWQ's factor a
    column."""
    return replace(FORMATS["nvfp4"], matrix_bits=64 if inputs else 32, column_bits=16 if smoothing else 0)


def modelopt(stated: Mapping[str, Any]) -> Reading:
    """NVIDIA ModelOpt (`torch/export/quant_utils.py`): one algorithm for all modules, or one for each."""
    inner = stated.get("quantization")
    merged = {**stated, **inner} if isinstance(inner, Mapping) else dict(stated)
    lists = ("exclude_modules", "ignore")
    skip = skipped(merged, *lists)
    layers = merged.get("quantized_layers")
    if isinstance(layers, Mapping) and layers:
        named = named_layers(layers)
        return named._replace(scheme=named.scheme.model_copy(update={"skip": skip}))
    if merged.get("quant_algo") is None and isinstance(merged.get("config_groups"), Mapping):
        return compressed_tensors({**merged, "ignore": list(skip.names)})
    name, form = algorithm(merged)
    form = replace(form, tool="modelopt") if name == "fp8-tensor" else form
    note = None
    if not any(isinstance(merged.get(key), list) for key in lists):
        note = Message(
            "The checkpoint's quantization_config does not say which modules stay in 16 bits (exclude_modules): all "
            "matrices of attention and feed-forward count as quantized."
        )
    return everything(name, form, skip)._replace(note=note)


def named_layers(layers: Mapping[str, Any]) -> Reading:
    """`quantized_layers`: an algorithm for each module by name. Of the routed experts of a layer, which are alike, one
    is kept. The name is that of most modules of the feed-forward, where most weights are."""
    modules: dict[Format, list[str]] = {}
    names: dict[Format, MatrixFormat] = {}
    for module, how in layers.items():
        name, form = algorithm(how if isinstance(how, Mapping) else {})
        names[form] = name
        if ".experts." not in module or ".experts.0." in module or form not in modules:
            modules.setdefault(form, []).append(module)

    def share(form: Format) -> tuple[int, int, int]:
        named = modules[form]
        experts, mlp = (sum(part in module for module in named) for part in (".experts", ".mlp"))
        return experts, mlp, len(named)

    main = max(modules, key=share)
    rules = tuple(Rule(form=form, modules=ModuleNames(names=tuple(named))) for form, named in modules.items())
    return Reading(names[main], Scheme(rules=rules))


def algorithm(how: Mapping[str, Any]) -> tuple[MatrixFormat, Format]:
    """The format of a `quant_algo` of ModelOpt, with the scales of inputs and of AWQ that lie in the file."""
    name, group = how.get("quant_algo"), how.get("group_size") or 128
    if not isinstance(name, str) or name not in ALGORITHMS:
        raise Unread(
            Message("quant_algo is {name}, which is none of {list}.", name=shown(name), list=", ".join(ALGORITHMS))
        )
    form = ALGORITHMS[name]
    if name.endswith("_AWQ") and name != "NVFP4_AWQ":
        known = grouped(4, whole_number({"group_size": group}, "group_size"), zeros=False, source="ModelOpt INT4 AWQ")
        return "int4", replace(known, column_bits=16)
    return form


ALGORITHMS: dict[str, tuple[MatrixFormat, Format]] = {
    "FP8": ("fp8-tensor", replace(FORMATS["fp8-tensor"], matrix_bits=64)),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8-channel", replace(FORMATS["fp8-channel"], scale_bits=32)),
    "FP8_PB_WO": ("fp8", FORMATS["fp8"]),
    "MXFP8": ("mxfp8", FORMATS["mxfp8"]),
    "NVFP4": ("nvfp4", nvfp4(inputs=True)),
    "W4A16_NVFP4": ("nvfp4", nvfp4(inputs=False)),
    "W4A8_NVFP4_FP8": ("nvfp4", nvfp4(inputs=True)),
    "NVFP4_AWQ": ("nvfp4", nvfp4(inputs=True, smoothing=True)),
    "W4A8_MXFP4_FP8": ("mxfp4", FORMATS["mxfp4"]),
    "MXFP4": ("mxfp4", FORMATS["mxfp4"]),
    "W4A16_AWQ": ("int4", FORMATS["int4"]),
    "W4A8_AWQ": ("int4", FORMATS["int4"]),
    "W8A16": ("int8", replace(FORMATS["int8"], scale_bits=32)),
    "INT8_SQ": ("int8", replace(FORMATS["int8"], scale_bits=32, column_bits=16)),
    "W8A8_SQ_PER_CHANNEL": ("int8", replace(FORMATS["int8"], scale_bits=32, column_bits=16)),
}
"""`quant_algo` of ModelOpt: what it stores, FP8's and NVFP4's scales of inputs and SmoothQuant's factors included."""


def quark(stated: Mapping[str, Any]) -> Reading:
    """AMD Quark: `global_quant_config.weight`, and `layer_quant_config` for single modules."""
    layers = stated.get("layer_quant_config")
    name, form = quark_form(stated.get("global_quant_config"))
    rules = []
    for module, how in layers.items() if isinstance(layers, Mapping) else ():
        rules.append(Rule(form=quark_form(how)[1], modules=ModuleNames(names=(module,))))
    return Reading(name, Scheme(rules=(*rules, Rule(form=form)), skip=skipped(stated, "exclude")))


def quark_form(how: Any) -> tuple[MatrixFormat, Format]:
    if not isinstance(how, Mapping):
        raise Unread(Message("global_quant_config does not say how weights are stored."))
    weight, inputs = (part[0] if isinstance(part, list) and part else part for part in map(how.get, QUARK_PARTS))
    if weight is None:
        return "bf16", FORMATS["bf16"]
    if not isinstance(weight, Mapping):
        raise Unread(Message("global_quant_config does not say how weights are stored."))
    dtype, scheme, group = weight.get("dtype"), weight.get("qscheme"), weight.get("group_size")
    if dtype in ("fp4", "mxfp4", "fp8_e4m3") and scheme in ("per_group", None) and group == 32:
        name: MatrixFormat = "mxfp8" if dtype == "fp8_e4m3" else "mxfp4"
        return name, FORMATS[name]
    if dtype in ("fp8_e4m3", "int8") and scheme == "per_channel":
        name = "int8" if dtype == "int8" else "fp8-channel"
        return name, replace(FORMATS[name], scale_bits=32)
    if dtype in ("fp8_e4m3", "int8") and scheme in ("per_tensor", None):
        static = isinstance(inputs, Mapping) and inputs.get("is_dynamic") is not True
        form = replace(FORMATS["fp8-tensor"], matrix_bits=64 if static else 32)
        return ("int8" if dtype == "int8" else "fp8-tensor"), form
    if dtype in ("int4", "uint4") and type(group) is int and group > 0:
        return "int4", grouped(4, group, zeros=dtype == "uint4", source="AMD Quark")
    raise Unread(Message("weights of dtype {dtype} are not known.", dtype=shown(dtype)))


QUARK_PARTS = ("weight", "input_tensors")


MLX_MODES: dict[str, MLXFormat] = {"mxfp4": "mlx-mxfp4", "mxfp8": "mlx-mxfp8", "nvfp4": "mlx-nvfp4"}
MLX_BITS: dict[int, MLXFormat] = {2: "mlx-2bit", 3: "mlx-3bit", 4: "mlx-4bit"}
MLX_BITS |= {5: "mlx-5bit", 6: "mlx-6bit", 8: "mlx-8bit"}


def mlx(stated: Mapping[str, Any]) -> Reading:
    """`quantization` as mlx-lm writes it: one setting for all, and others, or false, by the path of a module."""
    name, form = mlx_form(stated)
    others: dict[Format, list[str]] = {}
    for path, how in stated.items():
        if isinstance(how, Mapping):
            others.setdefault(mlx_form({**stated, **how})[1], []).append(path)
    named = (Rule(form=other, modules=ModuleNames(names=tuple(paths))) for other, paths in others.items())
    skip = ModuleNames(names=tuple(path for path, how in stated.items() if how is False))
    return Reading(name, Scheme(rules=(*named, Rule(form=form, components=EVERY_MODULE)), skip=skip))


def mlx_form(stated: Mapping[str, Any]) -> tuple[MLXFormat, Format]:
    """A setting of `mx.quantize`."""
    mode, bits, group = stated.get("mode", "affine"), stated.get("bits"), stated.get("group_size")
    if mode in MLX_MODES:
        return MLX_MODES[mode], FORMATS[MLX_MODES[mode]]
    if mode != "affine" or bits not in MLX_BITS or group not in (32, 64, 128):
        sentence = (
            "MLX quantizes with 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128; {bits} in groups of {group} "
            "({mode}) is not known."
        )
        raise Unread(Message(sentence, bits=shown(bits), group=shown(group), mode=shown(mode)))
    return MLX_BITS[bits], affine(bits, group)


TOOLS: dict[str, Callable[[Mapping[str, Any]], Reading]] = {
    "fp8": fp8,
    "mxfp8": fp8,
    "fbgemm_fp8": fbgemm,
    "gptq": gptq,
    "gptq_marlin": gptq,
    "auto-round": gptq,
    "awq": awq,
    "awq_marlin": awq,
    "bitsandbytes": bitsandbytes,
    "mxfp4": mxfp4,
    COMPRESSED_TENSORS: compressed_tensors,
    MLX: mlx,
    MODELOPT: modelopt,
    "quark": quark,
}
"""Readers by `quant_method`."""
