"""What a reader keeps to lay the present question next to, from any page: the next letter, and the way to the
comparison."""

import streamlit as st

from pages.parts.state.compared import LETTERS, add_current
from pages.parts.state.query import COMPARE
from pages.parts.state.scenario import MOST_OTHERS, Scenario
from pages.parts.state.weighed import Answer
from pages.parts.words import say


def draw(answer: Answer) -> None:
    """In the line below a title."""
    keep(answer)
    way(answer.scenario)


def way(scenario: Scenario) -> None:
    """To the comparison, once something is kept."""
    others = len(scenario.comparison.others)
    if others:
        label = say("Compare A with {letters}", letters=", ".join(LETTERS[1 : others + 1]))
        st.page_link(COMPARE.script, label=label, icon=f":material/{COMPARE.icon}:", width="content")


def keep(answer: Answer) -> None:
    """The model with its changes and formats stays as it is under the next letter, and A goes on."""
    others = len(answer.scenario.comparison.others)
    if answer.error is None:
        letter = LETTERS[min(others + 1, MOST_OTHERS)]
        st.button(
            say("Keep as {letter}", letter=letter),
            icon=":material/push_pin:",
            type="tertiary",
            key="add_current",
            disabled=others >= MOST_OTHERS,
            help=say("The model, its changes and formats stay as {letter}; A follows the question.", letter=letter),
            on_click=add_current,
            args=(answer.model.precision(answer.scenario.serving),),
        )
