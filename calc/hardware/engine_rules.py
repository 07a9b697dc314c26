"""Whether an engine runs on a GPU, and which formats of weights there: by the rules of its folder for a platform and a
capability, each with its source."""

from collections.abc import Mapping

from calc.errors import Frozen, Message
from calc.formats import KERNELS, WeightFormat
from calc.hardware.generations import Platform
from calc.hardware.gpu import GPU


class PlatformNeeds(Frozen):
    """Requirements of an engine on a platform's GPUs."""

    least: str | None = None  # CUDA compute capability
    before: str | None = None  # the least that its older versions asked
    among: frozenset[str] | None = None  # AMD's LLVM targets, Ascend's chips
    plugin: str | None = None  # a package that brings the platform
    source: str


class FormatNeeds(Frozen):
    """Requirements of a weight format on a GPU."""

    least: str | None = None  # CUDA compute capability; None: that of the engine
    below: str | None = None  # the first capability without kernels; None: there is none
    listed: frozenset[Platform] = frozenset({"cuda", "rocm"})  # the documentation names it for these
    refused: frozenset[Platform] = frozenset()  # the plugin of these does not start with it
    plugin: str | None = None
    source: str


class EngineSupport(Frozen):
    """Platforms and formats of an engine."""

    title: str
    platforms: Mapping[Platform, PlatformNeeds]
    formats: Mapping[str, FormatNeeds] = {}
    """Needs by kernel (`KERNELS` of `calc.formats`); its documentation does not limit others."""


def runs(gpu: GPU, engine: EngineSupport) -> bool:
    """Whether some version of the engine runs on this GPU. Of a user's own nothing is known: it is given the doubt."""
    if gpu.platform is None:
        return True
    needs = engine.platforms.get(gpu.platform)
    return needs is not None and _meets(gpu, needs, needs.before or needs.least)


def note(gpu: GPU, engine: EngineSupport) -> Message | None:
    """Why the engine does not run here, or what it takes; None when its current version just does."""
    if gpu.platform is None:
        return None
    title, needs = engine.title, engine.platforms.get(gpu.platform)
    if needs is None and gpu.software:
        return Message("{engine} does not run on {gpu}; {other} does", engine=title, gpu=gpu.name, other=gpu.software)
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
    return tuple(map(int, capability.split(".")))


KNOWN: frozenset[Platform] = frozenset({"cuda", "rocm", "xpu", "cann"})
"""Platforms of which it is known; plugins bring the others, with lists of their own."""


def needs_of(gpu: GPU, engine: EngineSupport, weights: WeightFormat) -> FormatNeeds | None:
    """Requirement of an engine on a GPU for weights of this format; None where nothing is known."""
    needs = engine.formats.get(KERNELS.get(weights, ""))
    return needs if gpu.platform in KNOWN else None


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
