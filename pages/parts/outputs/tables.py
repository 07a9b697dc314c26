"""A table that sorts by a click on a head and opens a row by a click on it: a table of HTML, which is there at once,
which a screen reader reads, and whose rows are cards on a telephone. Streamlit's own is a picture, and brings 1.4 MB of
script. Tables of a few rows are Markdown (`words.table`)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import streamlit as st

from calc.errors import Message
from pages.parts.outputs import scripts
from pages.parts.words import say

T = TypeVar("T")
ROWS = scripts.element("weighbridge_rows", "rows.js")
NumberKind = Literal["whole", "one", "two", "figure", "rate", "four", "times", "dollars", "percent", "error"]
"""Form of a number: whole, one or two digits behind the point or as many as it has, three or four that count, a
multiple, an amount, a share, a share more or less."""
Kind = Literal["text", "name", NumberKind, "mark", "link", "gauge", "button"]
"""Form of a value: a text, or a name that no language changes; a number; whether it is so, an address, a `Gauge`."""


class Column(NamedTuple):
    """A head, the cell of a line (the name of its field, or what makes it), its form, and what the head says when
    pointed at. Head and help are sentences, which `draw` says."""

    label: str | Message
    cell: str | Callable[[Any], Any]
    kind: Kind = "text"
    help: str | Message | None = None

    def of(self, line: Any) -> Any:
        """The line's cell, without digits that nobody is shown; None where there is none."""
        cell = field(line, self.cell) if isinstance(self.cell, str) else self.cell(line)
        return round(cell, 4) or cell if isinstance(cell, float) else cell


class Gauge(NamedTuple):
    """A word, and a share in percent and as a bar, by which the column sorts."""

    word: str
    share: float | None


def field(line: Any, name: str) -> Any:
    return line[name] if isinstance(line, Mapping) else getattr(line, name)


def source() -> Column:
    """The column of where a line is from, by its field `source`."""
    return Column("Source", lambda line: secure(field(line, "source")), "link")


def secure(address: str | None) -> str | None:
    """An address that may be clicked; None for any other text."""
    return address if address is not None and address.startswith("https://") else None


def identifier(name: str) -> str:
    """Id of a row about what has this name."""
    return re.sub(r"[^\w-]", "-", name, flags=re.ASCII)


def in_sight(key: str, decisive: int) -> int | None:
    """Columns that are shown: those that decide, or, by a switch, all (None)."""
    return None if st.toggle(say("More columns"), key=key, persist_state="session") else decisive


def draw(
    key: str,
    label: str,
    columns: Sequence[Column],
    lines: Iterable[Any],
    *,
    id: Callable[[Any], str] | None = None,
    most: int | None = None,
    chosen: Sequence[str] = (),
    several: bool = False,
    turn: Callable[[tuple[str, ...]], None] | None = None,
    use: Callable[[str], None] | None = None,
) -> None:
    """A row for each line, under the label that a screen reader says and its files have, of the first `most` columns.
    `id` names a line by letters, digits, hyphens and underscores; else rows are numbered. Rows that open call `turn`
    with the ids of those that are to be open: one, or several; the card of an open row has the key `card_` and its id.
    `use` is called with the id of a row whose button was clicked."""

    def take() -> None:
        if use is not None and (used := st.session_state[key].use) is not None:
            use(used)

    def take_row() -> None:
        if turn is not None and (now := st.session_state[key].row) is not None:
            turn(tuple(now))

    shown = columns[:most]
    ROWS(
        key=key,
        data={
            "label": label,
            "columns": [
                {"label": say(column.label), "kind": column.kind, "help": column.help and say(column.help)}
                for column in shown
            ],
            "rows": [
                {"id": id(line) if id else str(number), "cells": [column.of(line) for column in shown]}
                for number, line in enumerate(lines)
            ],
            "opens": turn is not None,
            "several": several,
            "chosen": list(chosen),
            "text": {"search": say("Search these rows"), "rest": say("All {n} rows", n="{n}")},
        },
        on_row_change=take_row,
        on_use_change=take,
    )


def pick(
    key: str,
    label: str,
    columns: Sequence[Column],
    lines: Iterable[T],
    *,
    id: Callable[[T], str],
    most: int | None = None,
    several: bool = False,
) -> dict[str, T]:
    """Rows of which the open ones stand in no link. Returns the lines that are open, by id."""
    known = {id(line): line for line in lines}

    def turn(ids: tuple[str, ...]) -> None:
        st.session_state[f"{key}_open"] = ids

    chosen = {id: line for id, line in known.items() if id in opened(key)}
    draw(key, label, columns, known.values(), id=id, most=most, chosen=list(chosen), several=several, turn=turn)
    return chosen


def opened(key: str) -> tuple[str, ...]:
    """Ids of the rows that `pick` opened; they may be there no more."""
    ids: tuple[str, ...] = st.session_state.get(f"{key}_open", ())
    return ids
