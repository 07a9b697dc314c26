"""The one module that touches `st.query_params`: the scenario lives in the session and is written to the URL.

Widgets are views of the scenario: each is set from it before it is drawn and changes it in its callback.
"""

from typing import Any

import streamlit as st

from pages.parts.scenario import Scenario, decode, encode, shareable


def current() -> Scenario:
    """The scenario now; read from the URL on the first run and when the reader goes back or forward."""
    state = st.session_state
    params = st.query_params.to_dict()
    moved = state.pop("touched", False)
    if moved:
        state.problems = []
        state.written = encode(state.scenario)
        if not shareable(state.scenario):
            state.written = {}
        if params != state.written:
            st.query_params.from_dict(state.written)
    elif "scenario" not in state or params != state.written:
        state.scenario, state.problems = decode(params)
        state.written = params
    return state.scenario


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
