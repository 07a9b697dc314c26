"""Sections beside each other below an answer, of which only the open one is computed, sent and drawn."""

from collections.abc import Callable, Mapping

import streamlit as st

from pages.parts.state.scenario import Place, Tab, places
from pages.parts.state.url import change, show

Section = tuple[str, Callable[[], None]]
"""Its title, and what draws it."""


def draw(sections: Mapping[Tab, Section]) -> None:
    """The first is open unless the scenario says another."""
    place = places(("tab",))["tab"]
    names, titles = list(sections), [title for title, _ in sections.values()]
    chosen = place.of(st.session_state.scenario)
    number = names.index(chosen) if chosen in names else 0
    show("sections", titles[number])
    tabs = st.tabs(titles, key="sections", on_change=_take, args=(place, dict(zip(titles, names, strict=True))))
    with tabs[number]:
        sections[names[number]][1]()


def _take(place: Place, names: Mapping[str, Tab]) -> None:
    chosen = names[st.session_state.sections]
    change({place: None if chosen == next(iter(names.values())) else chosen})
