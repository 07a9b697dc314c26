"""Whether an engine runs on a GPU: by the rules of its folder for a platform and a capability, each with its source."""

from collections.abc import Mapping

from calc.errors import Frozen, Message
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
    """Needs by way of storing weights (`format_rules.WAYS`); its documentation does not limit others."""


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
    return tuple(int(part) for part in capability.split("."))
