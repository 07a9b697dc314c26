"""Speed with a part of the model on the host: predicted beside measured."""

import json
from collections.abc import Mapping
from functools import cache
from statistics import median
from types import MappingProxyType
from typing import Any

import streamlit as st

from calc.hardware.custom_gpu import find_gpu
from pages.parts import words
from pages.parts.verify.evidence import FOLDER
from pages.parts.words import say

FILE = FOLDER / "offload.json"


@cache
def rows() -> tuple[Mapping[str, Any], ...]:
    return tuple(map(MappingProxyType, json.loads(FILE.read_text(encoding="utf-8"))))


def draw() -> None:
    measured = [row for row in rows() if row["n_gpu_layers"] or row["n_cpu_moe"]]
    errors = [abs(row["expected"] / row["measured"] - 1) for row in measured]
    st.header(say("Speed with a part on the host"), anchor=False)
    st.caption(
        say(
            "llama.cpp, Q4_K_M, one user: {n} public measurements with layers or experts on the host; median error "
            "{median}, largest {largest}. The host's share of its bandwidth is from the rows without a GPU; its time a "
            "layer was set by judgement when these were known.",
            n=len(measured),
            median=words.percent(median(errors)),
            largest=words.percent(max(errors)),
        )
    )
    st.dataframe(
        [table_row(row) for row in rows()],
        hide_index=True,
        key="offload_rows",
        height="content",
        column_config={
            "model": say("Model"),
            "where": say("Where it lies"),
            "measured": st.column_config.NumberColumn(say("Measured"), format="%.1f"),
            "expected": st.column_config.NumberColumn(say("Predicted"), format="%.1f"),
            "span": say("from–to"),
            "error": say("Error"),
            "source": st.column_config.LinkColumn(say("Source"), display_text=say("open")),
        },
    )


def table_row(row: Mapping[str, Any]) -> dict[str, Any]:
    flags = [f"--{name.replace('_', '-')} {row[name]}" for name in ("n_gpu_layers", "n_cpu_moe") if row[name]]
    machine = row["host"] if row["gpu"] is None else f"{find_gpu(row['gpu']).name}, {row['host']}"
    return {
        "model": row["model"],
        "where": " ".join([machine, *flags]),
        "measured": row["measured"],
        "expected": row["expected"],
        "span": f"{row['low']:.1f}–{row['high']:.1f}",
        "error": words.difference(row["expected"] / row["measured"] - 1),
        "source": row["source"],
    }
