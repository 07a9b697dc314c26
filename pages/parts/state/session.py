"""Memory of a session, so that a move that does not change a calculation does not repeat it. A program that asks has no
session: its memory is gone with its question."""

from collections.abc import Callable, Collection
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import streamlit as st

T = TypeVar("T")


class Program(NamedTuple):
    """A program that asks, what it remembers, and its IP address."""

    state: dict[str, Any]
    address: str | None = None


PROGRAM: ContextVar[Program | None] = ContextVar("program", default=None)
"""The program that asks; None: a reader's session."""


def state() -> Any:
    """Values that this session or program remembers, by name."""
    program = PROGRAM.get()
    return st.session_state if program is None else program.state


def address() -> str | None:
    """The IP address of whoever asks."""
    program = PROGRAM.get()
    return st.context.ip_address if program is None else program.address


def remembered(
    name: str,
    key: Any,
    make: Callable[[], T],
    is_full: Callable[[Collection[T]], bool] = lambda values: len(values) > 1,
    is_kept: Callable[[T], bool] = lambda _: True,
) -> T:
    """The value of a key among those of a name, which are forgotten from the oldest on where they are too many, by
    default all but the newest; that one stays."""
    pairs: list[tuple[Any, T]] = state().setdefault(name, [])
    for known, value in pairs:
        if known == key:
            return value
    made = make()
    if is_kept(made):
        pairs.append((key, made))
        while len(pairs) > 1 and is_full([value for _, value in pairs]):
            del pairs[0]
    return made
