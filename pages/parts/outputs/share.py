"""The title line: what is on screen, its link, and its report as a file."""

from collections.abc import Iterator
from functools import partial

import streamlit as st

from calc.text import config_file
from pages.parts.inputs.fields import moved
from pages.parts.outputs import carrying, examples, pin
from pages.parts.outputs.copying import copy_button
from pages.parts.outputs.finding import finding, heading, plain
from pages.parts.state.query import COMPARE, TRAIN, WEIGH, Page
from pages.parts.state.url import link, speak
from pages.parts.state.weighed import Answer
from pages.parts.words import LANGUAGES, language, listed, say

WEIGHING = (WEIGH, TRAIN)
"""Pages whose title is what they have found."""


def title(answer: Answer, page: Page) -> str:
    """What the browser's tab and its history say: what the page has found, else the model and the page."""
    sentence = finding(answer) if page in WEIGHING else None
    subject = f"{answer.model.name} · {say(page.title)}" if sentence is None else plain(sentence)
    return f"{subject} · Weighbridge"


def header(answer: Answer, page: Page, with_layout: Answer) -> None:
    """Links and downloads of what is on screen, and the page's title; the link is that of the question, which may be
    refused."""
    with st.container(
        horizontal=True, horizontal_alignment="right", vertical_alignment="center", gap="small", key="header"
    ):
        copy_link(with_layout, page)
        if answer.download is not None:
            st.download_button(
                say("Report"),
                partial(answer.download.model_dump_json, indent=1),
                file_name=f"{answer.model.name.replace('/', '--')}.json",
                mime="application/json",
                icon=":material/download:",
                on_click="ignore",
                key="download",
            )
        carrying.draw(answer, page)
        if page != COMPARE:
            pin.draw(with_layout)
        languages()
    heading(answer, finding(answer) if page in WEIGHING else None)
    below = st.empty()  # what comes after it keeps its place, and the browser what it has drawn there
    if changes := list(changed(answer)):
        below.caption(say("Changed: {changes}", changes=listed(changes)))
    elif page == WEIGH:
        examples.draw(below)


def changed(answer: Answer) -> Iterator[str]:
    """Each slider that differs, and from what."""
    before = answer.model.published.settings or {}
    for name, now in answer.scenario.overrides.items():
        yield moved(name, before.get(name), now)


def languages() -> None:
    """The way to each other language."""
    for code, name in LANGUAGES.items():
        if code != language():
            st.button(
                name, icon=":material/translate:", type="tertiary", on_click=speak, args=(code,), key=f"speak_{code}"
            )


def copy_link(answer: Answer, page: Page) -> None:
    address = link(answer.scenario, page)
    if address is not None:
        copy_button(say("Copy link"), address, say("Link copied. Whoever opens it sees the same numbers."))
        return
    with st.popover(say("Copy link"), icon=":material/link:"):
        st.caption(say("This config is too long for an address. Hand on the file instead."))
        st.download_button(
            "config.json",
            config_file(answer.model.config or {}),
            file_name="config.json",
            mime="application/json",
            icon=":material/download:",
            on_click="ignore",
            key="config",
        )
