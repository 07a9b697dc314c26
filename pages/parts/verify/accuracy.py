"""Predicted against measured: by kind, as a scatter, record by record, and what is left out."""

import streamlit as st

from pages.parts.outputs.charts import CONFIG
from pages.parts.verify.accuracy_charts import agreement, errors
from pages.parts.verify.evidence import KINDS, Accuracy, summaries


def kinds(found: Accuracy) -> None:
    """The distribution of the errors of each kind."""
    rows = [
        f"| {row.kind} | {row.records} | **{row.median:.2%}** | {row.p95:.2%} | {row.worst:.2%} |"
        for row in summaries(found)
    ]
    head = ["| Figure | Records | Median error | 95% within | Worst |", "| --- | ---: | ---: | ---: | ---: |"]
    st.markdown("\n".join([*head, *rows]))
    st.caption("; ".join(f"{kind}: {words}" for kind, words in KINDS.items()))


def scatter(found: Accuracy, dark: bool) -> None:
    st.subheader("Predicted against measured", anchor=False)
    st.caption("Click a point to see its record and open its source.")
    chosen = st.plotly_chart(
        agreement(found.by_kind(), dark),
        key="agreement",
        theme=None,
        config=CONFIG,
        on_select="rerun",
        selection_mode="points",
    )
    for point in chosen.selection.points:
        name, error, source = point["customdata"]
        st.info(f"**{name}**: {error:+.2%}. Source: {source}", icon=":material/link:")
    st.subheader("Errors of each kind", anchor=False)
    st.plotly_chart(errors(found.by_kind(), dark), key="errors", theme=None, config=CONFIG)


def table(found: Accuracy) -> None:
    st.subheader("Record by record", anchor=False)
    st.dataframe(
        [
            {
                "Figure": row.kind,
                "What": row.name,
                "Measured": row.measured,
                "Predicted": row.predicted,
                "Unit": row.unit,
                "Error": row.error,
                "Source": row.source if row.source.startswith("https://") else None,
            }
            for row in found.rows
        ],
        hide_index=True,
        key="records",
        column_config={
            **dict.fromkeys(("Measured", "Predicted"), st.column_config.NumberColumn(format="localized")),
            "Error": st.column_config.NumberColumn(format="percent"),
            "Source": st.column_config.LinkColumn(display_text="open"),
        },
    )


def left_out(found: Accuracy) -> None:
    st.subheader(f"Left out: {sum(row.count for row in found.left_out)} figures", anchor=False)
    st.markdown("A record counts only for a figure of which it states every input.")
    rows = sorted(found.left_out, key=lambda row: -row.count)
    lines = [f"| {row.kind} | {row.count} | {row.reason} |" for row in rows]
    st.markdown("\n".join(["| Figure | Records | Why |", "| --- | ---: | --- |", *lines]))
