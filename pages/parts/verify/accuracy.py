"""Predicted against measured: by kind, as a scatter, record by record, and what is left out."""

from statistics import median

import streamlit as st

from calc.errors import Message
from pages.parts import words
from pages.parts.outputs import charts
from pages.parts.verify.accuracy_charts import agreement, errors
from pages.parts.words import say
from presets import Accuracy, Compared

KINDS = {
    "weights, 16 bits": Message("Weights, 16 bits"),
    "weights, quantised": Message("Weights, quantized"),
    "KV tokens given KV bytes": Message("Cache tokens from cache bytes"),
    "vLLM KV budget": Message("Available KV cache memory (vLLM)"),
    "transformers peaks, 16 bits": Message("Peaks of transformers, 16 bits"),
    "transformers peaks, quantised": Message("Peaks of transformers, quantized"),
    "cache of other engines": Message("Cache of other engines"),
    "training peaks": Message("Training peaks"),
    "training steps, computed": Message("Training steps, computed by torch"),
}
EXPLAINED = {
    "weights, 16 bits": Message("{kind}: vLLM's “model loading took”"),
    "weights, quantised": Message("{kind}: the same; checkpoints differ in what they keep in 16 bits"),
    "KV tokens given KV bytes": Message("{kind}: vLLM's “GPU KV cache size” from its own bytes"),
    "vLLM KV budget": Message("{kind}: bytes that vLLM leaves for the cache, from the settings alone"),
    "transformers peaks, 16 bits": Message("{kind}: torch's peak of a generation"),
    "transformers peaks, quantised": Message(
        "{kind}: the same with GPTQ and AWQ, whose kernels need memory of their own"
    ),
    "cache of other engines": Message("{kind}: SGLang and llama.cpp"),
    "training peaks": Message("{kind}: torch's or the driver's peak of a training step"),
    "training steps, computed": Message(
        "{kind}: whole steps under fake tensors, each storage tracked by torch; no GPU was run"
    ),
}
"""What is compared of each kind."""


def kinds(found: Accuracy) -> None:
    """The distribution of the errors of each kind."""
    rows = []
    for kind, compared in by_kind(found).items():
        off = sorted(abs(row.error) for row in compared)
        p95 = off[-(-95 * len(off) // 100) - 1]
        rows.append((say(KINDS[kind]), f"{len(off)}", f"**{median(off):.2%}**", f"{p95:.2%}", f"{off[-1]:.2%}"))
    head = [say("Figure"), say("Records"), say("Median error"), say("95% within"), say("Worst")]
    st.markdown(words.table(head, rows, numbers=4))
    st.caption(words.listed(say(EXPLAINED[kind], kind=KINDS[kind]) for kind in EXPLAINED))


def by_kind(found: Accuracy) -> dict[str, list[Compared]]:
    kinds: dict[str, list[Compared]] = {}
    for row in found.rows:
        kinds.setdefault(row.kind, []).append(row)
    return kinds


def scatter(found: Accuracy, theme: charts.Theme) -> None:
    st.subheader(say("Predicted against measured"), anchor=False)
    st.caption(say("Click a point to see its record and open its source."))
    labelled = {say(KINDS[kind]): rows for kind, rows in by_kind(found).items()}
    chosen = st.plotly_chart(
        agreement(labelled, theme),
        key="agreement",
        theme=None,
        config=charts.CONFIG,
        on_select="rerun",
        selection_mode="points",
    )
    for point in chosen.selection.points:
        name, error, source = point["customdata"]
        said = say("**{name}**: {error}. Source: {source}", name=name, error=words.difference(error), source=source)
        st.info(said, icon=":material/link:")
    st.subheader(say("Errors of each kind"), anchor=False)
    charts.draw("errors", errors(labelled, theme))


def table(found: Accuracy) -> None:
    columns = {
        "figure": say("Figure"),
        "record": say("Record"),
        "measured": say("Measured"),
        "predicted": say("Predicted"),
        "unit": say("Unit"),
        "error": say("Error"),
        "source": say("Source"),
    }
    units = {"bytes": say("bytes"), "tokens": say("tokens")}
    st.subheader(say("Record by record"), anchor=False)
    st.dataframe(
        [
            {
                "figure": say(KINDS[row.kind]),
                "record": row.name,
                "measured": row.measured,
                "predicted": row.predicted,
                "unit": units[row.unit],
                "error": row.error,
                "source": row.source if row.source.startswith("https://") else None,
            }
            for row in found.rows
        ],
        hide_index=True,
        key="records",
        column_config={
            **columns,
            "measured": st.column_config.NumberColumn(columns["measured"], format="localized"),
            "predicted": st.column_config.NumberColumn(columns["predicted"], format="localized"),
            "error": st.column_config.NumberColumn(columns["error"], format="percent"),
            "source": st.column_config.LinkColumn(columns["source"], display_text=say("open")),
        },
    )


def left_out(found: Accuracy) -> None:
    n = sum(row.count for row in found.left_out)
    st.subheader(say("Left out: {n:,} figures", n=n), anchor=False)
    st.markdown(say("A record counts only for a figure of which it states every input."))
    rows = sorted(found.left_out, key=lambda row: -row.count)
    kinds = {"weights": words.PARTS["weights"], **KINDS}  # some reasons hold for weights in any format
    lines = [(say(kinds[row.kind]), f"{row.count}", say(row.reason)) for row in rows]
    st.markdown(words.table([say("Figure"), say("Records"), say("Why")], lines))
