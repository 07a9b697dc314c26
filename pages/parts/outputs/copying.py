"""A button that puts a text into the clipboard, which no element of Streamlit's own does with one click."""

import streamlit as st

from pages.parts.outputs import scripts

BUTTON = scripts.element("weighbridge_copy", "copy.js")


def nothing() -> None:
    """A click is asked about in the run that it starts."""


def copy_button(label: str, text: str, done: str) -> None:
    """Button with a toast once the text is copied; where a browser forbids that, the text to be copied by hand."""
    clicked = BUTTON(
        key="copy",
        data={"label": label, "text": text},
        on_copied_change=nothing,
        on_refused_change=nothing,
        width="content",
        height="content",
    )
    if clicked.copied:
        st.toast(done, icon=":material/check:")
    if clicked.refused:
        st.code(text, language=None, wrap_lines=True)
