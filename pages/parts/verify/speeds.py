"""Predicted speeds against measured ones: by kind, engine and GPU, record by record, with a part of the model on the
host, and of servers under a steady load; and what is left out."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import median
from types import MappingProxyType
from typing import Any

import streamlit as st

from calc.errors import Message
from calc.hardware import find_gpu
from calc.units import hundredths
from pages.parts import words
from pages.parts.inputs.control import drawer
from pages.parts.outputs import charts, plot, tables
from pages.parts.outputs.tables import Column
from pages.parts.screen import caption, heading, paragraph, small_table
from pages.parts.verify.accuracy import error_boxes
from pages.parts.verify.evidence import (
    FIGURES,
    OFFLOADED,
    Figure,
    LeftOut,
    Served,
    Servers,
    SpeedAccuracy,
    SpeedSummary,
    Uncounted,
    by,
    said,
    side_by_side,
)
from pages.parts.words import say

CUT = 1.25
"""Errors of more are drawn at the edge."""
KINDS = {
    "decode, batch 1": Message("Decode, one sequence"),
    "prefill": Message("Prefill"),
    "batched decode": Message("Batched decode"),
    "full server": Message("Server at full load"),
    "training": Message("Training"),
    "training, with experts": Message("Training, models with experts"),
    "all": Message("All of these"),
}
"""Kinds of measured speeds."""
REASONS = {
    "no such GPU in the catalogue": Message("The GPU is not in the catalogue: {name}"),
    "no config of": Message("No config of the model: {name}"),
    "format not stated exactly": Message("The format is not stated exactly: {name}"),
    "requests waited for cache, whose size is not stated": Message(
        "Requests waited for cache, and the size of the cache is not stated"
    ),
    "how many requests ran together is not stated": Message("The number of requests that ran together is not stated"),
    "the cache holds no request": Message("By our count the cache holds no request"),
}
"""Why rows are left out, by the beginning of the benchmark's words."""


def draw(evidence: SpeedAccuracy) -> None:
    paragraph(
        "Predictions beside **{n}** speeds that people measured, each as a range: how far off the expected figure "
        "is, and how often the measured one lies inside the range.",
        n=len(evidence.rows),
    )
    kinds(evidence)
    plot.draw("speed_errors", say("Errors of each kind"), errors(evidence), tabled=True, titled=True)
    compared_with_aiconfigurator()
    grouped(say("By engine"), "speed_engines", evidence.by_engine)
    grouped(say("By GPU"), "speed_gpus", evidence.by_gpu)
    by_record(evidence)
    left_out(evidence.left_out, Message("Left out: {n:,} figures"), REASONS)


def kinds(evidence: SpeedAccuracy) -> None:
    head = [say("Figure"), say("Records"), say("Median error"), say("Within 25%"), say("Worst")]
    head += [say("Inside the range"), say("Widest range"), say("Median, cross-validated")]
    rows = []
    for kind, row in evidence.by_kind.items():
        crossed = evidence.cross_validated[kind]
        shares = (f"{share:.0%}" for share in (row.within_25, row.worst, row.inside))
        median = f"**{row.median_error:.1%}**"
        rows.append(
            (
                say(KINDS[kind]),
                f"{row.rows}",
                median,
                *shares,
                f"{row.widest:.2f} ×",
                say("{share} ({n} GPUs)", share=f"{crossed.median_error:.1%}", n=crossed.gpus),
            )
        )
    small_table(head, rows, numbers=7)
    caption(
        "Cross-validated: one factor an engine is fitted on half of the GPUs, chosen by chance, and judged on the "
        "other half, {n} times; the median of these. The shares of the peaks themselves come from measured kernels "
        "and from the same records. Records of further GPUs and model sizes are kept back and were not used.",
        n=evidence.halves,
    )
    caption(
        "Of {n} serving rates {above} lie above the high end of what is predicted to be possible.",
        n=evidence.served,
        above=len(evidence.measured_above_high),
    )
    if "training, with experts" in evidence.by_kind:
        caption(
            "Training with experts is least certain: the records do not state which kernels sort and send tokens, nor "
            "CUDA graphs and recomputation, and the range is as wide as their effect. {file} has the errors by "
            "trainer, GPU, format and model.",
            file="docs/training_speed.md",
        )


