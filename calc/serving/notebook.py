"""Reports as HTML, for notebooks: IPython shows what `_repr_html_` gives."""

from collections.abc import Iterable, Sequence
from html import escape

from calc.units import GIB

Row = Sequence[object]


def gib(nbytes: int) -> str:
    """Bytes as text in GiB."""
    return f"{nbytes / GIB:,.2f} GiB"


def table(head: Row, rows: Iterable[Row]) -> str:
    """An HTML table; every cell is escaped, whatever stands in it."""
    lines = [f"<tr>{''.join(f'<th>{escape(str(cell))}</th>' for cell in head)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>"


def page(title: str, tables: Iterable[str], sentences: Iterable[object]) -> str:
    """A heading, tables that are HTML already, and sentences that can be unfolded."""
    items = "".join(f"<li>{escape(str(sentence))}</li>" for sentence in sentences)
    assumed = f"<details><summary>Assumptions</summary><ul>{items}</ul></details>"
    return f"<div><h4>{escape(title)}</h4>{''.join(tables)}{assumed}</div>"
