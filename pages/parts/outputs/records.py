"""A table that a reader sorts, searches and takes along as a file: each column is declared once, with its head and its
cell. Streamlit's own, for tables of many rows; those of a few are Markdown (`words.table`) or `rows.py`."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import streamlit as st

from pages.parts.words import say

Head = Any
"""A label, or a column of `st.column_config`."""
Column = Head | tuple[Head, Callable[[Any], Any]]
"""The head alone, where the cell is the row's field of the column's name; else the head and what makes the cell."""


def field(row: Any, name: str) -> Any:
    return row[name] if isinstance(row, Mapping) else getattr(row, name)


def draw(key: str, rows: Iterable[Any], columns: Mapping[str, Column], **how: Any) -> Any:
    """The table; returns what is selected. `how` is of `st.dataframe`."""
    declared = {name: column if isinstance(column, tuple) else (column, None) for name, column in columns.items()}
    return st.dataframe(
        [
            {name: field(row, name) if cell is None else cell(row) for name, (_, cell) in declared.items()}
            for row in rows
        ],
        hide_index=True,
        key=key,
        column_config={name: head for name, (head, _) in declared.items()},
        **how,
    )


def number(label: str, form: str = "localized") -> Head:
    """The head of a column of numbers, by default with separators of thousands."""
    return st.column_config.NumberColumn(label, format=form)


def percent(label: str) -> Head:
    return number(label, "percent")


def source() -> Head:
    """The head of a column of addresses."""
    return st.column_config.LinkColumn(say("Source"), display_text=say("open"))


def secure(address: str) -> str | None:
    """An address that may be clicked; None for any other text."""
    return address if address.startswith("https://") else None
