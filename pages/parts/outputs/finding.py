"""What a page has found, in one sentence: its title, and that of the browser's tab; and the figures that decide."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

import streamlit as st

from calc.hardware.custom_gpu import find_gpu
from calc.serving.verdict import Verdict
from calc.time.estimate import Estimate
from calc.time.prices import price_of
from calc.training.methods import METHODS
from calc.training.verdict import TrainingVerdict
from pages.parts import words
from pages.parts.outputs.cards import BADGES
from pages.parts.state.weighed import Answer, Trained, Weighed
from pages.parts.words import say

STRESSED = re.compile(r"\*\*(.+?)\*\*")


def finding(answer: Answer) -> str | None:
    """Whether the model fits, and on what, its verb stressed; None where nothing is weighed."""
    if not isinstance(answer, Weighed | Trained) or answer.error is not None or answer.focus is None:
        return None
    if isinstance(answer, Weighed):
        return verdict_in_words(name(answer), answer.report.verdicts, answer.focus)
    return verdict_in_words(trained_name(answer), answer.report.verdicts, answer.focus)


def name(answer: Answer) -> str:
    """The model, and that it is not as it was published."""
    return say("{name} (changed)", name=answer.model.name) if answer.scenario.overrides else answer.model.name


def trained_name(answer: Trained) -> str:
    """The model and how it is trained."""
    step, objective = answer.report.scenario, answer.report.scenario.objective
    method = words.choice("method", step.workload.method)
    if objective is None:
        return say("{method} of {name}", method=method, name=name(answer))
    loss = words.choice("loss_method", objective.method)
    if not step.workload.trains_base:
        loss = say("{loss} with {method}", loss=loss, method=method)
    if not METHODS[objective.method].generates or not METHODS[objective.method].groups:
        return say("{method} of {name}", method=loss, name=name(answer))
    return say(
        "{loss} of {name} with {n:,} completions of {tokens} tokens",
        loss=loss,
        name=name(answer),
        n=objective.num_generations,
        tokens=words.tokens(objective.completion),
    )


def verdict_in_words(
    what: str, verdicts: Sequence[Verdict] | Sequence[TrainingVerdict], focus: Verdict | TrainingVerdict
) -> str:
    """Qwen3-8B **fits on** 8 of 9 GPUs."""
    number, fits = len(verdicts), sum(verdict.verdict == "fits" for verdict in verdicts)
    gpu = find_gpu(focus.gpu).name if focus.gpus == 1 else f"{focus.gpus:,} × {find_gpu(focus.gpu).name}"
    if fits == number == 2:
        return say("{name} **fits on both** GPUs", name=what)
    if fits and fits == number > 1:
        return say("{name} **fits on all** {n} GPUs", name=what, n=number)
    if fits and number > 1:
        return say("{name} **fits on** {n} of {all} GPUs", name=what, n=fits, all=number)
    if fits:
        return say("{name} **fits on** {gpu}", name=what, gpu=gpu)
    if focus.verdict == "fits with":
        return say("{name} **fits, with flags, on** {gpu}", name=what, gpu=gpu)
    if focus.verdict == "tight":
        return say("{name} **is tight on** {gpu}", name=what, gpu=gpu)
    if number > 1:
        return say("{name} **fits on none** of {n} GPUs", name=what, n=number)
    if focus.verdict == "does not run":
        return say("{name} **does not run on** {gpu}", name=what, gpu=gpu)
    return say("{name} **does not fit** {gpu}", name=what, gpu=gpu)


def plain(sentence: str) -> str:
    """Without the stress."""
    return STRESSED.sub(r"\1", sentence)


def heading(answer: Answer, sentence: str | None) -> None:
    """The heading of a page: the finding with its verb in the colour of the verdict, or the model."""
    if sentence is None or not isinstance(answer, Weighed | Trained) or answer.focus is None:
        st.title(name(answer), anchor=False)
    else:
        _, color, _ = BADGES[answer.focus.verdict]
        st.title(STRESSED.sub(rf":{color}[\1]", sentence), anchor=False)


class Figure(NamedTuple):
    """A number, what it is, and its range or where it is from."""

    value: str
    label: str
    span: str = ""


def line(figures: Iterable[Figure]) -> None:
    """The numbers that decide, in one row below the title."""
    cells = "".join(
        f"<div><b>{escape(figure.value)}</b><span>{escape(figure.label)}</span><small>{escape(figure.span)}</small></div>"
        for figure in figures
    )
    st.html(f'<div class="weighbridge-facts">{cells}</div>')


def rate(label: str, estimate: Estimate) -> Figure:
    return Figure(words.figure(estimate.expected), label, words.span(estimate))


def hourly(focus: Verdict | TrainingVerdict) -> list[Figure]:
    """What the GPUs cost by the hour; nothing where there is no list price."""
    usd = price_of(focus.gpu)
    if usd is None:
        return []
    each = say("{n:,} × {usd}, list price", n=focus.gpus, usd=f"${usd:,.2f}")
    return [Figure(f"${focus.gpus * usd:,.2f}", say("per hour"), each)]


def headroom(focus: Verdict | TrainingVerdict) -> Figure:
    """What is left of each GPU, or missing."""
    label = say("headroom per GPU") if focus.spare >= 0 else say("short per GPU")
    return Figure(words.gib(abs(focus.spare)), label, say("of {size} usable", size=words.gib(focus.usable)))
