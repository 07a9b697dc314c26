"""Calculations that a session remembers, so that a move that does not change them does not repeat them."""

from collections.abc import Callable, Collection, Hashable
from contextvars import ContextVar
from typing import Any, TypeVar

import streamlit as st

T = TypeVar("T")
IS_NONE: ContextVar[bool] = ContextVar("no session", default=False)
"""Whether a program asks, of which nothing is remembered."""


def latest(name: str, key: Any, make: Callable[[], T], is_kept: Callable[[T], bool] = lambda _: True) -> T:
    """The newest value of a name: the one remembered while its key stays, else a new one."""
    if IS_NONE.get():
        return make()
    last: tuple[Any, T] | None = st.session_state.get(name)
    if last is not None and last[0] == key:
        return last[1]
    made = make()
    if is_kept(made):
        st.session_state[name] = key, made
    return made


def remembered(name: str, key: Hashable, make: Callable[[], T], is_full: Callable[[Collection[T]], bool]) -> T:
    """The value of a key among those of a name, which are forgotten from the oldest on where they are too many; the
    newest stays."""
    values: dict[Hashable, T] = st.session_state.setdefault(name, {})
    if key not in values:
        values[key] = make()
        while len(values) > 1 and is_full(values.values()):
            del values[next(iter(values))]
    return values[key]
