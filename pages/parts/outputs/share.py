"""The title line: what is on screen, its link, and its report as a file."""

import streamlit as st

from calc.text import config_file
from pages.parts.state.query import Page
from pages.parts.state.url import link, speak
from pages.parts.state.weighed import Answer
from pages.parts.words import LANGUAGES, language, say


def header(answer: Answer, page: Page) -> None:
    name = answer.model.name
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.title(say("{name}, changed", name=name) if answer.scenario.overrides else name, anchor=False)
        with st.container(horizontal=True, width="content"):
            with st.popover(say("Copy link"), icon=":material/link:"):
                copy_link(answer, page)
            if answer.download is not None:
                st.download_button(
                    say("Report"),
                    answer.download.model_dump_json(indent=1),
                    file_name=f"{name.replace('/', '--')}.json",
                    mime="application/json",
                    icon=":material/download:",
                    on_click="ignore",
                    key="download",
                )
            languages()


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
        st.code(address, language=None, wrap_lines=True)
        st.caption(say("Whoever opens it sees the same numbers."))
        return
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
