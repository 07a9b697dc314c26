"""A finding: one sentence with its verb stressed, and the figures that decide."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

import streamlit as st

from calc.hardware import find_gpu
from calc.serving import Verdict
from calc.serving.shared_gpus import SharedGPUs
from calc.time import Estimate, price_of
from calc.training import TrainingVerdict
from pages.parts import words
from pages.parts.outputs.cards import Color
from pages.parts.state.weighed import Answer
from pages.parts.words import say

STRESSED = re.compile(r"\*\*(.+?)\*\*")


def name(answer: Answer) -> str:
    """The model, and that it is not as it was published."""
    return say("{name} (changed)", name=answer.model.name) if answer.scenario.overrides else answer.model.name


def verdict_in_words(
    what: str, verdicts: Sequence[Verdict] | Sequence[TrainingVerdict], focus: Verdict | TrainingVerdict
) -> str:
    """Qwen3-8B **fits on** 8 of 9 GPUs."""
    number, fits = len(verdicts), sum(verdict.verdict == "fits" for verdict in verdicts)
    gpu = on_gpus(focus.gpu, focus.gpus)
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
    """Text without the stress, its dollars as they are."""
    return STRESSED.sub(r"\1", sentence).replace("\\$", "$")


def on_gpus(gpu: str, n: int) -> str:
    """GPUs of one kind: 8 × H200 SXM."""
    return find_gpu(gpu).name if n == 1 else f"{n:,} × {find_gpu(gpu).name}"


def heading(sentence: str, color: Color | None) -> None:
    """The heading of a page, its verb in the colour of the verdict."""
    st.title(STRESSED.sub(r"\1" if color is None else rf":{color}[\1]", sentence), anchor=False)


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


def hourly(focus: Verdict | TrainingVerdict | SharedGPUs) -> list[Figure]:
    """Price of the GPUs per hour; empty where there is no list price."""
    usd = price_of(focus.gpu)
    if usd is None:
        return []
    each = say("{n:,} × {usd}, list price", n=focus.gpus, usd=f"${usd:,.2f}")
    return [Figure(f"${focus.gpus * usd:,.2f}", say("per hour"), each)]


def headroom(focus: Verdict | TrainingVerdict) -> Figure:
    """Headroom on each GPU, or the memory that is missing."""
    label = say("headroom per GPU") if focus.spare >= 0 else say("short per GPU")
    return Figure(words.gib(abs(focus.spare)), label, say("of {size} usable", size=words.gib(focus.usable)))
