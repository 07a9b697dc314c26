"""GPUs on which transformers runs, where its documentation says so."""

from calc.hardware.engine_rules import EngineSupport, PlatformNeeds

TORCH = "https://github.com/pytorch/pytorch/blob/main/RELEASE.md"

SUPPORT = EngineSupport(
    title="transformers",
    platforms={
        "cuda": PlatformNeeds(least="5.0", source=TORCH),
        "rocm": PlatformNeeds(source=TORCH),
        "xpu": PlatformNeeds(source=TORCH),
        "metal": PlatformNeeds(source=TORCH),
        "tpu": PlatformNeeds(plugin="optimum-tpu", source="https://github.com/huggingface/optimum-tpu"),
        "gaudi": PlatformNeeds(plugin="optimum-habana", source="https://github.com/huggingface/optimum-habana"),
        "neuron": PlatformNeeds(plugin="optimum-neuron", source="https://github.com/huggingface/optimum-neuron"),
    },
)
