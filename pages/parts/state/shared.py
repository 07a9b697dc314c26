"""Several models on the same GPUs: the one on screen starts first, then its neighbours in their order."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from calc import ConfigError, Layout
from calc.errors import Message, shown
from calc.options import checked
from calc.serving.engines import ENGINES
from calc.serving.shared_gpus import Neighbour, Server, SharedGPUs, share_gpus
from pages.parts.state.published import Published, published
from pages.parts.state.scenario import Scenario, Source
from pages.parts.state.weighed import Answer, Model, answered, read


@dataclass(frozen=True)
class Shared(Answer):
    """The servers on each of the chosen GPUs."""

    results: tuple[SharedGPUs, ...] = ()

    @property
    def download(self) -> SharedGPUs | None:
        return self.focus

    @property
    def focus(self) -> SharedGPUs | None:
        """The GPU that the figures are of: the smallest that holds all of them; else the one that holds most, and of
        those the largest."""
        holding = [result for result in self.results if result.fits]
        if holding:
            return min(holding, key=lambda result: result.usable)
        return max(self.results, key=lambda result: (result.started, result.usable), default=None)


def shared(scenario: Scenario) -> Shared:
    """The models that the session has read."""
    return shared_by(scenario, read(scenario), published)


def shared_by(scenario: Scenario, model: Model, about: Callable[[Source], Published]) -> Shared:
    """A model and its neighbours on each of the chosen GPUs. `about` reads a neighbour."""
    choice = scenario.serving

    def compute() -> Mapping[str, Any]:
        engine, workload = choice.started(), checked(choice.workload)
        formats, named = (choice.weights, choice.kv), (model.identifier(scenario), model.config or {})
        first = Server(*named, engine, workload, *formats, served=model.served(scenario))
        servers = [first, *(server(other, choice.engine, about) for other in scenario.sharing.share_with)]
        layout = choice.by_hand or Layout(tp=choice.num_gpus or 1)
        how = layout, scenario.overhead, scenario.sharing.sleep_level
        return {"results": tuple(share_gpus(servers, gpu, *how) for gpu in scenario.chosen_gpus())}

    return answered(Shared, scenario, model, compute)


def server(other: Neighbour, engine: str, about: Callable[[Source], Published]) -> Server:
    """A neighbour's server, with the engine's defaults. Raises ConfigError."""
    known = about(Source(model=other.model))
    if known.error is not None or known.config is None:
        why = Message("it can't be read") if known.error is None else known.error.message
        raise ConfigError(Message("{name}: {why}", name=shown(other.model), why=why), "share_with")
    return Server(other.model, known.config, ENGINES[engine](), other.workload, other.weights)
