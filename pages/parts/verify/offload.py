"""Speed with a part of the model on the host: predicted and measured."""

import json
from collections.abc import Mapping
from functools import cache
from statistics import median
from types import MappingProxyType
from typing import Any

from calc.hardware import find_gpu
from pages.parts import words
from pages.parts.outputs import tables
from pages.parts.outputs.tables import Column
from pages.parts.screen import caption, heading
from pages.parts.verify.evidence import FOLDER
from pages.parts.words import say

FILE = FOLDER / "offload.json"


@cache
def rows() -> tuple[Mapping[str, Any], ...]:
    return tuple(map(MappingProxyType, json.loads(FILE.read_text(encoding="utf-8"))))


def draw() -> None:
    measured = [row for row in rows() if row["n_gpu_layers"] or row["n_cpu_moe"]]
    errors = [abs(row["expected"] / row["measured"] - 1) for row in measured]
    heading("Speed with a part on the host")
    caption(
        "llama.cpp, Q4_K_M, one user: {n} public measurements with layers or experts on the host; median error "
        "{median}, largest {largest}. The host's share of its bandwidth is from the rows without a GPU; its time a "
        "layer was set by judgement when these were known.",
        n=len(measured),
        median=words.percent(median(errors)),
        largest=words.percent(max(errors)),
    )
    tables.draw(
        "offload_rows",
        say("Speed with a part on the host"),
        [
            Column(say("Model"), "model", "name"),
            Column(say("Where it lies"), where, "name"),
            Column(say("Measured"), "measured", "one"),
            Column(say("Predicted"), "expected", "one"),
            Column(say("from–to"), lambda row: f"{row['low']:.1f}–{row['high']:.1f}"),
            Column(say("Error"), lambda row: words.difference(row["expected"] / row["measured"] - 1)),
            tables.source(),
        ],
        rows(),
    )


def where(row: Mapping[str, Any]) -> str:
    """The machine, and the flags that put a part of the model on its host."""
    flags = [f"--{name.replace('_', '-')} {row[name]}" for name in ("n_gpu_layers", "n_cpu_moe") if row[name]]
    machine = row["host"] if row["gpu"] is None else f"{find_gpu(row['gpu']).name}, {row['host']}"
    return " ".join([machine, *flags])
