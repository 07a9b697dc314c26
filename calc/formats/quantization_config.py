"""`quantization_config` of a config.json -> Scheme, by the conventions of the tool that wrote it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from calc.errors import Message, shown
from calc.formats.format_names import MatrixFormat
from calc.formats.mixes import MIXES
from calc.formats.scheme import EXPERTS, LINEARS, Rule, Scheme, readable
from calc.formats.table import FORMATS, Format, grouped
from calc.model.tensor import Component

SKIPS = ("ignore", "modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules", "exclude_modules", "exclude")
"""What the tools call their lists of modules in 16 bits."""
ALGORITHMS: dict[str, MatrixFormat] = {
    "FP8": "fp8-tensor",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8-channel",
    "FP8_PB_WO": "fp8",
    "NVFP4": "nvfp4",
    "W4A16_AWQ": "int4",
    "INT8_SQ": "int8",
}
"""`quant_algo` of NVIDIA's ModelOpt."""


Reading = tuple[MatrixFormat, Scheme]


class Native(NamedTuple):
    """How a checkpoint is stored: the name of the format nearest to it, and what exactly its config says."""

    name: MatrixFormat
    scheme: Scheme | None = None
    unread: Message | None = None  # what the config says that we can't follow


class Unread(Exception):
    """Something in a quantization_config that we can't follow, in a sentence."""

    def __init__(self, why: Message) -> None:
        super().__init__(why)
        self.why = why


def native(config: Mapping[str, Any]) -> Native:
    """How the checkpoint of a config is stored; in 16 bits where it is not quantized or can't be read."""
    found = section(config)
    if found is None:
        return Native("bf16")
    method = found.get("quant_method") or (
        "bitsandbytes" if "load_in_4bit" in found or "load_in_8bit" in found else None
    )
    if method == "gguf" and found.get("format") in MIXES:
        return Native(found["format"])
    reader = READERS.get(method) if isinstance(method, str) else None
    if reader is None:
        sentence = Message(
            "The quantization method {method} is not known: weights count in 16 bits.", method=shown(method)
        )
        return Native("bf16", unread=sentence)
    try:
        name, scheme = reader(found)
    except Unread as error:
        sentence = Message("The quantization_config can't be followed: {why} Weights count in 16 bits.", why=error.why)
        return Native("bf16", unread=sentence)
    patterns = (*scheme.skip, *(target for rule in scheme.rules for target in rule.targets))
    unreadable = next((pattern for pattern in patterns if not readable(pattern)), None)
    if unreadable is not None:
        sentence = Message(
            "The pattern {pattern} in the quantization_config can't be followed: weights count in 16 bits.",
            pattern=shown(unreadable),
        )
        return Native("bf16", unread=sentence)
    return Native(name, scheme)


