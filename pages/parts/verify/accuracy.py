"""Predicted against measured: by kind, as a scatter, record by record, and what is left out."""

from statistics import median

import streamlit as st

from pages.parts.outputs.charts import CONFIG
from pages.parts.verify.accuracy_charts import agreement, errors
from presets import Accuracy, Compared

TRUST = {
    "weights, 16 bits": "vLLM's “model loading took”",
    "weights, quantised": "the same; checkpoints differ in what they keep in 16 bits",
    "KV tokens given KV bytes": "vLLM's “GPU KV cache size” from its own bytes",
    "vLLM KV budget": "bytes that vLLM leaves for the cache, from the settings alone",
    "transformers peaks, 16 bits": "torch's peak of a generation",
    "transformers peaks, quantised": "the same with GPTQ and AWQ, whose kernels need memory of their own",
    "cache of other engines": "SGLang and llama.cpp",
    "training peaks": "torch's or the driver's peak of a training step",
    "training steps, computed": "whole steps under fake tensors, each storage tracked by torch; no GPU was run",
}


def kinds(found: Accuracy) -> None:
    """The distribution of the errors of each kind."""
    rows = []
    for kind, compared in by_kind(found).items():
        off = sorted(abs(row.error) for row in compared)
        p95 = off[-(-95 * len(off) // 100) - 1]
        rows.append(f"| {kind} | {len(off)} | **{median(off):.2%}** | {p95:.2%} | {off[-1]:.2%} |")
    head = ["| Figure | Records | Median error | 95% within | Worst |", "| --- | ---: | ---: | ---: | ---: |"]
    st.markdown("\n".join([*head, *rows]))
    st.caption("; ".join(f"{kind}: {words}" for kind, words in TRUST.items()))


def by_kind(found: Accuracy) -> dict[str, list[Compared]]:
    kinds: dict[str, list[Compared]] = {}
    for row in found.rows:
        kinds.setdefault(row.kind, []).append(row)
    return kinds


def scatter(found: Accuracy, dark: bool) -> None:
    st.subheader("Predicted against measured", anchor=False)
    st.caption("Click a point to see its record and open its source.")
    chosen = st.plotly_chart(
        agreement(by_kind(found), dark),
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
    st.plotly_chart(errors(by_kind(found), dark), key="errors", theme=None, config=CONFIG)


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
