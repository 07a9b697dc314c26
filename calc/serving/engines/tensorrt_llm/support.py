"""GPUs and formats of weights on which TensorRT-LLM's PyTorch backend runs, where its documentation says so."""

from calc.hardware.engine_rules import EngineSupport, FormatNeeds, PlatformNeeds
from calc.hardware.format_rules import CUDA

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
