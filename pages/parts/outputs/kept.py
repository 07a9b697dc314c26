"""Configurations that a reader keeps to compare with, from any page: the next letter, and the way to the
comparison. On Train that is the training step, elsewhere the model."""

from collections.abc import Sized
from typing import Any

import streamlit as st

from pages.parts.state.compared import LETTERS, add_current
from pages.parts.state.query import COMPARE, STEPS, Page
from pages.parts.state.scenario import MOST_OTHERS, Scenario
from pages.parts.state.stepped import can_keep
from pages.parts.state.stepped import keep as keep_now
from pages.parts.state.weighed import Answer, Trained
from pages.parts.words import say


def draw(answer: Answer) -> None:
    """Links in the line below a title."""
    keep(answer)
    way(answer.scenario)


def way(scenario: Scenario) -> None:
    """Links to the comparison of models and of training steps that were kept as B."""
    models, steps = scenario.comparison.others, scenario.comparison.steps
    if models:
        lead(COMPARE, say("Compare A with {letters}", letters=letters(models)))
    if steps:
        lead(STEPS, say("Compare step A with {letters}", letters=letters(steps)))


def letters(others: Sized) -> str:
    return ", ".join(LETTERS[1 : len(others) + 1])


def lead(page: Page, label: str) -> None:
    st.page_link(page.script, label=label, icon=f":material/{page.icon}:", width="content")


def keep(answer: Answer) -> None:
    """Keep the configuration on screen under the next letter, and go on with A: on Train the step, elsewhere the
    model."""
    if answer.error is not None:
        return
    scenario, known = answer.scenario, answer.scenario.comparison
    is_step = isinstance(answer, Trained)
    letter = LETTERS[min(len(known.steps if is_step else known.others) + 1, MOST_OTHERS)]
    if is_step:
        help_text = say("The model and how it is trained stay as {letter}; A follows the question.", letter=letter)
        how: dict[str, Any] = {"key": "keep_step", "disabled": not can_keep(scenario)}
        how |= {"on_click": keep_now, "args": (scenario,)}
    else:
        help_text = say(
            "The model, its changes and formats stay as {letter}; A follows the question. GPUs, users and lengths "
            "are the question's for all of them, and how they are trained is not compared.",
            letter=letter,
        )
        how = {"key": "add_current", "disabled": len(known.others) >= MOST_OTHERS}
        how |= {"on_click": add_current, "args": (answer.model.precision(scenario.serving),)}
    st.button(
        say("Keep as {letter}", letter=letter), icon=":material/push_pin:", type="tertiary", help=help_text, **how
    )
