"""Sentences, buttons and files on a page: each is said in the reader's language where it is drawn."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import streamlit as st

from calc.errors import Message
from pages.parts import words
from pages.parts.state.query import Page
from pages.parts.state.url import lead
from pages.parts.words import say

Kind = Literal["error", "warning", "info", "success"]
Take = Callable[..., None]
"""Callback of a button, called with its arguments."""


def paragraph(sentence: str | Message, /, **values: Any) -> None:
    st.markdown(say(sentence, **values))


def caption(sentence: str | Message, /, **values: Any) -> None:
    st.caption(say(sentence, **values))


def heading(sentence: str | Message, /, **values: Any) -> None:
    """The heading of a part of a page, to which no link leads."""
    st.header(say(sentence, **values), anchor=False)


def alert(kind: Kind, icon: str, sentence: str | Message, /, **values: Any) -> None:
    """A sentence in a box, with an icon of Material's."""
    getattr(st, kind)(say(sentence, **values), icon=f":material/{icon}:")


def small_table(head: Iterable[str], rows: Iterable[Iterable[str]], numbers: int = 1) -> None:
    """A table of a few rows, whose `numbers` columns after the first are aligned to the right."""
    st.markdown(words.table(head, rows, numbers))


def button(label: str, key: str, icon: str, take: Take, *args: Any, **how: Any) -> bool:
    """A button with an icon of Material's, which calls `take`. Returns whether it was clicked."""
    return st.button(label, key=key, icon=f":material/{icon}:", on_click=take, args=args, **how)


def quiet_button(label: str, key: str, icon: str, take: Take, *args: Any, **how: Any) -> bool:
    """A button without a frame, for ways back and within a line of text."""
    return button(label, key, icon, take, *args, type="tertiary", **how)


def offer(text: str, label: str, key: str, take: Take, *args: Any, **how: Any) -> None:
    """A button, and next to it what it does."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"offer_{key}"):
        st.button(label, key=key, on_click=take, args=args, **how)
        st.markdown(text, width="stretch")


def leading_button(page: Page, label: str, key: str, take: Take, *args: Any, **how: Any) -> None:
    """A button that takes something over into the scenario and leads to a page."""
    if button(label, key, "arrow_forward", take, *args, **how):
        lead(page)


def download(label: str, key: str, name: str, mime: str, data: str | Callable[[], str], **how: Any) -> None:
    """A button that saves a file; the page stays as it is."""
    how = {"icon": ":material/download:", "on_click": "ignore"} | how
    st.download_button(label, data, file_name=name, mime=mime, key=key, **how)