def errors(evidence: SpeedAccuracy) -> charts.Figure:
    """A box from quarter to quarter for each kind, and every record as a point."""
    rows = (row for row in evidence.records() if row["kind"] in evidence.by_kind)
    points = {
        say(KINDS[kind]): [
            (
                min(row["error"], CUT),
                ", ".join([row["model"].rpartition("/")[2], row["gpu"], row["format"], row["engine"]]),
            )
            for row in group
        ]
        for kind, group in by(lambda row: row["kind"], rows).items()
    }
    return error_boxes(points, 1)


def compared_with_aiconfigurator() -> None:
    """The points that another tool answers too."""
    version, by_kind = side_by_side()
    heading("Beside aiconfigurator {version}", version=version)
    caption(
        "Median error of both on the measured points of the systems that it has kernel tables of; it was asked for "
        "the same batch, lengths, ranks and formats."
    )
    head = [say("Figure"), say("Records"), "Weighbridge", "aiconfigurator"]
    rows = [
        (say(KINDS[kind]), f"{row.points}", f"{row.weighbridge:.1%}", f"{row.aiconfigurator:.1%}")
        for kind, row in by_kind.items()
    ]
    small_table(head, rows, numbers=3)


def grouped(title: str, key: str, groups: Mapping[str, SpeedSummary]) -> None:
    """The errors of each engine or GPU, in a drawer."""
    with drawer(title, key, icon=":material/table:") as is_open:
        if not is_open:
            return
        tables.draw(
            f"{key}_table",
            title,
            [
                Column("Name", lambda group: group[0].rpartition(": ")[2], "name"),
                Column("Figure", lambda group: say(KINDS[group[0].rpartition(": ")[0]])),
                Column("Records", lambda group: group[1].rows, "whole"),
                Column("Median error", lambda group: group[1].median_error, "percent"),
                Column("Median, with its sign", lambda group: group[1].bias, "error"),
                Column("Inside the range", lambda group: group[1].inside, "percent"),
            ],
            groups.items(),
        )


def by_record(evidence: SpeedAccuracy) -> None:
    heading("Record by record")

    tables.draw(
        "speed_records",
        say("Record by record"),
        [
            Column("Model", "model", "name"),
            Column("GPU", lambda row: find_gpu(row["gpu"]).name),
            Column("GPUs", "gpus", "whole"),
            Column("Figure", lambda row: say(KINDS.get(row["kind"], KINDS["full server"]))),
            Column("Measured", "measured", "four"),
            Column("Predicted", "expected", "four"),
            Column("Unit", "unit"),
            Column("Error", lambda row: hundredths(row["error"]), "error"),
            tables.source(),
            Column("Weights", "format"),
            Column("Engine", "engine"),
            Column("Batch size", lambda row: say("max") if row["batch"] == "max" else str(row["batch"])),
            Column("Prompt tokens", "prompt", "whole"),
            Column("Output tokens", lambda row: str(row["output"])),
            Column("Low", "low", "four"),
            Column("High", "high", "four"),
        ],
        evidence.records(),
        most=tables.in_sight("speed_records_columns", 9),
    )


def left_out(rows: Sequence[LeftOut | Uncounted], title: Message, reasons: Mapping[str, Message]) -> None:
    """Number of records that are left out, and reasons, by the beginning of the benchmark's words."""
    heading(title, n=sum(row.count for row in rows))
    lines = ((why, f"{count}") for why, count in said(rows, reasons))
    small_table([say("Why"), say("Records")], lines)


@cache
def offloaded() -> tuple[Mapping[str, Any], ...]:
    return tuple(map(MappingProxyType, json.loads(OFFLOADED.read_text(encoding="utf-8"))))


def draw_offloaded() -> None:
    """Speed with a part of the model on the host."""
    measured = [row for row in offloaded() if row["n_gpu_layers"] or row["n_cpu_moe"]]
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
            Column("Model", "model", "name"),
            Column("Where it lies", host_and_flags, "name"),
            Column("Measured", "measured", "one"),
            Column("Predicted", "expected", "one"),
            Column("from–to", lambda row: f"{row['low']:.1f}–{row['high']:.1f}"),
            Column("Error", lambda row: words.difference(row["expected"] / row["measured"] - 1)),
            tables.source(),
        ],
        offloaded(),
    )


def host_and_flags(row: Mapping[str, Any]) -> str:
    """The machine, and the flags that put a part of the model on its host."""
    flags = [f"--{name.replace('_', '-')} {row[name]}" for name in ("n_gpu_layers", "n_cpu_moe") if row[name]]
    machine = row["host"] if row["gpu"] is None else f"{find_gpu(row['gpu']).name}, {row['host']}"
    return " ".join([machine, *flags])


