"""Models and training steps side by side: the one on screen first, then the others under the same workload and engine,
or on the same GPUs; and several models that share GPUs: the one on screen starts first, then its neighbours in their
order."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import streamlit as st

from calc import GPU, ConfigError, Layout, Memory, Precision, Report
from calc.errors import Message, shown
from calc.options import checked
from calc.serving.engines import ENGINES
from calc.serving.shared_gpus import Neighbour, Server, SharedGPUs, share_gpus
from calc.time import ComparedStep, Reply, StepComparison, compared_steps
from pages.parts.state.published import published
from pages.parts.state.query import KEPT_STEP, Settings, decode, encode
from pages.parts.state.scenario import LONGEST_STEP, MOST_OTHERS, Configuration, Scenario, Source, places
from pages.parts.state.session import PROGRAM, remembered
from pages.parts.state.url import add
from pages.parts.state.weighed import Answer, Model, Trained, Weighed, answering, trained, weighed

LETTERS = "ABCDEF"


@dataclass(frozen=True)
class Column:
    """One configuration with what comes of it."""

    letter: str
    answer: Weighed
    configuration: Configuration | None = None  # None: the model on screen
    reply: Reply | None = None
    """Speed; None where it does not serve."""


@dataclass(frozen=True)
class Compared(Weighed):
    """The model on screen and those compared with it."""

    columns: tuple[Column, ...] = ()

    @property
    def download(self) -> None:
        return None

    @property
    def complete(self) -> tuple[Column, ...]:
        """Columns without an error."""
        return tuple(column for column in self.columns if column.answer.error is None)

    @property
    def place(self) -> int | None:
        """The GPU that memory is compared on, by its place among those chosen: the smallest on which all fit, else the
        largest; None where none is chosen."""
        gpus = self.scenario.chosen_gpus()
        places = sorted(range(len(gpus)), key=lambda place: gpus[place].usable_bytes)

        def fits(place: int) -> bool:
            return all(column.answer.report.verdicts[place].verdict == "fits" for column in self.complete)

        return next(filter(fits, places), places[-1] if places else None)

    @property
    def gpu(self) -> GPU:
        """The GPU that memory is compared on; the first one where none is chosen."""
        return self.scenario.first_gpu() if self.place is None else self.scenario.chosen_gpus()[self.place]

    def memory(self, report: Report) -> Memory:
        """Memory of a configuration on that GPU."""
        return report.memory if self.place is None else report.verdicts[self.place].memory


def compared(scenario: Scenario) -> Compared:
    """All configurations, weighed; those that did not change since the last run are remembered."""
    first = weighed(scenario)
    columns = [Column(LETTERS[0], first, reply=answer_speed(first))]
    for letter, other in zip(LETTERS[1:], scenario.comparison.others, strict=False):
        key = other.written, scenario.serving, scenario.gpu, scenario.overhead, scenario.efficiencies
        answer, reply = remembered(
            "columns",
            key,
            partial(figures, other.within(scenario)),
            is_full=lambda known: len(known) > MOST_OTHERS,
            is_kept=lambda known: known[0].error is None,
        )
        columns.append(Column(letter, answer, other, reply))
    return Compared(scenario, first.model, first.error, first.result, first.laid_out, tuple(columns))


def figures(scenario: Scenario) -> tuple[Weighed, Reply | None]:
    """The figures of a configuration alone, without the calculation behind them, and its speed."""
    answer = weighed(scenario)
    return replace(answer, laid_out=None), answer_speed(answer)


def answer_speed(answer: Weighed) -> Reply | None:
    """Speed of a configuration; None where it does not serve, and for a program, whose answer has none."""
    return None if answer.error is not None or PROGRAM.get() is not None else answer.speed


def add_current(formats: Precision) -> None:
    """The model on screen with its changes and formats, which stay as they are when the sliders move on; for
    callbacks."""
    scenario: Scenario = st.session_state.scenario
    current = {
        "source": scenario.source,
        "overrides": tuple(scenario.overrides.items()),
        "weights": formats.weights,
        "kv": formats.kv,
    }
    add(places(("comparison",))["with"], Configuration.model_validate(current), MOST_OTHERS)


class StepColumn(NamedTuple):
    """A step that could be weighed, with its figures on the GPU of the comparison."""

    letter: str
    answer: Trained
    step: ComparedStep


@dataclass(frozen=True)
class Stepped(Trained):
    """The step on screen, and the others in the order of their letters."""

    others: tuple[Trained, ...] = ()
    comparison: StepComparison | None = None
    """None: no GPU is chosen, or the step on screen can't be weighed."""

    @property
    def download(self) -> StepComparison | None:
        return self.comparison

    @property
    def complete(self) -> list[StepColumn]:
        """Steps that could be weighed, with their figures."""
        complete = [(letter, answer) for letter, answer in self.lettered if answer.error is None]
        steps = () if self.comparison is None else self.comparison.steps
        return [StepColumn(*pair, step) for pair, step in zip(complete, steps, strict=False)]

    @property
    def lettered(self) -> list[tuple[str, Trained]]:
        """All steps with their letters."""
        return list(zip(LETTERS, (self, *self.others), strict=False))


