"""Widgets as views of the scenario: each shows a value, and says so when its reader moves it.

With each act of its reader a browser says the values of all widgets. One that the server has set since may still be
said as it was, for the answer is on its way: an echo, which is no act and changes nothing.
"""

from collections.abc import Callable
from typing import Any

import streamlit as st
from streamlit.proto.WidgetStates_pb2 import WidgetState
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages.parts import words


def hear() -> list[WidgetState]:
    """What every run begins with: its language, and what the browser says. An act is heard by its first run."""
    words.begin()
    state, said = st.session_state, _heard()
    state.setdefault("said", {})
    deaf = state.pop("deaf", False)
    if said or not deaf:
        state.acted = any(map(_is_new, said))
        state.said = {_key(widget): widget.SerializeToString() for widget in said}
        for key, values in _told().items():
            if key in state.said and state.get(key) == values[-1]:
                del values[:-1]
    return said


def run_whole() -> None:
    """The run of a part of a page becomes one of the whole, which hears nothing of the browser itself."""
    st.session_state.deaf = True
    st.rerun()


def show(
    key: str, value: Any, take: Callable[..., None], *args: Any, limits: tuple[float | str, ...] = ()
) -> dict[str, Any]:
    """Arguments that make a widget show a value, and call `take` when its reader moves it. A slider of other limits is
    a new one, which Streamlit puts at its lowest, and so is one that the browser has heard of and not drawn when its
    reader clicks on; a list says back the text that it shows, which is another in another language; and a browser that
    was answered before it was heard has all of them set again."""
    state = st.session_state
    limits = (words.language(), *limits)
    known: dict[str, tuple[float | str, ...]] = state.setdefault("limits", {})
    new = key not in state.said or known.get(key, limits) != limits
    if state.get(key) != value or new or state.get("resumed"):
        state[key] = value
    known[key] = limits
    told = _told().setdefault(key, [])
    if told[-1:] != [value]:
        told.append(value)
    return {"key": key, "on_change": _take, "args": (key, take, *args)}


def _take(key: str, take: Callable[..., None], *args: Any) -> None:
    if is_act(key):
        _told().pop(key, None)
        take(*args)


def is_act(key: str) -> bool:
    """Whether the reader moved this widget: it says what it was never told, or no other widget does."""
    new = {_key(widget) for widget in _heard() if _is_new(widget)}
    return key in new or not new


def _is_new(widget: WidgetState) -> bool:
    """Whether a widget says what neither it nor the server has said of it, as one that is clicked on always does."""
    state, key, kind = st.session_state, _key(widget), str(widget.WhichOneof("value"))
    if kind.endswith("trigger_value"):
        return bool(getattr(widget, kind))
    told = _told().get(key)
    return state.said.get(key) != widget.SerializeToString() if told is None else state.get(key) not in told


def _told() -> dict[str, list[Any]]:
    """What each widget was told to show, from what its browser showed last."""
    told: dict[str, list[Any]] = st.session_state.setdefault("told", {})
    return told


def _heard() -> list[WidgetState]:
    """What the browser says of the widgets that it has drawn."""
    context = get_script_run_ctx()
    return [] if context is None else context.session_state.get_widget_states()


def _key(widget: WidgetState) -> str:
    return widget.id.split("-", 2)[-1]
