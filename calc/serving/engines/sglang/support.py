"""GPUs and formats of weights on which SGLang runs, where its documentation says so."""

from calc.hardware.engine_rules import EngineSupport, FormatNeeds, PlatformNeeds
from calc.hardware.format_rules import CUDA

INSTALLATION = (
    "https://github.com/sgl-project/sglang/blob/010db98cd4aa2c3b333e5d7fe5c23f85fa18b984/docs/get_started/install.md"
)
INSTALLATION_AMD = (
    "https://github.com/sgl-project/sglang/blob/0175ceecc13527893407213998a7f449a113f5a7/docs/platforms/amd_gpu.md"
)
QUANTIZATION = "https://docs.sglang.io/docs/advanced_features/quantization"

SUPPORT = EngineSupport(
    title="SGLang",
    platforms={
        "cuda": PlatformNeeds(least="7.5", source=INSTALLATION),  # FlashInfer's least
        "rocm": PlatformNeeds(among=frozenset({"gfx942", "gfx950"}), source=INSTALLATION_AMD),
        "tpu": PlatformNeeds(plugin="sglang-jax", source="https://github.com/sgl-project/sglang-jax"),
    },
    formats={
        "nvfp4": FormatNeeds(least="10.0", source=QUANTIZATION),
        "gguf": FormatNeeds(listed=CUDA, source=QUANTIZATION),
    },
)
