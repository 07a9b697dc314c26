"""GPUs on which llama.cpp runs, where its documentation says so."""

from calc.hardware.engine_rules import EngineSupport, PlatformNeeds

BUILD = "https://github.com/ggml-org/llama.cpp/blob/master/docs/build.md"

SUPPORT = EngineSupport(
    title="llama.cpp",
    platforms={
        "cuda": PlatformNeeds(least="5.0", source=BUILD),
        "rocm": PlatformNeeds(source=BUILD),
        "xpu": PlatformNeeds(source=BUILD),
        "metal": PlatformNeeds(source=BUILD),
        "cann": PlatformNeeds(source="https://github.com/ggml-org/llama.cpp/blob/master/docs/backend/CANN.md"),
        "musa": PlatformNeeds(source=BUILD),
    },
)
