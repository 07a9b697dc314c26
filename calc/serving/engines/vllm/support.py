"""GPUs and formats of weights on which vLLM runs, where its documentation says so."""

from calc.hardware.engine_rules import EngineSupport, FormatNeeds, PlatformNeeds
from calc.hardware.format_rules import CUDA, WITH_INTEL
from calc.hardware.generations import Platform

INSTALLATION = "https://docs.vllm.ai/en/v0.31.0/getting_started/installation/gpu/"
AMD_TARGETS = frozenset("gfx90a gfx942 gfx950 gfx1100 gfx1101 gfx1150 gfx1151 gfx1200 gfx1201".split())
QUANTIZATION = "https://docs.vllm.ai/en/latest/features/quantization/"
FP8 = "https://docs.vllm.ai/en/v0.32.0/features/quantization/llm_compressor/fp8/"
GGUF = "https://github.com/vllm-project/vllm/blob/06fed1cf05a759ebbea0032a54b4f988d7b63710/docs/features/quantization/gguf.md"
MXFP8 = "https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/layers/quantization/modelopt.py"
ASCEND: frozenset[Platform] = frozenset({"cann"})
"""`vllm_ascend/platform.py` takes ModelSlim's formats and compressed-tensors; its class for fp8 has no method."""

SUPPORT = EngineSupport(
    title="vLLM",
    platforms={
        "cuda": PlatformNeeds(least="7.5", before="7.0", source=INSTALLATION),
        "rocm": PlatformNeeds(among=AMD_TARGETS, source=INSTALLATION),
        "xpu": PlatformNeeds(source=INSTALLATION),
        "metal": PlatformNeeds(plugin="vllm-metal", source="https://github.com/vllm-project/vllm-metal"),
        "tpu": PlatformNeeds(plugin="tpu-inference", source="https://github.com/vllm-project/tpu-inference"),
        "gaudi": PlatformNeeds(plugin="vllm-gaudi", source="https://github.com/vllm-project/vllm-gaudi"),
        "neuron": PlatformNeeds(plugin="vllm-neuron", source="https://github.com/vllm-project/vllm-neuron"),
        "cann": PlatformNeeds(plugin="vllm-ascend", source="https://github.com/vllm-project/vllm-ascend"),
        "musa": PlatformNeeds(plugin="vllm_musa", source="https://github.com/MooreThreads/vllm_musa"),
        "maca": PlatformNeeds(plugin="vLLM-metax", source="https://github.com/MetaX-MACA/vLLM-metax"),
        "dtk": PlatformNeeds(plugin="Hygon's DTK images", source="https://www.cnblogs.com/aidoll/p/19664133"),
    },
    formats={
        "fp8": FormatNeeds(least="7.5", refused=ASCEND, source=FP8),  # weights alone, by Marlin, below 8.9
        "int8": FormatNeeds(least="7.5", listed=CUDA | ASCEND, source=QUANTIZATION),
        "awq": FormatNeeds(least="7.5", listed=WITH_INTEL, source=QUANTIZATION),
        "gptq": FormatNeeds(refused=ASCEND, listed=WITH_INTEL, source=QUANTIZATION),
        "bitsandbytes": FormatNeeds(refused=ASCEND, listed=CUDA, source=QUANTIZATION),
        "mxfp8": FormatNeeds(least="8.0", source=MXFP8),  # "Marlin kernel supports MXFP8 on SM80+"
        "mxfp4": FormatNeeds(least="8.0", refused=ASCEND, source=QUANTIZATION),  # no Marlin on Turing
        "nvfp4": FormatNeeds(least="7.5", refused=ASCEND, listed=CUDA, source=QUANTIZATION),
        "gguf": FormatNeeds(refused=ASCEND, plugin="vllm-gguf-plugin", source=GGUF),
    },
)
