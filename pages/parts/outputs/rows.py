"""A table that sorts by a click on a head and opens a row by a click on it: a table of HTML, which is there at once and
which a screen reader reads. Streamlit's own is a picture, and brings 1.4 MB of script."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import streamlit as st

from pages.parts.outputs import scripts

ROWS = scripts.element("weighbridge_rows", "rows.js")


class Column(NamedTuple):
    label: str
    kind: Literal["text", "whole", "two", "rate", "times", "dollars", "gauge", "button"] = "text"
    """How a value is written: two digits behind the point, three that count, a multiple, a `Gauge`."""
    help: str | None = None


class Gauge(NamedTuple):
    """A word, and a share in percent and as a bar, by which the column sorts."""

    word: str
    share: float | None


class Row(NamedTuple):
    id: str
    cells: Sequence[Any]
    """A value for each column; None where there is none."""


def draw(
    key: str,
    label: str,
    columns: Iterable[Column],
    rows: Iterable[Row],
    *,
    opened: str | None = None,
    turn: Callable[[str | None], None] | None = None,
    use: Callable[[str], None] | None = None,
) -> None:
    """Rows that open call `turn` with the id of the one that is to be open, or None. `use` is called with the id of a
    row whose button was clicked."""

    def take() -> None:
        if use is not None and (chosen := st.session_state[key].use) is not None:
            use(chosen)

    def take_row() -> None:
        if turn is not None and (chosen := st.session_state[key].row) is not None:
            turn(chosen or None)

    ROWS(
        key=key,
        data={
            "label": label,
            "columns": [column._asdict() for column in columns],
            "rows": [row._asdict() for row in rows],
            "opens": turn is not None,
            "chosen": opened,
        },
        on_row_change=take_row,
        on_use_change=take,
    )
