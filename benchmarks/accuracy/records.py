"""Public logs -> what was run: a config, settings and what was measured.

The records are those of measured.json: what people's GPUs reported, each with its address.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from calc import Architecture, Layout, Precision
from calc.families.vision_fields import uncounted
from calc.formats import FORMATS as STORED
from calc.formats import WeightFormat
from calc.model.mla import LatentAttention
from presets import models

Config = dict[str, Any]


def qwen2(hidden: int, inner: int, layers: int, q: int, kv: int, vocab: int, *, tied: bool = False) -> Config:
    return llama(hidden, inner, layers, q, kv, vocab, 32_768, model_type="qwen2", tie_word_embeddings=tied)


def llama(hidden: int, inner: int, layers: int, q: int, kv: int, vocab: int, positions: int, **more: Any) -> Config:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": q,
        "num_key_value_heads": kv,
        "vocab_size": vocab,
        "max_position_embeddings": positions,
        **more,
    }


def qwen_vl(generation: str, text: Config, **tower: Any) -> Config:
    """Qwen2-VL and Qwen2.5-VL: their towers differ in the feed-forward only."""
    shared = {"depth": 32, "num_heads": 16, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}
    text = {name: value for name, value in text.items() if name != "model_type"}
    return {
        "model_type": generation,
        "text_config": {**text, "model_type": f"{generation}_text"},
        "tie_word_embeddings": text["tie_word_embeddings"],
        "vision_config": {"model_type": generation, **shared, **tower},
    }


def qwen2_5_vl(out: int, text: Config, inner: int = 3456) -> Config:
    tower = {"hidden_size": 1280, "intermediate_size": inner, "in_chans": 3, "out_hidden_size": out}
    return qwen_vl("qwen2_5_vl", {**text, "max_position_embeddings": 128_000}, **tower)


GLM_AIR: Config = {
    "model_type": "glm4_moe",
    "hidden_size": 4096,
    "num_hidden_layers": 46,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 10_944,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 1,
    "attention_bias": True,
    "use_qk_norm": False,
    "max_position_embeddings": 131_072,
    "vocab_size": 151_552,
    "tie_word_embeddings": False,
}
GLM_VISION: Config = {
    "model_type": "glm4v_moe",
    "depth": 24,
    "hidden_size": 1536,
    "intermediate_size": 10_944,
    "num_heads": 12,
    "in_channels": 3,
    "image_size": 336,
    "out_hidden_size": 4096,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
QWEN3_NEXT: Config = {
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "intermediate_size": 5120,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "full_attention_interval": 4,
    "max_position_embeddings": 262_144,
    "vocab_size": 151_936,
}
EXTRA: dict[str, Config] = {  # as their config.json has it; what is no preset
    "codellama-34b": llama(8192, 22_016, 48, 64, 8, 32_000, 16_384),
    "codellama-7b": llama(4096, 11_008, 32, 32, 32, 32_016, 16_384),
    "codellama-13b": llama(5120, 13_824, 40, 40, 40, 32_016, 16_384),
    "llama-2-13b": llama(5120, 13_824, 40, 40, 40, 32_000, 4096),
    "llama-3-8b": llama(4096, 14_336, 32, 32, 8, 128_256, 8192),
    "llama-3-70b": llama(8192, 28_672, 80, 64, 8, 128_256, 8192),
    "mistral-7b-v0.2": llama(4096, 14_336, 32, 32, 8, 32_000, 32_768, model_type="mistral"),
    "mistral-7b-v0.3": llama(4096, 14_336, 32, 32, 8, 32_768, 32_768, model_type="mistral"),
    "deepseek-r1-distill-qwen-1.5b": {**qwen2(1536, 8960, 28, 12, 2, 151_936), "max_position_embeddings": 131_072},
    "deepseek-r1-distill-qwen-7b": {**qwen2(3584, 18_944, 28, 28, 4, 152_064), "max_position_embeddings": 131_072},
    "deepseek-r1-distill-qwen-14b": {**qwen2(5120, 13_824, 48, 40, 8, 152_064), "max_position_embeddings": 131_072},
    "deepseek-r1-distill-qwen-32b": {**qwen2(5120, 27_648, 64, 40, 8, 152_064), "max_position_embeddings": 131_072},
    "qwq-32b": qwen2(5120, 27_648, 64, 40, 8, 152_064),
    "qwen2-7b": qwen2(3584, 18_944, 28, 28, 4, 152_064),
    "qwen2-72b": qwen2(8192, 29_568, 80, 64, 8, 152_064),
    "qwen2-1.5b": qwen2(1536, 8960, 28, 12, 2, 151_936, tied=True),
    "qwen2-0.5b": qwen2(896, 4864, 24, 14, 2, 151_936, tied=True),
    "glm-4.5-air": GLM_AIR,
    "glm-4.5v": {
        "model_type": "glm4v_moe",
        "text_config": {**GLM_AIR, "model_type": "glm4v_moe_text", "max_position_embeddings": 65_536},
        "vision_config": GLM_VISION,
        "tie_word_embeddings": False,
    },
    "qwen2-vl-7b": qwen_vl(
        "qwen2_vl", qwen2(3584, 18_944, 28, 28, 4, 152_064), embed_dim=1280, hidden_size=3584, mlp_ratio=4, in_chans=3
    ),
    "qwen2.5-vl-3b": qwen2_5_vl(2048, qwen2(2048, 11_008, 36, 16, 2, 151_936, tied=True), inner=3420),
    "qwen2.5-vl-7b": qwen2_5_vl(3584, qwen2(3584, 18_944, 28, 28, 4, 152_064), inner=3420),
    "qwen2.5-vl-32b": qwen2_5_vl(5120, qwen2(5120, 27_648, 64, 40, 8, 152_064)),
    "qwen2.5-vl-72b": qwen2_5_vl(8192, qwen2(8192, 29_568, 80, 64, 8, 152_064)),
    "qwen3-next-80b-a3b": QWEN3_NEXT,
    "exaone-4.0-32b": llama(5120, 27_392, 64, 40, 8, 102_400, 131_072, model_type="exaone4"),
    "opt-2.7b": {
        "model_type": "opt",
        "hidden_size": 2560,
        "ffn_dim": 10_240,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 2560,
        "vocab_size": 50_272,
    },
    "opt-13b": {
        "model_type": "opt",
        "hidden_size": 5120,
        "ffn_dim": 20_480,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 5120,
        "vocab_size": 50_272,
    },
}
ALIASES = {"llama-3.3-70b": "llama-3.1-70b", "deepseek-r1-distill-llama-8b": "llama-3.1-8b"}
ALIASES |= {"deepseek-r1-distill-llama-70b": "llama-3.1-70b", "deepseek-coder-v2-lite": "deepseek-v2-lite"}
ALIASES |= {"kimi-k2": "kimi-k2.5", "mixtral-8x7b": "mixtral-8x7b-v0.1", "mixtral-8x22b": "mixtral-8x22b-v0.1"}
ALIASES |= {"nemotron-nano-9b-v2": "nvidia-nemotron-nano-9b-v2", "2.5-vl": "qwen2-vl-7b"}
"""The same sizes under another name."""
POSITIONS = ((r"qwen3.*2507|qwen3-coder", 262_144), (r"qwen2\.5-(?!coder).*instruct", 32_768))
"""Tuned versions that were made for another length."""
TOWERS = re.compile(r"omni|vision|pixtral|llava|glm-4\.\dv|qwen2(\.5)?-vl|vlm", re.IGNORECASE)
"""Models with towers that are not counted here."""
SUFFIX = re.compile(
    r"[-_](instruct|coder|math|it|chat|base|hf|awq|gptq|fp8|nvfp4|bnb|gguf|int[48]|w\d+a\d+|[48]bit|dynamic|block|preview|bf16|pt"
    r"|thinking|\d{4}|int4-autoround)$",
    re.IGNORECASE,
)
FORMATS: tuple[tuple[str, WeightFormat], ...] = (  # what a record's `quant` begins with -> format
    ("bf16", "bf16"),
    ("fp16", "fp16"),
    ("fp8 (online)", "fp8-tensor"),
    ("fp8", "fp8"),
    ("awq", "int4"),
    ("gptq-int8", "int8-gptq"),
    ("gptq", "int4-w4a16"),
    ("w4a16", "int4-w4a16"),
    ("int8", "int8"),
    ("w8a8", "int8"),
    ("int4", "int4-w4a16"),
    ("bnb-int8", "int8-bnb"),
    ("bnb-nf4", "nf4-dq"),
    ("mxfp4", "mxfp4"),
    ("nvfp4", "nvfp4"),
)
OF_CHECKPOINTS: dict[str, WeightFormat] = {"GLM-4.5V-FP8": "fp8-channel"}
"""Formats of checkpoints whose records say less: vLLM loads this one by compressed_tensors.py, a scale for each output
channel, and so over two GPUs, whose 5,472 columns are no whole tiles of block fp8 (zai-org/GLM-V issue 178)."""

QUANTIZATION: dict[str, Config] = {
    "Gemma-4-31B-IT-NVFP4": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "*.self_attn*"]}
}
"""`quantization_config` of checkpoints that keep more in 16 bits than their format does: NVIDIA's of Gemma 4 31B all
attention, by what those say who quantized it further (huggingface.co/LilaRest/gemma-4-31B-it-NVFP4-turbo)."""


class Run(NamedTuple):
    """One record that says what a figure depends on."""

    record: Mapping[str, Any]
    config: Config
    precision: Precision
    layout: Layout

    @property
    def draft(self) -> bool:
        """Whether the model's own layers for speculation are loaded."""
        return "MTP" in str(self.record.get("note"))

    @property
    def quantized(self) -> bool:
        return self.precision.weights not in ("fp32", "bf16", "fp16")


