"""Servers under a steady load: predicted and measured times, by engine and generation of GPU."""

from statistics import median

import streamlit as st

from calc.errors import Message
from calc.hardware import find_gpu
from pages.parts import words
from pages.parts.inputs.control import drawer
from pages.parts.outputs import tables
from pages.parts.outputs.tables import Column
from pages.parts.screen import caption, heading, paragraph, small_table
from pages.parts.verify.evidence import FIGURES, Figure, Served, Servers, by, said
from pages.parts.words import say

REASONS = {
    "all requests at once": Message("All requests come at once"),
    "requests waited": Message("Requests waited: fewer ran at once than is stated"),
    "2 to 4 times slower": Message("Several times slower than the same model elsewhere: not as stated"),
    "speculation unknown": Message("Whether tokens are guessed is not stated"),
    "the figures are those of": Message("The page repeats another model's figures"),
    "read faster than": Message("Faster than weights and cache can be read: load or format are not as stated"),
    "no such GPU in the catalogue": Message("The GPU is not in the catalogue"),
    "no config of": Message("No config of the model"),
}
"""Why rows are left out, by the beginning of the benchmark's words."""


def draw(servers: Servers) -> None:
    rows = list(servers.servers())
    heading("Servers under a steady load")
    paragraph(
        "What each request sees of **{n}** servers that kept so many requests in flight: predicted from the model, "
        "the GPUs and the load alone.",
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
    left_out(servers)


def titled(separate: bool, engine: str, generation: str) -> str:
    """A group of servers."""
    return say("{engine}, {gpu}, separate", engine=engine, gpu=generation) if separate else f"{engine}, {generation}"


def left_out(servers: Servers) -> None:
    named = words.listed(f"{why}: {count}" for why, count in said(servers.left_out, REASONS))
    caption("Left out: {list}.", list=named)


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
                Column(say("Model"), "model", "name"),
                Column(say("Engine"), "engine"),
                Column(say("Weights"), "weights"),
                Column(say("GPUs"), lambda row: f"{row.gpus} × {find_gpu(row.gpu).name}"),
                Column(say("Prompt and output tokens"), lambda row: f"{row.prompt:,} + {row.output:,}"),
                Column(say("Requests in flight"), "concurrency", "whole"),
                Column(say("TPOT measured, ms"), "tpot_ms", "four"),
                Column(say("TPOT predicted, ms"), lambda row: row.tpot_ours[1], "four"),
                Column(say("TTFT measured, ms"), "ttft_ms", "four"),
                Column(say("TTFT predicted, ms"), lambda row: row.ttft_ours[1], "four"),
                tables.source(),
            ],
            rows,
        )
