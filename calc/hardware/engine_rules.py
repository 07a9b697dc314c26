"""Which engine runs on which GPU: a rule by platform and capability, each with its source."""

from typing import Literal

from calc.errors import Frozen, Message
from calc.hardware.generations import Platform
from calc.hardware.gpu import GPU

EngineName = Literal["vllm", "sglang", "transformers", "llamacpp"]
TITLES: dict[EngineName, str] = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "transformers": "transformers",
    "llamacpp": "llama.cpp",
}


class PlatformNeeds(Frozen):
    """What an engine asks of a platform's GPUs."""

    least: str | None = None  # CUDA compute capability
    before: str | None = None  # the least that its older versions asked
    among: frozenset[str] | None = None  # AMD's LLVM targets
    plugin: str | None = None  # a package that brings the platform
    source: str


VLLM = "https://docs.vllm.ai/en/v0.31.0/getting_started/installation/gpu/"
SGLANG = (
    "https://github.com/sgl-project/sglang/blob/010db98cd4aa2c3b333e5d7fe5c23f85fa18b984/docs/get_started/install.md"
)
SGLANG_AMD = (
    "https://github.com/sgl-project/sglang/blob/0175ceecc13527893407213998a7f449a113f5a7/docs/platforms/amd_gpu.md"
)
TORCH = "https://github.com/pytorch/pytorch/blob/main/RELEASE.md"
LLAMACPP = "https://github.com/ggml-org/llama.cpp/blob/master/docs/build.md"
VLLM_AMD = frozenset("gfx90a gfx942 gfx950 gfx1100 gfx1101 gfx1150 gfx1151 gfx1200 gfx1201".split())

RUNS: dict[EngineName, dict[Platform, PlatformNeeds]] = {
    "vllm": {
        "cuda": PlatformNeeds(least="7.5", before="7.0", source=VLLM),
        "rocm": PlatformNeeds(among=VLLM_AMD, source=VLLM),
        "xpu": PlatformNeeds(source=VLLM),
        "metal": PlatformNeeds(plugin="vllm-metal", source="https://github.com/vllm-project/vllm-metal"),
        "tpu": PlatformNeeds(plugin="tpu-inference", source="https://github.com/vllm-project/tpu-inference"),
        "gaudi": PlatformNeeds(plugin="vllm-gaudi", source="https://github.com/vllm-project/vllm-gaudi"),
        "neuron": PlatformNeeds(plugin="vllm-neuron", source="https://github.com/vllm-project/vllm-neuron"),
    },
    "sglang": {
        "cuda": PlatformNeeds(least="7.5", source=SGLANG),  # FlashInfer's least
        "rocm": PlatformNeeds(among=frozenset({"gfx942", "gfx950"}), source=SGLANG_AMD),
        "tpu": PlatformNeeds(plugin="sglang-jax", source="https://github.com/sgl-project/sglang-jax"),
    },
    "transformers": {
        "cuda": PlatformNeeds(least="5.0", source=TORCH),
        "rocm": PlatformNeeds(source=TORCH),
        "xpu": PlatformNeeds(source=TORCH),
        "metal": PlatformNeeds(source=TORCH),
        "tpu": PlatformNeeds(plugin="optimum-tpu", source="https://github.com/huggingface/optimum-tpu"),
        "gaudi": PlatformNeeds(plugin="optimum-habana", source="https://github.com/huggingface/optimum-habana"),
        "neuron": PlatformNeeds(plugin="optimum-neuron", source="https://github.com/huggingface/optimum-neuron"),
    },
    "llamacpp": {
        "cuda": PlatformNeeds(least="5.0", source=LLAMACPP),
        "rocm": PlatformNeeds(source=LLAMACPP),
        "xpu": PlatformNeeds(source=LLAMACPP),
        "metal": PlatformNeeds(source=LLAMACPP),
    },
}


def runs(gpu: GPU, engine: EngineName) -> bool:
    """Whether some version of the engine runs on this GPU. Of a user's own nothing is known: it is given the doubt."""
    if gpu.platform is None:
        return True
    needs = RUNS[engine].get(gpu.platform)
    return needs is not None and _meets(gpu, needs, needs.before or needs.least)


def note(gpu: GPU, engine: EngineName) -> Message | None:
    """Why the engine does not run here, or what it takes; None when its current version just does."""
    if gpu.platform is None:
        return None
    title, needs = TITLES[engine], RUNS[engine].get(gpu.platform)
    if needs is None:
        return Message("{engine} does not run on {gpu}", engine=title, gpu=gpu.name)
    if needs.plugin:
        return Message("{engine} runs on {gpu} with {plugin}", engine=title, gpu=gpu.name, plugin=needs.plugin)
    if _meets(gpu, needs, needs.least):
        return None
    if needs.among:
        return Message(
            "{engine} does not run on {gpu}: its target {capability} is not among {among}",
            engine=title,
            gpu=gpu.name,
            capability=gpu.capability,
            among=", ".join(sorted(needs.among)),
        )
    template = "{engine} needs compute capability {least}; {gpu} has {capability}"
    if _meets(gpu, needs, needs.before):
        template = "{engine} now needs compute capability {least}: {gpu}, with {capability}, takes an older version"
    return Message(template, engine=title, least=needs.least, gpu=gpu.name, capability=gpu.capability)


def _meets(gpu: GPU, needs: PlatformNeeds, least: str | None) -> bool:
    if needs.among is not None:
        return gpu.capability in needs.among
    if needs.least is None:
        return True
    return least is not None and gpu.capability is not None and version(gpu.capability) >= version(least)


def version(capability: str) -> tuple[int, ...]:
    """A compute capability, to be compared."""
    return tuple(int(part) for part in capability.split("."))