class LeftOut(NamedTuple):
    record: Mapping[str, Any]
    reason: str


def short(name: str) -> str:
    """A model's name without its maker, and without what says how it was tuned or stored."""
    name = name.rpartition("/")[2].strip().lower().removeprefix("meta-").removesuffix("?")
    while (shorter := SUFFIX.sub("", name)) != name:
        name = shorter
    return name


def resolve(name: str) -> Config | None:
    """The config of a model by the name that a log gives it."""
    key = ALIASES.get(short(name), short(name))
    config = EXTRA.get(key) or next((preset.config for id_, preset in models().items() if short(id_) == key), None)
    if config is None:
        return None
    positions = next((tokens for pattern, tokens in POSITIONS if re.search(pattern, name, re.IGNORECASE)), None)
    return {**config, "max_position_embeddings": positions} if positions and "text_config" not in config else {**config}


def weight_format(record: Mapping[str, Any]) -> WeightFormat | None:
    quant = str(record.get("quant", "")).lower()
    stated = next((form for start, form in FORMATS if quant.startswith(start)), None)
    return OF_CHECKPOINTS.get(str(record["model"]), stated)


def runs(records: list[Mapping[str, Any]], figure: str) -> Iterator[Run | LeftOut]:
    """Each start of an engine whose log states the figure, or why it is of no use."""
    for record in records:
        if record["kind"] == "vllm_startup" and record["measured"].get(figure) is not None:
            yield run(record)