def step_query(scenario: Scenario) -> str:
    """Query of the step on screen in links."""
    return urlencode({"model": scenario.source.model} | encode(scenario, KEPT_STEP), safe="/,:")


def stepped(scenario: Scenario) -> Stepped:
    """The step on screen, and those that are kept next to it."""
    first = trained(scenario)
    others = tuple(kept_step(text, scenario) for text in scenario.comparison.steps)
    weighed = [(answer.architecture, answer.report) for answer in (first, *others) if answer.error is None]
    comparison = None
    if first.error is None and scenario.gpu:
        comparison = compared_steps(weighed, scenario.chosen_gpus(), scenario.cluster)
    parts = {field.name: getattr(first, field.name) for field in fields(Trained)}
    return Stepped(**parts, others=others, comparison=comparison)


def kept_step(text: str, scenario: Scenario) -> Trained:
    """A saved step; its error says what of it makes no sense."""
    own, problems = step_scenario(text, scenario, lambda source: published(source).settings or {})
    if own.gpu != scenario.gpu:
        problems.append(Message("Steps side by side are on the same GPUs: leave gpu=… out of a step."))
        own = own.model_copy(update={"gpu": scenario.gpu})
    answer = trained(own)
    if not problems or answer.error is not None:
        return answer
    return Trained(own, answer.model, ConfigError(problems[0], "steps"))


def step_scenario(text: str, scenario: Scenario, settings: Settings) -> tuple[Scenario, list[Message]]:
    """The scenario of a saved step, and a sentence for each part of it that makes no sense."""
    return decode(dict(parse_qsl(text)), KEPT_STEP, scenario, settings)


def can_keep(scenario: Scenario) -> bool:
    """Whether there is a letter left for the step on screen, and a link has room for it."""
    return len(scenario.comparison.steps) < MOST_OTHERS and len(step_query(scenario)) <= LONGEST_STEP


def keep(scenario: Scenario) -> None:
    """The step as it is under the next letter; for callbacks."""
    add(places(("comparison",))["steps"], step_query(scenario), MOST_OTHERS)


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


@answering(Shared)
def shared(scenario: Scenario, model: Model) -> Mapping[str, Any]:
    """A model and its neighbours on each of the chosen GPUs."""
    choice = scenario.serving
    engine, workload = choice.started(), checked(choice.workload)
    formats, named = (choice.weights, choice.kv), (model.identifier(scenario), model.config or {})
    first = Server(*named, engine, workload, *formats, served=model.served(scenario))
    servers = [first, *(server(other, choice.engine) for other in scenario.sharing.share_with)]
    layout = choice.by_hand or Layout(tp=choice.num_gpus or 1)
    how = layout, scenario.overhead, scenario.sharing.sleep_level
    return {"results": tuple(share_gpus(servers, gpu, *how) for gpu in scenario.chosen_gpus())}


def server(other: Neighbour, engine: str) -> Server:
    """A neighbour's server, with the engine's defaults. Raises ConfigError."""
    known = published(Source(model=other.model))
    if known.error is not None or known.config is None:
        why = Message("it can't be read") if known.error is None else known.error.message
        raise ConfigError(Message("{name}: {why}", name=shown(other.model), why=why), "share_with")
    return Server(other.model, known.config, ENGINES[engine](), other.workload, other.weights)