SERVER_REASONS = {
    "all requests at once": Message("All requests come at once"),
    "requests waited": Message("Requests waited: fewer ran at once than is stated"),
    "2 to 4 times slower": Message("Several times slower than the same model elsewhere: not as stated"),
    "speculation unknown": Message("Whether decoding is speculative is not stated"),
    "the figures are those of": Message("The page repeats another model's figures"),
    "read faster than": Message("Faster than weights and cache can be read: load or format are not as stated"),
    "no such GPU in the catalogue": Message("The GPU is not in the catalogue"),
    "no config of": Message("No config of the model"),
}
"""Why rows are left out, by the beginning of the benchmark's words."""


def draw_servers(servers: Servers) -> None:
    rows = list(servers.servers())
    heading("Servers under a steady load")
    paragraph(
        "Latency and speed of each request at **{n:,}** servers with a given number of requests in flight, predicted "
        "from the model, the GPUs and the load alone.",
        n=len(rows),
    )
    head = [say("Engine and GPUs"), say("Records"), say("Median error"), say("Within 25%")]
    head += [say("Inside the range"), say("Width of the range")]
    groups = {say("All on the same GPUs"): [row for row in rows if not row.separate]}
    groups |= {say("All with prefill and decode on separate GPUs"): [row for row in rows if row.separate]}
    kinds = by(lambda row: (row.separate, row.engine, row.generation), rows)
    groups |= {titled(*kind): kinds[kind] for kind in sorted(kinds)}
    for figure, title in FIGURES.items():
        st.markdown(f"**{say(title)}**")
        lines = [(name, f"{len(group)}", *figures(group, figure)) for name, group in groups.items()]
        small_table(head, lines, numbers=5)
        crossed = {row.column: row.median_error for row in servers.crossed if row.figure == figure}
        caption(
            "The constants are fitted on those on the same GPUs. With each model left out in turn, and one factor "
            "an engine fitted on the others, the median error is {model}; with each GPU left out, {gpu}.",
            model=f"{crossed['model']:.1%}",
            gpu=f"{crossed['gpu']:.1%}",
        )
    by_server(rows)
    named = words.listed(f"{why}: {count}" for why, count in said(servers.left_out, SERVER_REASONS))
    caption("Left out: {list}.", list=named)


def titled(separate: bool, engine: str, generation: str) -> str:
    """A group of servers."""
    return say("{engine}, {gpu}, separate", engine=engine, gpu=generation) if separate else f"{engine}, {generation}"


def figures(rows: list[Served], figure: Figure) -> tuple[str, ...]:
    """Median error, shares within 25% and inside the range, and the range's width, high over low, at the median."""
    measured = [getattr(row, figure) for row in rows]
    ranges = [row.tpot_ours if figure == "tpot_ms" else row.ttft_ours for row in rows]
    errors = [abs(expected / real - 1) for real, (_, expected, _) in zip(measured, ranges, strict=True)]
    within_25 = sum(error <= 0.25 for error in errors) / len(rows)
    inside = sum(low <= real <= high for real, (low, _, high) in zip(measured, ranges, strict=True)) / len(rows)
    width = median(high / low for low, _, high in ranges)
    return f"**{median(errors):.1%}**", f"{within_25:.0%}", f"{inside:.0%}", f"{width:.2f} ×"


def by_server(rows: list[Served]) -> None:
    with drawer(say("Server by server"), "served_drawer", icon=":material/table:") as is_open:
        if not is_open:
            return
        tables.draw(
            "served_records",
            say("Server by server"),
            [
                Column("Model", "model", "name"),
                Column("Engine", "engine"),
                Column("Weights", "weights"),
                Column("GPUs", lambda row: f"{row.gpus} × {find_gpu(row.gpu).name}"),
                Column("Prompt and output tokens", lambda row: f"{row.prompt:,} + {row.output:,}"),
                Column("Requests in flight", "concurrency", "whole"),
                Column("TPOT measured, ms", "tpot_ms", "four"),
                Column("TPOT predicted, ms", lambda row: row.tpot_ours[1], "four"),
                Column("TTFT measured, ms", "ttft_ms", "four"),
                Column("TTFT predicted, ms", lambda row: row.ttft_ours[1], "four"),
                tables.source(),
            ],
            rows,
        )
