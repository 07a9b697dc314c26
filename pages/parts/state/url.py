"""The one module that touches `st.query_params`: the scenario lives in the session and is written to the URL.

Widgets are views of the scenario: each is set from it before it is drawn and changes it in its callback.
"""

from typing import Any
from urllib.parse import urlsplit

import streamlit as st

from calc.verify.checkpoint import Checkpoint
from pages.parts.state.scenario import Scenario, decode, encode, shareable
from presets import hub
from presets.hub import HubModel


def current() -> Scenario:
    """The scenario now; read from the URL on the first run and when the reader goes back or forward."""
    state = st.session_state
    params = st.query_params.to_dict()
    page = urlsplit(st.context.url or "").path
    turned = "scenario" in state and page != state.page and not params  # the navigation drops the query string
    state.page = page
    if state.pop("touched", False) or turned:
        state.problems = []
        state.written = encode(state.scenario)
        if not shareable(state.scenario):
            state.written = {}
        if params != state.written:
            st.query_params.from_dict(state.written)
    elif "scenario" not in state or params != state.written:
        state.scenario, state.problems = decode(params, fetch)
        state.written = params
    return state.scenario


def choose(model: str, revision: str | None = None, file: str | None = None) -> None:
    """Another model, with its own values and the same workload; for callbacks."""
    kept = encode(st.session_state.scenario.model_copy(update={"overrides": {}, "pasted": None}))
    about = {"model": model, "revision": revision, "file": file, "assume": None}
    params = {name: text for name, text in (kept | about).items() if text}
    st.session_state.scenario, _ = decode(params, fetch)
    st.session_state.touched = True


def retry() -> None:
    """Read the URL again, and with it ask the Hub again; for callbacks."""
    del st.session_state.scenario


def fetch(model: str, revision: str | None, file: str | None) -> HubModel:
    """A model of the Hub, asked for once a session. Raises ConfigError."""
    kept = st.session_state.setdefault("hub_models", {})
    if (model, revision, file) not in kept:
        kept[model, revision, file] = hub.fetch(model, revision, token(), file)
    return kept[model, revision, file]


def checkpoint(model: HubModel, file: str | None) -> Checkpoint:
    """The tensor table of a model of the Hub, asked for once a session. Raises ConfigError."""
    kept = st.session_state.setdefault("hub_tables", {})
    if (model.id, model.revision, file) not in kept:
        kept[model.id, model.revision, file] = hub.checkpoint(model, token(), file)
    return kept[model.id, model.revision, file]


def token() -> str | None:
    """The reader's Hub token: in this session only."""
    return st.session_state.get("hub_token") or None


def change(**values: Any) -> None:
    """Change the scenario; for callbacks."""
    state = st.session_state
    state.scenario = state.scenario.model_copy(update=values)
    state.touched = True


def problems() -> list[str]:
    """Sentences about the parts of the link that made no sense."""
    return st.session_state.problems


def show(key: str, value: Any) -> None:
    """Set a widget to the scenario's value before it is drawn."""
    if st.session_state.get(key) != value:
        st.session_state[key] = value


def bind(key: str, name: str) -> dict[str, Any]:
    """Arguments that make a widget the view of one field of the scenario."""
    show(key, getattr(st.session_state.scenario, name))
    return {"key": key, "on_change": _take, "args": (key, name)}


def _take(key: str, name: str) -> None:
    change(**{name: st.session_state[key]})
