"""Storage of a config's checkpoint, by its `quantization_config` and `expert_dtype`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from calc.errors import ConfigError, Message, shown
from calc.formats.format_names import CacheFormat, MatrixFormat, MixFormat, MLXFormat
from calc.formats.mixes import MIXES
from calc.formats.quantization_tools import MLX, MODELOPT, TOOLS, Unread
from calc.formats.scheme import EXPERTS, MAX_PATTERNS, Rule, Scheme, pattern_count, readable
from calc.formats.table import FORMATS

HF_QUANT_CONFIG = "hf_quant_config.json"
"""File in which ModelOpt wrote what later versions write into config.json."""
EXPERT_FORMATS: dict[str, MatrixFormat] = {"fp4": "mxfp4", "fp8": "fp8"}
"""`expert_dtype` of DeepSeek-V4, deepseek-ai/DeepSeek-V4-Pro `inference/model.py`."""


class StatedCache(NamedTuple):
    """Format of the KV cache that a checkpoint's config states, and the tool that wrote it: engines follow some."""

    format: CacheFormat
    tool: str


class Native(NamedTuple):
    """Storage of a checkpoint."""

    name: MatrixFormat | MixFormat | MLXFormat
    """The format of the routed experts, or of most matrices."""
    scheme: Scheme | None = None
    """Details of its config."""
    cache: StatedCache | None = None
    note: Message | None = None
    """Notes on fields that the config leaves open, or that can't be followed."""


def native(config: Mapping[str, Any]) -> Native:
    """Storage of a config's checkpoint; in 16 bits where it is not quantized or can't be read.

    Raises ConfigError for more patterns than can be followed in good time.
    """
    stated = section(config)
    if stated is None:
        return Native("bf16")
    tool = tool_of(stated)
    if tool == "gguf" and stated.get("format") in MIXES:
        return Native(stated["format"])
    if not isinstance(tool, str) or tool not in TOOLS:
        sentence = Message(
            "The quantization method {method} is not known: weights count in 16 bits.", method=shown(tool)
        )
        return Native("bf16", note=sentence)
    try:
        name, scheme, note = TOOLS[tool](stated)
        name, scheme = with_experts(name, scheme, config)
    except Unread as error:
        sentence = Message("The quantization_config can't be followed: {why} Weights count in 16 bits.", why=error.why)
        return Native("bf16", note=sentence)
    names = (*scheme.skip.names, *(name for rule in scheme.rules for name in rule.modules.names))
    if (many := pattern_count(names)) > MAX_PATTERNS:
        sentence = Message(
            "The quantization_config names modules by {many:,} patterns; {most:,} are the most that we follow. Name "
            "them by fewer.",
            many=many,
            most=MAX_PATTERNS,
        )
        raise ConfigError(sentence, "quantization_config")
    unreadable = next((pattern for pattern in names if not readable(pattern)), None)
    if unreadable is not None:
        sentence = Message(
            "The pattern {pattern} in the quantization_config can't be followed: weights count in 16 bits.",
            pattern=shown(unreadable),
        )
        return Native("bf16", note=sentence)
    cache = cache_format(stated)
    return Native(name, scheme, None if cache is None else StatedCache(cache, tool), note)


def section(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The `quantization_config`, wherever the wrapper of a language model keeps it; also compressed-tensors' name."""
    for holder in (config, config.get("text_config")):
        if isinstance(holder, Mapping):
            for key in ("quantization_config", "compression_config", "quantization"):
                if isinstance(holder.get(key), Mapping):
                    return dict(holder[key])
    return None


def with_hf_quant_config(config: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, Any]:
    """A config with what the hf_quant_config.json in its folder says. As in vLLM (`model_loader/weight_utils.py`) the
    config's own quantization_config goes first, unless it says of mixed formats nothing more."""
    stated = section(config)
    mixed = stated is not None and stated.get("quant_algo") == "MIXED_PRECISION" and "quantized_layers" not in stated
    if stated is not None and not mixed:
        return dict(config)
    return {**config, "quantization_config": {"quant_method": MODELOPT, **file}}


def tool_of(stated: Mapping[str, Any]) -> Any:
    """The tool that quantized a checkpoint; its `quant_method`, which some leave out or null."""
    method = stated.get("quant_method")
    if method is not None:
        return MODELOPT if isinstance(method, str) and method.startswith("modelopt") else method
    if "quant_algo" in stated:
        return MODELOPT
    if "group_size" in stated and "bits" in stated:
        return MLX
    return "bitsandbytes" if "load_in_4bit" in stated or "load_in_8bit" in stated else None


def with_experts(
    name: MatrixFormat | MLXFormat, scheme: Scheme, config: Mapping[str, Any]
) -> tuple[MatrixFormat | MLXFormat, Scheme]:
    """The scheme where `expert_dtype` states another format for the routed experts that no rule names."""
    text = config.get("text_config")
    dtype = (text if isinstance(text, Mapping) and "expert_dtype" in text else config).get("expert_dtype")
    if dtype is None:
        return name, scheme
    if not isinstance(dtype, str) or dtype not in EXPERT_FORMATS:
        raise Unread(Message("expert_dtype is {dtype}; fp4 and fp8 are known.", dtype=shown(dtype)))
    form = EXPERT_FORMATS[dtype]
    if form == name:
        return name, scheme
    named = [rule for rule in scheme.rules if rule.modules.names]
    rest = [rule for rule in scheme.rules if not rule.modules.names]
    rules = (*named, Rule(form=FORMATS[form], components=EXPERTS), *rest)
    return (name if named else form), scheme.model_copy(update={"rules": rules})


def cache_format(stated: Mapping[str, Any]) -> CacheFormat | None:
    """Cache format of `kv_cache_scheme` or `kv_cache_quant_algo`; None: the type of the activations."""
    inner = stated.get("quantization")
    for holder in (stated, inner if isinstance(inner, Mapping) else {}):
        for key in ("kv_cache_scheme", "kv_cache_quant_algo"):
            value = holder.get(key)
            if isinstance(value, Mapping):
                value = "FP8" if value.get("num_bits") == 8 and value.get("type") == "float" else None
            if isinstance(value, str) and value.upper() == "FP8":
                return "fp8"
    return None
