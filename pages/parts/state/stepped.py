"""Training steps side by side: the one on screen first, then those that are kept, on the same GPUs."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from calc import ConfigError
from calc.errors import Message
from calc.time import ComparedStep, StepComparison, compared_steps
from pages.parts.state.compared import LETTERS
from pages.parts.state.published import Published, published
from pages.parts.state.query import KEPT_STEP, decode, encode
from pages.parts.state.scenario import LONGEST_STEP, MOST_OTHERS, Scenario, Source, places
from pages.parts.state.url import add
from pages.parts.state.weighed import Trained, changed, trained


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
    """All steps with the models that the session has read."""
    return other_steps(scenario, trained(scenario), published)


def other_steps(scenario: Scenario, first: Trained, about: Callable[[Source], Published]) -> Stepped:
    """A step and those that are kept next to it. `about` reads a model."""
    others = tuple(kept_step(text, scenario, about) for text in scenario.comparison.steps)
    weighed = [(answer.architecture, answer.report) for answer in (first, *others) if answer.error is None]
    comparison = None
    if first.error is None and scenario.gpu:
        shares = scenario.efficiencies
        comparison = compared_steps(weighed, scenario.chosen_gpus(), edits=shares.edits, node=shares.node)
    parts = {field.name: getattr(first, field.name) for field in fields(Trained)}
    return Stepped(**parts, others=others, comparison=comparison)


def kept_step(text: str, scenario: Scenario, about: Callable[[Source], Published]) -> Trained:
    """A saved step; its error says what of it makes no sense."""
    own, problems = decode(dict(parse_qsl(text)), KEPT_STEP, scenario, lambda source: about(source).settings or {})
    if own.gpu != scenario.gpu:
        problems.append(Message("Steps side by side are on the same GPUs: leave gpu=… out of a step."))
        own = own.model_copy(update={"gpu": scenario.gpu})
    answer = trained(own, changed(own, about(own.source)))
    if not problems or answer.error is not None:
        return answer
    return Trained(own, answer.model, ConfigError(problems[0], "steps"))


def can_keep(scenario: Scenario) -> bool:
    """Whether there is a letter left for the step on screen, and a link has room for it."""
    return len(scenario.comparison.steps) < MOST_OTHERS and len(step_query(scenario)) <= LONGEST_STEP


def keep(scenario: Scenario) -> None:
    """The step as it is under the next letter; for callbacks."""
    add(places(("comparison",))["steps"], step_query(scenario), MOST_OTHERS)
