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
    opens: bool = False,
    use: Callable[[str], None] | None = None,
) -> str | None:
    """The id of the row that is open. `use` is called with the id of a row whose button was clicked."""

    def take() -> None:
        if use is not None and (chosen := st.session_state[key].use) is not None:
            use(chosen)

    opened: str | None = (st.session_state.get(key) or {}).get("row")
    shown = ROWS(
        key=key,
        data={
            "label": label,
            "columns": [column._asdict() for column in columns],
            "rows": [row._asdict() for row in rows],
            "opens": opens,
            "chosen": opened,
        },
        on_row_change=nothing,
        on_use_change=take,
    )
    return shown.row if opens else None


def nothing() -> None:
    """What is opened is asked about in the run that the click starts."""
