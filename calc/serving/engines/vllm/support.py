"""GPUs and formats of weights on which vLLM runs, where its documentation says so."""

from calc.hardware.engine_rules import EngineSupport, FormatNeeds, PlatformNeeds
from calc.hardware.format_rules import CUDA, WITH_INTEL

INSTALLATION = "https://docs.vllm.ai/en/v0.31.0/getting_started/installation/gpu/"
AMD_TARGETS = frozenset("gfx90a gfx942 gfx950 gfx1100 gfx1101 gfx1150 gfx1151 gfx1200 gfx1201".split())
QUANTIZATION = "https://docs.vllm.ai/en/latest/features/quantization/"
FP8 = "https://docs.vllm.ai/en/v0.32.0/features/quantization/llm_compressor/fp8/"
GGUF = "https://github.com/vllm-project/vllm/blob/06fed1cf05a759ebbea0032a54b4f988d7b63710/docs/features/quantization/gguf.md"
MXFP8 = "https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/layers/quantization/modelopt.py"

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
    },
    formats={
        "fp8": FormatNeeds(least="7.5", source=FP8),  # weights alone, by Marlin, below 8.9
        "int8": FormatNeeds(least="7.5", listed=CUDA, source=QUANTIZATION),
        "awq": FormatNeeds(least="7.5", listed=WITH_INTEL, source=QUANTIZATION),
        "gptq": FormatNeeds(listed=WITH_INTEL, source=QUANTIZATION),
        "bitsandbytes": FormatNeeds(listed=CUDA, source=QUANTIZATION),
        "mxfp8": FormatNeeds(least="8.0", source=MXFP8),  # "Marlin kernel supports MXFP8 on SM80+"
        "mxfp4": FormatNeeds(least="8.0", source=QUANTIZATION),  # "Turing does not support Marlin MXFP4"
        "nvfp4": FormatNeeds(least="7.5", listed=CUDA, source=QUANTIZATION),
        "gguf": FormatNeeds(plugin="vllm-gguf-plugin", source=GGUF),
    },
)
