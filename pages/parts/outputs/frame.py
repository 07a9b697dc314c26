"""What every page begins and ends with."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import streamlit as st

from calc.errors import Message
from pages.parts.inputs import sidebar
from pages.parts.outputs import share, unknown
from pages.parts.state import url
from pages.parts.state.query import Page
from pages.parts.state.scenario import Scenario
from pages.parts.state.weighed import Answer
from pages.parts.words import say

A = TypeVar("A", bound=Answer)


def page(
    here: Page, calculate: Callable[[Scenario], A], *sections: Callable[[A], None], needs_answer: bool = True
) -> A:
    """The inputs of a page, its one calculation, and what stands above every answer: the title with its link, what the
    link said wrong, what the numbers hang on. A page that has nothing to show without an answer ends with why."""
    answer = calculate(url.current(here))
    sidebar.draw(answer, sections)
    share.header(answer, here)
    for problem in url.problems():
        st.warning(say(problem), icon=":material/link_off:")
    if answer.error is not None and needs_answer:
        unknown.explain(answer, here)
        st.stop()
    if answer.error is None:
        found = answer.model.published.hub
        if found is not None and found.note is not None:
            st.info(say(found.note), icon=":material/info:")
        for sentence in answer.architecture.assumptions:
            st.warning(say(sentence), icon=":material/help:")
    return answer


def without_model(here: Page, title: str) -> Scenario:
    """A page that is about no model. The reader's own goes along to the next."""
    scenario = url.current(here)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.title(title, anchor=False)
        share.languages()
    for problem in url.problems():
        st.warning(say(problem), icon=":material/link_off:")
    return scenario


def assumptions(sentences: Iterable[Message]) -> None:
    """What the numbers take for granted, at the end."""
    st.subheader(say("Assumptions"), anchor=False)
    st.markdown("\n".join(f"- {say(sentence)}" for sentence in sentences))
