"""Which formats of weights an engine runs on which GPU, where its documentation says so."""

from calc.errors import Frozen, Message
from calc.formats import MIXES, WeightFormat
from calc.hardware.engine_rules import TITLES, EngineName, version
from calc.hardware.generations import Platform
from calc.hardware.gpu import GPU

VLLM = "https://docs.vllm.ai/en/latest/features/quantization/"
VLLM_FP8 = "https://docs.vllm.ai/en/v0.32.0/features/quantization/llm_compressor/fp8/"
VLLM_GGUF = "https://github.com/vllm-project/vllm/blob/06fed1cf05a759ebbea0032a54b4f988d7b63710/docs/features/quantization/gguf.md"
VLLM_MXFP8 = "https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/layers/quantization/modelopt.py"
SGLANG = "https://docs.sglang.io/docs/advanced_features/quantization"


class FormatNeeds(Frozen):
    """What a way of storing weights asks of a GPU."""

    least: str | None = None  # CUDA compute capability; None: that of the engine
    listed: frozenset[Platform] = frozenset({"cuda", "rocm"})  # the documentation names it for these
    plugin: str | None = None
    source: str


CUDA: frozenset[Platform] = frozenset({"cuda"})
WITH_INTEL: frozenset[Platform] = frozenset({"cuda", "xpu"})
ANSWERS: frozenset[Platform] = frozenset({"cuda", "rocm", "xpu"})
"""Platforms that the documentations' tables have; plugins bring the others, with lists of their own."""
NEEDS: dict[EngineName, dict[str, FormatNeeds]] = {
    "vllm": {
        "fp8": FormatNeeds(least="7.5", source=VLLM_FP8),  # weights alone, by Marlin, below 8.9
        "int8": FormatNeeds(least="7.5", listed=CUDA, source=VLLM),
        "awq": FormatNeeds(least="7.5", listed=WITH_INTEL, source=VLLM),
        "gptq": FormatNeeds(listed=WITH_INTEL, source=VLLM),
        "bitsandbytes": FormatNeeds(listed=CUDA, source=VLLM),
        "mxfp8": FormatNeeds(least="8.0", source=VLLM_MXFP8),  # "Marlin kernel supports MXFP8 on SM80+"
        "mxfp4": FormatNeeds(least="8.0", source=VLLM),  # "Turing does not support Marlin MXFP4"
        "nvfp4": FormatNeeds(least="7.5", listed=CUDA, source=VLLM),
        "gguf": FormatNeeds(plugin="vllm-gguf-plugin", source=VLLM_GGUF),
    },
    "sglang": {
        "nvfp4": FormatNeeds(least="10.0", source=SGLANG),
        "gguf": FormatNeeds(listed=CUDA, source=SGLANG),
    },
}
"""By engine and way; what is not here, its documentation does not limit."""
WAYS: dict[WeightFormat, str] = {
    "fp8": "fp8",
    "fp8-channel": "fp8",
    "fp8-tensor": "fp8",
    "int8": "int8",
    "int8-bnb": "bitsandbytes",
    "nf4": "bitsandbytes",
    "nf4-dq": "bitsandbytes",
    "int8-gptq": "gptq",
    "int4-gptq": "gptq",
    "int4": "awq",
    "int4-w4a16": "awq",  # the same kernels
    "mxfp8": "mxfp8",
    "mxfp4": "mxfp4",
    "nvfp4": "nvfp4",
    **dict.fromkeys(MIXES, "gguf"),
}


def needs_of(gpu: GPU, engine: EngineName, weights: WeightFormat) -> FormatNeeds | None:
    """What an engine asks of a GPU for weights of this format; None where nothing is known."""
    needs = NEEDS.get(engine, {}).get(WAYS.get(weights, ""))
    return needs if gpu.platform in ANSWERS else None


def refused_format(gpu: GPU, engine: EngineName, weights: WeightFormat) -> Message | None:
    """Why an engine has no kernel on a GPU for weights of this format."""
    needs = needs_of(gpu, engine, weights)
    if needs is None or needs.least is None or gpu.platform != "cuda" or gpu.capability is None:
        return None
    if version(gpu.capability) >= version(needs.least):
        return None
    return Message(
        "{engine} runs {format} from compute capability {least} on; {gpu} has {capability}",
        engine=TITLES[engine],
        format=weights,
        least=needs.least,
        gpu=gpu.name,
        capability=gpu.capability,
    )


def format_note(gpu: GPU, engine: EngineName, weights: WeightFormat) -> Message | None:
    """What else stands between weights of this format and a GPU: documentation that is silent, or a plugin."""
    needs = needs_of(gpu, engine, weights)
    if needs is None:
        return None
    title = TITLES[engine]
    if gpu.platform not in needs.listed:
        return Message(
            "{engine}'s documentation does not list {format} for {gpu}", engine=title, format=weights, gpu=gpu.name
        )
    if needs.plugin:
        return Message("{engine} runs {format} with {plugin}", engine=title, format=weights, plugin=needs.plugin)
    return None
