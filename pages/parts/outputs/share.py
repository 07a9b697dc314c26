"""Finding of a page and ways to share it: its link, its report as a file."""

from collections.abc import Iterator
from functools import partial

import streamlit as st

from calc.text import config_file
from pages.parts.inputs.fields import moved
from pages.parts.outputs import carrying, examples, finding, findings, pin, scale
from pages.parts.outputs.copying import copy_button
from pages.parts.state.query import COMPARE, STEPS, WEIGH, Page
from pages.parts.state.url import link, speak
from pages.parts.state.weighed import Answer
from pages.parts.words import LANGUAGES, language, listed, say


def header(answer: Answer, page: Page, with_layout: Answer) -> None:
    """Finding of the page, with the scale next to it; below, links and downloads of what is on screen. The link is
    that of the question, which may be refused."""
    result, weight = findings.heading(answer, page), findings.load(answer, page)
    with st.container(horizontal=True, vertical_alignment="center", key="finding"):
        with st.container(gap="small", key="finding_words"):
            finding.heading(*result)
            if figures := findings.figures(answer, page):
                finding.line(figures)
            actions(answer, page, with_layout)
        if weight is not None:
            scale.draw(weight)
    below = st.empty()  # what comes after it keeps its place, and the browser what it has drawn there
    if changes := list(changed(answer)):
        below.caption(say("Changed: {changes}", changes=listed(changes)))
    elif page == WEIGH:
        examples.draw(below)


def actions(answer: Answer, page: Page, with_layout: Answer) -> None:
    """Links and downloads."""
    with st.container(horizontal=True, vertical_alignment="center", gap="medium", key="header"):
        copy_link(with_layout, page)
        if answer.download is not None:
            st.download_button(
                say("Report"),
                partial(answer.download.model_dump_json, indent=1),
                file_name=f"{answer.model.name.replace('/', '--')}.json",
                mime="application/json",
                icon=":material/download:",
                type="tertiary",
                on_click="ignore",
                key="download",
            )
        carrying.draw(answer, page)
        if page not in (COMPARE, STEPS):
            pin.draw(with_layout)
        languages()


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
    with st.popover(say("Copy link"), icon=":material/link:", type="tertiary"):
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
