"""Parts of the sidebar that are drawn only while they are open."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import streamlit as st

from calc import ConfigError


@contextmanager
def drawer(label: str, key: str, icon: str | None = None, opened: bool = False) -> Iterator[bool]:
    """An expander that says whether it is open; `opened` opens it."""
    if opened:
        st.session_state[key] = True
    with st.expander(label, key=key, icon=icon, on_change="rerun") as container:
        yield bool(container.open)


def concerns(error: ConfigError | None, fields: Collection[str]) -> bool:
    """Whether something is wrong with one of these fields."""
    return error is not None and error.field in fields
