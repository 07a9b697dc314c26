"""Predicted against measured: by kind, as a scatter, record by record, and what is left out."""

import streamlit as st

from calc.units import hundredths
from pages.parts import words
from pages.parts.outputs import charts, plot, records
from pages.parts.verify.accuracy_charts import agreement, errors
from pages.parts.verify.evidence import EXPLAINED, KINDS, Accuracy, summaries
from pages.parts.words import say


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
    st.markdown(words.table(head, rows, numbers=4))
    st.caption("\n".join(f"- {say(EXPLAINED[kind], kind=KINDS[kind])}" for kind in EXPLAINED))


def scatter(evidence: Accuracy, theme: charts.Theme) -> None:
    """Every record as a point, drawn by Streamlit's own Plotly: it alone says which point was clicked."""
    st.header(say("Predicted against measured"), anchor=False)
    st.caption(say("Click a point to see its record and open its source."))
    labelled = {say(KINDS[kind]): rows for kind, rows in evidence.by_kind().items()}
    chosen = st.plotly_chart(
        agreement(labelled, theme),
        key="agreement",
        theme=None,
        config=plot.CONFIG,
        on_select="rerun",
        selection_mode="points",
    )
    rows = [[kind, row.name, row.measured, row.predicted, row.source] for kind in labelled for row in labelled[kind]]
    plot.files(
        "agreement", say("Predicted against measured"), ["kind", "record", "measured", "predicted", "source"], rows
    )
    for point in chosen.selection.points:
        name, error, source = point["customdata"]
        said = say("**{name}**: {error}. Source: {source}", name=name, error=words.difference(error), source=source)
        st.info(said, icon=":material/link:")
    st.header(say("Errors of each kind"), anchor=False)
    plot.draw("errors", say("Errors of each kind"), errors(labelled, theme))


def table(evidence: Accuracy) -> None:
    units = {"bytes": say("bytes"), "tokens": say("tokens")}
    st.header(say("Record by record"), anchor=False)
    records.draw(
        "records",
        say("Record by record"),
        evidence.rows,
        {
            "record": (records.name(say("Record")), lambda row: row.name),
            "figure": (say("Figure"), lambda row: say(KINDS[row.kind])),
            "measured": records.number(say("Measured"), "whole"),
            "predicted": records.number(say("Predicted"), "whole"),
            "unit": (say("Unit"), lambda row: units[row.unit]),
            "error": (records.number(say("Error"), "error"), lambda row: hundredths(row.error)),
            "source": records.source(),
        },
    )


def left_out(evidence: Accuracy) -> None:
    n = sum(row.count for row in evidence.left_out)
    st.header(say("Left out: {n:,} figures", n=n), anchor=False)
    st.markdown(say("A record counts only for a figure of which it states every input."))
    rows = sorted(evidence.left_out, key=lambda row: -row.count)
    kinds = {"weights": words.PARTS["weights"], **KINDS}  # some reasons hold for weights in any format
    lines = [(say(kinds[row.kind]), f"{row.count}", say(row.reason)) for row in rows]
    st.markdown(words.table([say("Figure"), say("Records"), say("Why")], lines))
