"""What TensorRT-LLM's PyTorch backend runs: GPUs and formats where its documentation says so; families, formats, and
layouts of its attention data parallelism that it refuses."""

from collections.abc import Iterator

from calc.errors import Message, Refusal
from calc.formats import FLOATS, CacheFormat, WeightFormat
from calc.hardware.engine_rules import EngineSupport, FormatNeeds, PlatformNeeds, version
from calc.hardware.format_rules import CUDA, WAYS
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture

HARDWARE = "https://nvidia.github.io/TensorRT-LLM/supported-hardware.html"
QUANTIZATION = "https://nvidia.github.io/TensorRT-LLM/1.3.0rc27/features/quantization.html"
GPT_OSS = "https://github.com/SemiAnalysisAI/InferenceX/blob/843c6254ff69b567f772f6a5fd97675af3d04431/configs"

SUPPORT = EngineSupport(
    title="TensorRT-LLM",
    platforms={"cuda": PlatformNeeds(least="8.0", source=HARDWARE)},
    formats={
        "fp8": FormatNeeds(least="8.9", listed=CUDA, source=QUANTIZATION),
        "awq": FormatNeeds(least="8.0", listed=CUDA, source=QUANTIZATION),
        "gptq": FormatNeeds(least="8.0", listed=CUDA, source=QUANTIZATION),
        "mxfp8": FormatNeeds(least="10.0", listed=CUDA, source=QUANTIZATION),
        "mxfp4": FormatNeeds(least="9.0", listed=CUDA, source=GPT_OSS),  # gpt-oss on H200; the table says Blackwell
        "nvfp4": FormatNeeds(least="10.0", listed=CUDA, source=QUANTIZATION),
    },
)


SERVED = frozenset(
    "afmoe cohere2 deepseek_v3 deepseek_v32 deepseek_v4 exaone4 exaone_moe gemma3_text gemma4_text gemma4_unified_text "
    "glm4_moe glm_moe_dsa gpt_oss hunyuan_v1_dense hunyuan_v1_moe inkling_text kimi_k2 kimi_linear laguna llama "
    "llama4_text minimax_m2 minimax_m3_vl_text ministral3 mistral mixtral mllama_text_model nemotron nemotron-nas "
    "nemotron_h phi3 phi4_multimodal qwen2 qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3 qwen3_5_moe_text qwen3_5_text "
    "qwen3_moe qwen3_next qwen3_vl_moe_text qwen3_vl_text seed_oss starcoder2 step3p5".split()
)
"""Model types that its PyTorch backend serves: `MODEL_ARCH_TO_MODULE` of `_torch/models/_arch_index.py`, and
nvidia.github.io/TensorRT-LLM/models/supported-models.html without those that the AutoDeploy backend serves."""
WITH_IMAGES = frozenset(
    "exaone4_5 gemma3 gemma4 gemma4_unified inkling_mm_model kimi_k25 kimi_k3 llama4 llava_next minicpmv4_6 "
    "minimax_m3_vl mistral3 mllama nemotron_h_omni phi4_multimodal qwen2_5_vl qwen2_vl qwen3_5 qwen3_5_moe qwen3_vl "
    "qwen3_vl_moe step3p7".split()
)
"""Those of whole models with encoders (`MULTIMODAL_MODEL_TYPE_TO_MODULE`): of others not even the language model is
read."""
CACHES: tuple[CacheFormat, ...] = ("bf16", "fp16", "fp8")
"""Formats of the cache (`KvCacheConfig.dtype`), without nvfp4, which takes scales of a calibration."""
UNTIL_HOPPER = frozenset({"awq", "gptq"})
"""Ways of storing weights for which the documentation's table of hardware has no Blackwell."""
BLACKWELL = (10, 0)


def runs_format(weights: WeightFormat) -> bool:
    """Whether it computes with weights in this format (the table of `features/quantization.html`): in 16 bits, in those
    of ModelOpt, AWQ and GPTQ."""
    return weights in FLOATS or WAYS.get(weights) in SUPPORT.formats


def unserved(architecture: Architecture, weights: WeightFormat, kv: CacheFormat) -> Iterator[Refusal]:
    """Families and formats that no GPU changes."""
    engine, vision = SUPPORT.title, architecture.vision
    foreign = vision is not None and vision.wrapper not in ("", *WITH_IMAGES)
    family = vision.wrapper if vision is not None and foreign else architecture.model_type
    if foreign or family not in SERVED:
        sentence = "{engine}'s PyTorch backend does not serve models of the family {family}."
        yield Refusal(Message(sentence, engine=engine, family=family), "engine")
    if not runs_format(weights):
        sentence = "{engine}'s PyTorch backend does not run weights in {format}."
        yield Refusal(Message(sentence, engine=engine, format=weights), "weights")
    if kv not in CACHES:
        sentence = "{engine} has no cache in {kv}; fp8 is one of its own."
        yield Refusal(Message(sentence, engine=engine, kv=kv), "kv", ["fp8"])


def unlisted_format(weights: WeightFormat, gpu: GPU) -> Iterator[Refusal]:
    """Formats without kernels on newer GPUs."""
    if WAYS.get(weights) in UNTIL_HOPPER and gpu.capability is not None and version(gpu.capability) >= BLACKWELL:
        sentence = "{engine}'s documentation does not list {format} for {gpu}"
        yield Refusal(Message(sentence, engine=SUPPORT.title, format=weights, gpu=gpu.name), "weights")


def mixed_copies(layout: Layout) -> Iterator[Refusal]:
    """Layouts that `enable_attention_dp` has no words for: it makes each tensor-parallel rank a copy (`mapping.py`)."""
    if layout.tp > 1 and layout.dp > 1:
        sentence = "{engine} makes every rank a copy of the attention or none: tp {tp:,} with dp {dp:,} is neither."
        yield Refusal(Message(sentence, engine=SUPPORT.title, tp=layout.tp, dp=layout.dp), "dp", [1])
