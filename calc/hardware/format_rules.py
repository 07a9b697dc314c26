"""Formats of weights that an engine runs on a GPU, where its documentation says so."""

from calc.errors import Message
from calc.formats import KERNELS, WeightFormat
from calc.hardware.engine_rules import EngineSupport, FormatNeeds, version
from calc.hardware.generations import Platform
from calc.hardware.gpu import GPU

CUDA: frozenset[Platform] = frozenset({"cuda"})
ANSWERS: frozenset[Platform] = frozenset({"cuda", "rocm", "xpu", "cann"})
"""Platforms of which it is known; plugins bring the others, with lists of their own."""


def needs_of(gpu: GPU, engine: EngineSupport, weights: WeightFormat) -> FormatNeeds | None:
    """Requirement of an engine on a GPU for weights of this format; None where nothing is known."""
    needs = engine.formats.get(KERNELS.get(weights, ""))
    return needs if gpu.platform in ANSWERS else None


def missing_kernel(gpu: GPU, engine: EngineSupport, weights: WeightFormat) -> Message | None:
    """Why an engine has no kernel on a GPU for weights of this format."""
    needs = needs_of(gpu, engine, weights)
    if needs is not None and gpu.platform in needs.refused:
        return Message(
            "{engine} has no kernels for {format} on {gpu}", engine=engine.title, format=weights, gpu=gpu.name
        )
    if needs is None or gpu.platform != "cuda" or gpu.capability is None:
        return None
    capability = version(gpu.capability)
    if needs.below is not None and capability >= version(needs.below):
        return Message(
            "{engine} runs {format} below compute capability {below}; {gpu} has {capability}",
            engine=engine.title,
            format=weights,
            below=needs.below,
            gpu=gpu.name,
            capability=gpu.capability,
        )
    if needs.least is None or capability >= version(needs.least):
        return None
    return Message(
        "{engine} runs {format} from compute capability {least} on; {gpu} has {capability}",
        engine=engine.title,
        format=weights,
        least=needs.least,
        gpu=gpu.name,
        capability=gpu.capability,
    )


def format_note(gpu: GPU, engine: EngineSupport, weights: WeightFormat) -> Message | None:
    """Further obstacle to weights of this format on a GPU: documentation that is silent, or a plugin."""
    needs = needs_of(gpu, engine, weights)
    if needs is None:
        return None
    title = engine.title
    if gpu.platform not in needs.listed:
        return Message(
            "{engine}'s documentation does not list {format} for {gpu}", engine=title, format=weights, gpu=gpu.name
        )
    if needs.plugin:
        return Message("{engine} runs {format} with {plugin}", engine=title, format=weights, plugin=needs.plugin)
    return None