def run(record: Mapping[str, Any]) -> Run | LeftOut:
    name, note = str(record["model"]), str(record.get("note") or "")
    if record["grade"] == "C":
        return LeftOut(record, "doubtful record")
    if "lora" in note.lower():
        return LeftOut(record, "LoRA slots among the weights")
    if re.search(r"EAGLE|draft", note):
        return LeftOut(record, "draft model among the weights")
    if "split not applied" in note:
        return LeftOut(record, "pipeline split not applied")
    if "Ascend" in str(record.get("gpu")):
        return LeftOut(record, "no CUDA allocator")
    version = str(record.get("version") or "")
    if version.startswith("fork"):
        return LeftOut(record, "a fork of vLLM")
    if (record.get("pp") or 1) > 1 and before(version, 0, 8):
        return LeftOut(record, "before vLLM 0.8, which gave the last stage what does not divide")
    form = weight_format(record)
    if form is None:
        return LeftOut(record, "format not stated exactly")
    if form.startswith(("nf4", "int8-bnb")) and TOWERS.search(name):
        return LeftOut(record, "bitsandbytes also quantizes the tower")
    if "unsloth" in str(record.get("quant")).lower():
        return LeftOut(record, "dynamic checkpoint, modules in 16 bits not stated")
    config = resolve(name)
    if config is None:
        return LeftOut(record, "towers that are not counted" if TOWERS.search(name) else f"no config of {name}")
    latent = any(isinstance(m, LatentAttention) for b in Architecture.from_config(config).blocks for m in b.mixers)
    if latent and before(version, 0, 8) and not before(version, 0, 7):
        return LeftOut(record, "vLLM 0.7 multiplied the projections of latent attention out")
    if (tower := uncounted(config)) is not None:
        return LeftOut(record, f"towers that are not counted ({tower})")
    layout = Layout(tp=record.get("tp") or 1, pp=record.get("pp") or 1)
    if form.startswith("int4"):
        group = re.search(r"\bg(\d+)", str(record["quant"]))
        if group is None and not Precision.of(config).checkpoint:
            return LeftOut(record, "size of groups not stated")
        if group is not None:
            method = "awq" if form == "int4" else "gptq"
            config = {**config, "quantization_config": {"quant_method": method, "group_size": int(group[1])}}
    if form == "fp8-channel":
        linear = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}
        stored = {"quant_method": "compressed-tensors", "config_groups": {"group_0": linear}}
        config = {**config, "quantization_config": stored}
    if name in QUANTIZATION:
        config = {**config, "quantization_config": QUANTIZATION[name]}
    native = Precision.of(config)
    same = STORED[native.weights].bits == STORED[form].bits
    return Run(record, config, native if same and native.checkpoint else Precision.of(config, form), layout)


def before(version: str, *limit: int) -> bool:
    """Whether a version, as 0.7.3.dev, is below another."""
    numbers = [int(part) for part in re.findall(r"\d+", version)[: len(limit)]]
    return bool(numbers) and numbers < list(limit)
