"""Sections side by side below an answer, of which only the open one is computed, sent and drawn."""

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from pages.parts.state.scenario import Place, Tab, places
from pages.parts.state.url import change
from pages.parts.state.widgets import show
from pages.parts.words import say

Section = tuple[str, Callable[[], None]]
"""Title, and the function that draws it."""


def draw(sections: Mapping[Tab, Section]) -> None:
    """The first is open unless the scenario says another."""
    place = places(("tab",))["tab"]
    names = list(sections)
    chosen = place.of(st.session_state.scenario)
    number = names.index(chosen) if chosen in names else 0
    st.segmented_control(
        say("Sections"),
        names,
        required=True,
        format_func=lambda name: sections[name][0],
        label_visibility="collapsed",
        **show("sections", names[number], _take, place, names, given="default"),
    )
    sections[names[number]][1]()


def _take(chosen: Tab, place: Place, names: Sequence[Tab]) -> None:
    change({place: None if chosen == names[0] else chosen})
