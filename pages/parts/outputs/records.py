"""A table of many rows, each column of which is declared once, with its head and its cell: `rows.py` draws it, so that
its rows are cards on a telephone. Tables of a few rows are Markdown (`words.table`)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pages.parts.outputs import rows
from pages.parts.words import say

Head = str | rows.Column
"""A label, or a label with the kind of its numbers."""
Column = Head | tuple[Head, Callable[[Any], Any]]
"""The head alone, where the cell is the row's field of the column's name; else the head and what makes the cell."""


def field(row: Any, key: str) -> Any:
    return row[key] if isinstance(row, Mapping) else getattr(row, key)


def draw(key: str, label: str, lines: Iterable[Any], columns: Mapping[str, Column], *, most: int | None = None) -> None:
    """A row a line, under the label that a screen reader says and its files have. With `most`, a reader has that many
    columns at first."""
    declared = [declare(column_key, column) for column_key, column in columns.items()]
    shown = None if most is None or rows.more_columns(f"{key}_columns") else most
    heads = [head for head, _ in declared]
    cells = ([cell(line) for _, cell in declared] for line in lines)
    rows.draw(key, label, heads, [rows.Row(f"{at}", row) for at, row in enumerate(cells)], most=shown)


def declare(key: str, column: Column) -> tuple[rows.Column, Callable[[Any], Any]]:
    """A column's head and what makes its cell."""
    if isinstance(column, rows.Column):
        return column, lambda line: field(line, key)
    if isinstance(column, str):
        return rows.Column(column), lambda line: field(line, key)
    head, cell = column
    return head if isinstance(head, rows.Column) else rows.Column(head), cell


def name(label: str) -> rows.Column:
    """The head of a column of names, formulas or what others wrote, which no language changes."""
    return rows.Column(label, "name")


def number(label: str, kind: rows.Kind = "figure") -> rows.Column:
    """The head of a column of numbers, by default with two digits behind the point at most."""
    return rows.Column(label, kind)


def source() -> Column:
    """The column of where a row is from, by its field `source`."""
    return rows.Column(say("Source"), "link"), lambda line: secure(field(line, "source"))


def secure(address: str) -> str | None:
    """An address that may be clicked; None for any other text."""
    return address if address.startswith("https://") else None
