"""Predicted against measured: by kind, as a scatter, record by record, and what is left out."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from math import log10
from textwrap import wrap

import streamlit as st

from calc.units import GIB, hundredths
from pages.parts import words
from pages.parts.outputs import plot, tables
from pages.parts.outputs.charts import PLAIN, ROW, Figure, below, figure, hover, points, small, theme
from pages.parts.outputs.tables import Column
from pages.parts.screen import caption, heading, paragraph, small_table
from pages.parts.verify.evidence import EXPLAINED, KINDS, Accuracy, Compared, summaries
from pages.parts.words import say

MARKS = (
    ("#0072B2", "circle"),
    ("#56B4E9", "square"),
    ("#009E73", "diamond"),
    ("#D55E00", "cross"),
    ("#CC79A7", "triangle-up"),
    ("#E69F00", "x"),
    ("#6F63C0", "star"),
    ("#8A6350", "pentagon"),
    ("#7A7A7A", "triangle-down"),
    ("#B8443F", "hexagon"),
    ("#7C8A1B", "bowtie"),
)
"""Colours and shapes of kinds of records, in turn."""
TICKS = [size * ten for ten in (0.01, 0.1, 1, 10, 100, 1000) for size in (1, 2, 5)]  # GiB


def kinds(evidence: Accuracy) -> None:
    """The distribution of the errors of each kind."""
    rows = [
        (
            say(KINDS[row.kind]),
            f"{row.records}",
            f"**{words.percent(row.median)}**",
            words.percent(row.p95),
            words.percent(row.worst),
        )
        for row in summaries(evidence)
    ]
    head = [say("Figure"), say("Records"), say("Median error"), say("95% within"), say("Worst")]
    small_table(head, rows, numbers=4)
    st.caption("\n".join(f"- {say(EXPLAINED[kind], kind=KINDS[kind])}" for kind in EXPLAINED))


def scatter(evidence: Accuracy) -> None:
    """Every record as a point; the one that was clicked with its source."""
    heading("Predicted against measured")
    caption("Click a point to see its record and open its source.")
    labelled = {say(KINDS[kind]): rows for kind, rows in evidence.by_kind().items()}
    head = ["kind", "record", "measured", "predicted", "source"]
    rows = [[kind, row.name, row.measured, row.predicted, row.source] for kind in labelled for row in labelled[kind]]
    label = say("Predicted against measured")
    chosen = plot.draw("agreement", label, agreement(labelled), tabled=True, rows=(head, rows))
    if chosen is not None:
        name, error, source = chosen
        sentence = say("**{name}**: {error}. Source: {source}", name=name, error=words.difference(error), source=source)
        st.info(sentence, icon=":material/link:")
    plot.draw("errors", say("Errors of each kind"), errors(labelled), tabled=True, titled=True)


def table(evidence: Accuracy) -> None:
    units = {"bytes": say("bytes"), "tokens": say("tokens")}
    heading("Record by record")
    tables.draw(
        "records",
        say("Record by record"),
        [
            Column("Record", "name", "name"),
            Column("Figure", lambda row: say(KINDS[row.kind])),
            Column("Measured", "measured", "whole"),
            Column("Predicted", "predicted", "whole"),
            Column("Unit", lambda row: units[row.unit]),
            Column("Error", lambda row: hundredths(row.error), "error"),
            tables.source(),
        ],
        evidence.rows,
    )


def left_out(evidence: Accuracy) -> None:
    n = sum(row.count for row in evidence.left_out)
    heading("Left out: {n:,} figures", n=n)
    paragraph("A record counts only for a figure of which it states every input.")
    rows = sorted(evidence.left_out, key=lambda row: -row.count)
    kinds = {"weights": words.PARTS["weights"], **KINDS}  # some reasons hold for weights in any format
    lines = [(say(kinds[row.kind]), f"{row.count}", say(row.reason)) for row in rows]
    small_table([say("Figure"), say("Records"), say("Why")], lines)


def agreement(kinds: Mapping[str, Sequence[Compared]]) -> Figure:
    """Predicted bytes over measured ones, on the line where both are equal; click a name in the key to hide a kind."""
    sizes = {kind: rows for kind, rows in kinds.items() if rows[0].unit == "bytes"}
    values = [size / GIB for rows in sizes.values() for row in rows for size in (row.predicted, row.measured)]
    ends = [min(values) / 1.3, max(values) * 1.3]
    line = points(ends, ends, "lines", line={"color": theme().grid, "width": 1.5}, hoverinfo="skip", showlegend=False)
    marks = [
        points(
            [row.measured / GIB for row in rows],
            [row.predicted / GIB for row in rows],
            name=kind,
            customdata=[[row.name, row.error, row.source] for row in rows],
            marker={"color": color, "symbol": symbol, "size": 8, "opacity": 0.75},
            hovertemplate=hover(
                "<b>{name}</b><br>measured {measured} GiB, predicted {predicted} GiB ({error})",
                name="%{customdata[0]}",
                measured="%{x:,.2f}",
                predicted="%{y:,.2f}",
                error="%{customdata[1]:+.2%}",
            ),
        )
        for (kind, rows), (color, symbol) in zip(kinds.items(), cycle(MARKS))
        if kind in sizes
    ]
    axis = {"type": "log", "range": [log10(end) for end in ends], "tickvals": TICKS}
    return figure(
        [line, *marks],
        height=480,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        showlegend=True,
        legend={"orientation": "h", "y": -0.16, "x": 0, "itemsizing": "constant"},
        hovermode="closest",
        clickmode="event+select",
        xaxis=axis | {"title": small(say("Measured, GiB"))},
        yaxis=axis | {"title": small(say("Predicted, GiB"))},
    )


def errors(kinds: Mapping[str, Sequence[Compared]]) -> Figure:
    """The errors of each kind of figures."""
    return error_boxes({kind: [(row.error, row.name) for row in rows] for kind, rows in kinds.items()}, 2)


def error_boxes(kinds: Mapping[str, Sequence[tuple[float, str]]], digits: int) -> Figure:
    """The errors of each kind, with the record that each is of: a box from quarter to quarter, and a point a record."""
    boxes = [
        {
            "type": "box",
            "name": "<br>".join(wrap(say("{kind} ({n})", kind=kind, n=len(rows)), 24)),
            "x": [100 * error for error, _ in rows],
            "text": [name for _, name in rows],
            "boxpoints": "all",
            "jitter": 0.5,
            "pointpos": 0,
            "marker": {"color": color, "size": 4, "opacity": 0.6},
            "line": {"width": 1.5},
            "hovertemplate": f"%{{text}}<br>%{{x:+.{digits}f}}%" + PLAIN,
        }
        for (kind, rows), (color, _) in zip(kinds.items(), cycle(MARKS))
    ]
    return figure(
        boxes,
        height=ROW * len(boxes) + 60,
        margin={"l": 8, "r": 8, "t": 8, "b": 50},
        annotations=[below(say("Predicted more than measured, percent"))],
        xaxis={"zeroline": True},
        yaxis={"autorange": "reversed", "showgrid": False},
    )