def section(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The `quantization_config`, wherever the wrapper of a language model keeps it; also compressed-tensors' name."""
    for holder in (config, config.get("text_config")):
        if isinstance(holder, Mapping):
            for key in ("quantization_config", "compression_config"):
                if isinstance(holder.get(key), Mapping):
                    return dict(holder[key])
    return None


def texts(value: Any) -> tuple[str, ...]:
    """The names of a list; none where it is no list."""
    return tuple(name for name in value if isinstance(name, str) and name) if isinstance(value, list) else ()


def skipped(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The modules in 16 bits."""
    return tuple(name for key in SKIPS for name in texts(found.get(key)))


def whole(found: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A number that a format hangs on."""
    value = found.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= 2**20:
        raise Unread(Message("{key} is {value}, not a whole number.", key=key, value=shown(value)))
    return value


def width(bits: Any) -> int:
    """Bits of a weight."""
    if bits not in (2, 3, 4, 8) or isinstance(bits, float):
        raise Unread(Message("weights of {bits} bits are not known; those of 2, 3, 4 and 8 are.", bits=shown(bits)))
    return int(bits)


def everything(name: MatrixFormat, form: Format, found: Mapping[str, Any], head: bool = False) -> Reading:
    """All linear modules in one format, but for those that are skipped."""
    components: frozenset[Component] = LINEARS | {"lm_head"} if head else LINEARS
    return name, Scheme(rules=(Rule(form=form),), skip=skipped(found), components=components)


def blocks(sides: Any) -> Format:
    """fp8 with a scale for each block of these sides."""
    if not isinstance(sides, list) or len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise Unread(Message("the sides of a block are {sides}, not two numbers.", sides=shown(sides)))
    return replace(FORMATS["fp8"], block=(sides[0], sides[1]))


def fp8(found: Mapping[str, Any]) -> Reading:
    """Blocks where `weight_block_size` says so (DeepSeek-V3), else one scale a matrix, and a second for its inputs
    where they are static."""
    if found.get("weight_block_size") is not None:
        return everything("fp8", blocks(found["weight_block_size"]), found)
    scales = 2 if found.get("activation_scheme") == "static" else 1
    form = replace(FORMATS["fp8-tensor"], matrix_bits=32 * scales)
    return everything("fp8-tensor", form, found)


def fbgemm(found: Mapping[str, Any]) -> Reading:
    """FBGEMM fp8: a scale an output channel; Llama 3.1 405B FP8 skips attention and the outer layers."""
    return everything("fp8-channel", FORMATS["fp8-channel"], found)


def gptq(found: Mapping[str, Any]) -> Reading:
    """As the kernels hold it: zero points only where asymmetric, the index of groups only with `desc_act`. The files
    hold both always."""
    bits, group = width(found.get("bits", 4)), whole(found, "group_size", 128)
    form = grouped(
        bits,
        None if group < 1 else group,
        zeros=found.get("sym") is False,
        index=found.get("desc_act") is True,
        source="GPTQ, arXiv:2210.17323",
    )
    name: MatrixFormat = "int8-gptq" if bits == 8 else "int4-gptq"
    name, scheme = everything(name, form, found, head=found.get("lm_head") is True)
    dynamic = found.get("dynamic")
    left_out = tuple(f"re:{key[2:]}" for key in dynamic if key.startswith("-:")) if isinstance(dynamic, Mapping) else ()
    return name, scheme.model_copy(update={"skip": (*scheme.skip, *left_out)})


def awq(found: Mapping[str, Any]) -> Reading:
    """4-bit weights and zero points with a 16-bit scale a group."""
    bits = width(found.get("bits", found.get("w_bit", 4)))
    group = whole(found, "group_size", whole(found, "q_group_size", 128))
    zeros = found.get("zero_point") is not False
    form = grouped(bits, None if group < 1 else group, zeros=zeros, source="AWQ, arXiv:2306.00978")
    return everything("int4", form, found)


def bitsandbytes(found: Mapping[str, Any]) -> Reading:
    """NF4 with or without double quantization, or 8 bits with a scale a row."""
    if found.get("load_in_8bit") is True:
        return everything("int8-bnb", FORMATS["int8-bnb"], found)
    name: MatrixFormat = "nf4-dq" if found.get("bnb_4bit_use_double_quant") is True else "nf4"
    return everything(name, FORMATS[name], found)


def mxfp4(found: Mapping[str, Any]) -> Reading:
    """gpt-oss: the routed experts."""
    name, scheme = everything("mxfp4", FORMATS["mxfp4"], found)
    return name, scheme.model_copy(update={"components": EXPERTS})


def compressed_tensors(found: Mapping[str, Any]) -> Reading:
    """One format for each group of modules: those of `targets`, of which `Linear` are all."""
    groups = found.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise Unread(Message("config_groups is {groups}, not an object of groups.", groups=shown(groups)))
    rules, names = [], []
    for group in groups.values():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            continue  # activations or the cache only
        name, form = compressed_form(weights)
        targets = texts(group.get("targets"))
        rules.append(Rule(form=form, targets=() if "Linear" in targets else targets))
        names.append(name)
    if not rules:
        raise Unread(Message("no group of config_groups says how weights are stored."))
    rules.sort(key=lambda rule: not rule.targets)  # what is named goes before all the rest
    return names[0], Scheme(rules=tuple(rules), skip=skipped(found))


def compressed_form(weights: Mapping[str, Any]) -> tuple[MatrixFormat, Format]:
    """`weights` of a group: bits, int or float, and what shares a scale."""
    bits, kind, strategy = width(weights.get("num_bits")), weights.get("type", "int"), weights.get("strategy")
    group, zeros = weights.get("group_size"), weights.get("symmetric") is False
    across = group if type(group) is int and group > 0 else None
    if kind == "float" and bits == 4:
        name: MatrixFormat = "mxfp4" if across == 32 else "nvfp4"
        return name, FORMATS[name]
    if kind == "float" and bits == 8:
        block = weights.get("block_structure")
        if (
            strategy == "block"
            and isinstance(block, list)
            and len(block) == 2
            and all(type(s) is int and s > 0 for s in block)
        ):
            return "fp8", replace(FORMATS["fp8"], block=(block[0], block[1]))
        name = "fp8-tensor" if strategy == "tensor" else "fp8-channel"
        return name, FORMATS[name]
    if kind == "int" and bits == 8 and strategy in ("channel", "tensor"):
        return "int8", FORMATS["int8"]
    if kind == "int":
        form = grouped(bits, across, zeros=zeros, source="compressed-tensors pack-quantized")
        form = replace(form, matrix_bits=2 * 64)  # weight_shape
        return ("int8-gptq" if bits == 8 else "int4"), form
    raise Unread(Message("weights of {bits} bits of type {kind} are not known.", bits=bits, kind=shown(kind)))


def modelopt(found: Mapping[str, Any]) -> Reading:
    """NVIDIA ModelOpt: one algorithm for all, or one for each module."""
    inner = found.get("quantization")
    merged = {**found, **inner} if isinstance(inner, Mapping) else dict(found)
    if isinstance(merged.get("config_groups"), Mapping):
        name, scheme = compressed_tensors(merged)
        return name, scheme.model_copy(update={"rules": tuple(with_input_scale(rule) for rule in scheme.rules)})
    layers = merged.get("quantized_layers")
    if merged.get("quant_algo") == "MIXED_PRECISION" and isinstance(layers, Mapping) and layers:
        by_name: dict[MatrixFormat, list[str]] = {}
        for module, how in layers.items():
            by_name.setdefault(algorithm(how.get("quant_algo") if isinstance(how, Mapping) else None), []).append(
                module
            )
        rules = tuple(with_input_scale(Rule(form=FORMATS[n], targets=tuple(m))) for n, m in by_name.items())
        most = max(by_name, key=lambda n: len(by_name[n]))
        return most, Scheme(rules=rules, skip=skipped(merged), components=LINEARS | {"lm_head"})
    name = algorithm(merged.get("quant_algo"))
    return everything(name, with_input_scale(Rule(form=FORMATS[name])).form, merged)


def algorithm(name: Any) -> MatrixFormat:
    if not isinstance(name, str) or name not in ALGORITHMS:
        raise Unread(
            Message("quant_algo is {name}, which is none of {list}.", name=shown(name), list=", ".join(ALGORITHMS))
        )
    return ALGORITHMS[name]


def with_input_scale(rule: Rule) -> Rule:
    """Its matrices also hold a scale for their inputs."""
    bits = rule.form.matrix_bits
    return rule.model_copy(update={"form": replace(rule.form, matrix_bits=bits + 32)}) if bits else rule


def quark(found: Mapping[str, Any]) -> Reading:
    """AMD Quark: `global_quant_config.weight`, and `layer_quant_config` for single modules."""
    overall = found.get("global_quant_config")
    layers = found.get("layer_quant_config")
    name, form = quark_form(overall)
    rules = [
        Rule(form=quark_form(how)[1], targets=(module,))
        for module, how in (layers.items() if isinstance(layers, Mapping) else ())
    ]
    return name, Scheme(rules=(*rules, Rule(form=form)), skip=skipped(found))


def quark_form(how: Any) -> tuple[MatrixFormat, Format]:
    weight = how.get("weight") if isinstance(how, Mapping) else None
    weight = weight[0] if isinstance(weight, list) and weight else weight
    if not isinstance(weight, Mapping):
        raise Unread(Message("global_quant_config does not say how weights are stored."))
    dtype, scheme, group = weight.get("dtype"), weight.get("qscheme"), weight.get("group_size")
    if dtype == "fp8_e4m3":
        name: MatrixFormat = "fp8-channel" if scheme == "per_channel" else "fp8-tensor"
    elif dtype == "fp4" and group == 32:
        name = "mxfp4"
    elif dtype == "int8":
        name = "int8"
    elif dtype in ("int4", "uint4") and type(group) is int and group > 0:
        return "int4", grouped(4, group, zeros=dtype == "uint4", source="AMD Quark")
    else:
        raise Unread(Message("weights of dtype {dtype} are not known.", dtype=shown(dtype)))
    return name, FORMATS[name]


READERS: dict[str, Callable[[Mapping[str, Any]], Reading]] = {
    "fp8": fp8,
    "fbgemm_fp8": fbgemm,
    "gptq": gptq,
    "gptq_marlin": gptq,
    "auto-round": gptq,
    "awq": awq,
    "awq_marlin": awq,
    "bitsandbytes": bitsandbytes,
    "mxfp4": mxfp4,
    "compressed-tensors": compressed_tensors,
    "modelopt": modelopt,
    "modelopt_fp4": modelopt,
    "quark": quark,
}
