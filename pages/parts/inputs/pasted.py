"""A start-up log or an error, pasted into the question: the way to the page that reads it."""

from contextlib import suppress

import streamlit as st

from calc.errors import ConfigError
from calc.verify.logs import read_log
from pages.parts.state.query import VERIFY, Page
from pages.parts.state.url import choose, lead
from presets import models


def take(key: str) -> None:
    """Put the text into the log reader, with the model that it names; for a callback of the element of this key."""
    text = st.session_state[key].get("log")
    if not isinstance(text, str) or not text.strip():
        return
    st.session_state.log, st.session_state.beside, st.session_state.is_pasted = text, "log", True
    with suppress(ConfigError):
        preset = preset_of(read_log(text).settings.model or "")
        if preset is not None and preset != st.session_state.scenario.source.model:
            choose(preset)


def preset_of(named: str) -> str | None:
    """The preset that a log names, by its id or by a folder that is called so; None where it names none."""
    if named in models():
        return named
    folder = named.rstrip("/").rpartition("/")[2].lower()
    return next((model for model in models() if model.rpartition("/")[2].lower() == folder), None)


def lead_there(here: Page) -> None:
    """Take the reader to the log reader, once, where something was pasted elsewhere."""
    if st.session_state.pop("is_pasted", False) and here != VERIFY:
        lead(VERIFY)
