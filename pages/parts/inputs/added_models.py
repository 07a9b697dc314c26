"""Models and steps next to the one on screen, as a list of the scenario: what adds one, and what takes one away."""

from collections.abc import Callable, Iterable
from typing import Any

import streamlit as st

from calc import ConfigError
from calc.errors import Message
from pages.parts.screen import alert, button, caption, paragraph, quiet_button
from pages.parts.state.scenario import Place
from pages.parts.state.url import add, remove
from pages.parts.words import say
from presets import models

Read = Callable[[str], Any]
"""Entry of the list by a model's name. Raises ValueError."""


def add_model(place: Place, read: Read, most: int, key: str, full: str | None) -> None:
    """A box that adds a model by its name; with `full` none, for the reason that it says."""
    st.selectbox(
        say("Add a model"),
        list(models()),
        index=None,
        format_func=lambda name: models()[name].name if name in models() else name,
        placeholder=full or say("A preset, or organisation/name on the Hub"),
        accept_new_options=True,
        disabled=full is not None,
        key=key,
        on_change=_take,
        args=(place, read, most, key),
        width=420,
    )


def _take(place: Place, read: Read, most: int, key: str) -> None:
    state = st.session_state
    if state[key]:
        try:
            add(place, read(state[key].strip()), most)
        except ValueError:  # ConfigError is one
            state.not_added = state[key][:60]
    state[key] = None


def suggest(place: Place, read: Read, most: int, suggested: Iterable[str]) -> None:
    """A warning of a text in the box that is no model's name, and models to begin with."""
    if (name := st.session_state.pop("not_added", None)) is not None:
        alert("warning", "help", "“{name}” is not the name of a model; one looks like organisation/name.", name=name)
    if not place.of(st.session_state.scenario):
        with st.container(horizontal=True, gap="xsmall"):
            for model in suggested:
                button(models()[model].name, f"add_{model}", "add", lambda model=model: add(place, read(model), most))


def side_by_side(place: Place, entries: Iterable[tuple[str, str, str | None]], first: Message, width: int) -> None:
    """Letter, name and settings of each, the one on screen first, and of the others a way out."""
    with st.grid(6, min_column_width=width, gap="xsmall"):
        for number, (letter, name, settings) in enumerate(entries):
            with st.container(gap="xxsmall"):
                paragraph("**{letter}** · {name}", letter=letter, name=name)
                if not number:
                    caption(first)
                    continue
                if settings is not None:
                    st.caption(settings)
                remove_button(place, number - 1, f"remove_{letter}")


def remove_button(place: Place, number: int, key: str) -> None:
    """The way out of one of them."""
    quiet_button(say("Remove"), key, "close", remove, place, number)


def refusals(errors: Iterable[tuple[str, ConfigError | None]]) -> None:
    """Why some of them have no answer, by letter."""
    for letter, error in errors:
        if error is not None:
            alert("error", "error", "**{letter}**: {why}", letter=letter, why=say(error.message))
