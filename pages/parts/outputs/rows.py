"""A table that sorts by a click on a head and opens a row by a click on it: a table of HTML, which is there at once,
which a screen reader reads, and whose rows are cards on a telephone. Streamlit's own is a picture, and brings 1.4 MB of
script."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import streamlit as st

from pages.parts.outputs import scripts
from pages.parts.words import say

ROWS = scripts.element("weighbridge_rows", "rows.js")


Kind = Literal[
    "text",
    "name",
    "whole",
    "one",
    "two",
    "figure",
    "rate",
    "four",
    "times",
    "dollars",
    "percent",
    "error",
    "mark",
    "link",
    "gauge",
    "button",
]
"""Form of a value: a text, or a name that no language changes; one or two digits behind the point or as many as it has,
three or four that count, a multiple, a share, a share more or less, whether it is so, an address, a `Gauge`."""


class Column(NamedTuple):
    label: str
    kind: Kind = "text"
    help: str | None = None


class Gauge(NamedTuple):
    """A word, and a share in percent and as a bar, by which the column sorts."""

    word: str
    share: float | None


class Row(NamedTuple):
    id: str
    """Letters, digits, hyphens and underscores: the card of an open row has the key `card_` and this."""
    cells: Sequence[Any]
    """A value for each column; None where there is none."""


def row_of(name: str, columns: Mapping[str, Column], values: Mapping[str, Any]) -> Row:
    """A row by the name of what it is about, and its values by the names of columns."""
    return Row(identifier(name), [values.get(column) for column in columns])


def identifier(name: str) -> str:
    """Id of a row about what has this name."""
    return re.sub(r"[^\w-]", "-", name, flags=re.ASCII)


def more_columns(key: str) -> bool:
    """A switch: whether a reader wants the columns too that do not decide."""
    return st.toggle(say("More columns"), key=key, persist_state="session")


def draw(
    key: str,
    label: str,
    columns: Iterable[Column],
    rows: Iterable[Row],
    *,
    most: int | None = None,
    chosen: Sequence[str] = (),
    several: bool = False,
    turn: Callable[[tuple[str, ...]], None] | None = None,
    use: Callable[[str], None] | None = None,
) -> None:
    """The first `most` columns. Rows that open call `turn` with the ids of those that are to be open: one, or several.
    `use` is called with the id of a row whose button was clicked."""

    def take() -> None:
        if use is not None and (used := st.session_state[key].use) is not None:
            use(used)

    def take_row() -> None:
        if turn is not None and (now := st.session_state[key].row) is not None:
            turn(tuple(now))

    ROWS(
        key=key,
        data={
            "label": label,
            "columns": [column._asdict() for column in columns][:most],
            "rows": [{"id": row.id, "cells": list(map(rounded, row.cells[:most]))} for row in rows],
            "opens": turn is not None,
            "several": several,
            "chosen": list(chosen),
            "text": {"search": say("Search these rows"), "rest": say("All {n} rows", n="{n}")},
        },
        on_row_change=take_row,
        on_use_change=take,
    )


def rounded(cell: Any) -> Any:
    """Value without the digits that nobody is shown."""
    return round(cell, 4) if isinstance(cell, float) else cell


def pick(
    key: str,
    label: str,
    columns: Iterable[Column],
    rows: Iterable[Row],
    *,
    most: int | None = None,
    several: bool = False,
) -> tuple[str, ...]:
    """Rows of which the open ones stand in no link. Returns their ids."""
    shown = list(rows)

    def turn(ids: tuple[str, ...]) -> None:
        st.session_state[f"{key}_open"] = ids

    chosen = tuple(row.id for row in shown if row.id in opened(key))
    draw(key, label, columns, shown, most=most, chosen=chosen, several=several, turn=turn)
    return chosen


def opened(key: str) -> tuple[str, ...]:
    """Ids of the rows that `pick` opened; they may be there no more."""
    ids: tuple[str, ...] = st.session_state.get(f"{key}_open", ())
    return ids
