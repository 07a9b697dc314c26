"""Configurations side by side: the model on screen first, then the others under the same workload and engine."""

from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from calc import GPU, Memory, Precision, Report
from calc.time import Reply
from pages.parts.state.scenario import MOST_OTHERS, Configuration, Scenario, places
from pages.parts.state.url import add
from pages.parts.state.weighed import Weighed, weighed

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
    known: dict[Any, Column] = st.session_state.get("columns", {})
    columns, now = [Column(LETTERS[0], first, reply=first.speed if first.error is None else None)], {}
    for letter, other in zip(LETTERS[1:], scenario.comparison.others, strict=False):
        key = other.written, scenario.serving, scenario.gpu, scenario.overhead, scenario.efficiencies
        column = known.get(key)
        if column is None or column.answer.error is not None:
            answer = weighed(other.within(scenario))
            alone = replace(answer, laid_out=None)  # the session keeps the figures alone
            column = Column(letter, alone, other, answer.speed if answer.error is None else None)
        now[key] = replace(column, letter=letter)
        columns.append(now[key])
    st.session_state.columns = now
    return Compared(scenario, first.model, first.error, first.result, first.laid_out, tuple(columns))


def compared_anew(scenario: Scenario) -> Compared:
    """All configurations, weighed, which no session keeps; without how fast they answer."""
    first = weighed(scenario)
    others = zip(LETTERS[1:], scenario.comparison.others, strict=False)
    columns = (
        Column(LETTERS[0], first),
        *(Column(letter, weighed(other.within(scenario)), other) for letter, other in others),
    )
    return Compared(scenario, first.model, first.error, first.result, first.laid_out, columns)


def add_current(shown: Precision) -> None:
    """The model on screen with its changes and formats, which stay as they are when the sliders move on; for
    callbacks."""
    scenario: Scenario = st.session_state.scenario
    current = {
        "source": scenario.source,
        "overrides": tuple(scenario.overrides.items()),
        "weights": shown.weights,
        "kv": shown.kv,
    }
    add(places(("comparison",))["with"], Configuration.model_validate(current), MOST_OTHERS)
