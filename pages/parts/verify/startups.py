"""Whether servers start: a court of configurations, the cache and CUDA graphs of start-up logs, and printed lengths."""

from collections.abc import Iterator
from statistics import median

import streamlit as st

from calc.errors import Message
from calc.hardware import find_gpu
from calc.units import hundredths
from pages.parts.outputs import tables
from pages.parts.outputs.cards import BADGES
from pages.parts.outputs.tables import Column
from pages.parts.screen import caption, heading, paragraph, small_table
from pages.parts.verify.evidence import Miss, StartedLog, Startups, by, percentile
from pages.parts.verify.speeds import left_out
from pages.parts.words import say

FITTED = Message(
    "Fitted on these logs: the bytes of a CUDA graph ({first} starts from vLLM 0.12 on, {old} of older versions, "
    "{second} of its second runner), ranges of memory outside PyTorch ({outside} starts that print it), and the pass "
    "that is profiled up to 0.16 ({profiled} logs). All else follows from the engine's source and the model. About as "
    "many logs and configurations are kept back and were not used.",
    first=7,
    old=4,
    second=8,
    outside=23,
    profiled=10,
)
REASONS = {
    "partial": Message("Only a part of the log is stated"),
    "it did not start": Message("It did not start"),
    "a draft model that the row does not name": Message("A draft model that the log does not name"),
    "weights partly in host memory": Message("A part of the weights lies in host memory"),
    "LoRA slots": Message("Slots for LoRA adapters, whose number is not stated"),
    "not the engine's own code for this device": Message("The device runs code other than the engine's own"),
    "no line of the flags": Message("The log does not state the flags of the start"),
    "others use the GPU": Message("Other programs used the GPU at the same time"),
    "a cache in four bits": Message("The cache is in a format that is not computed here"),
    "no config of this model": Message("No config of the model"),
    "a format that is not stated exactly": Message("The format is not stated exactly"),
    "refused by us": Message("By our count it does not run"),
}
"""Why logs are left out, by the beginning of the benchmark's words."""


def draw(evidence: Startups) -> None:
    paragraph(
        "Our budgets beside **{logs}** public start-up logs of vLLM and SGLang, and our word on "
        "**{configurations}** configurations that start in a real engine, or do not.",
        logs=len(evidence.logs),
        configurations=sum(cell.count for cell in evidence.court),
    )
    court(evidence)
    budgets(evidence)
    lengths(evidence)
    by_log(evidence)
    left_out(evidence.left_out, Message("Left out: {n:,} logs"), REASONS)


def court(evidence: Startups) -> None:
    """Four cells, the same by engine, and each miss."""
    heading("Does it start?")
    rows = [
        (title, *(f"**{evidence.judged(starts=starts, fits=fits):,}**" for fits in (True, False)))
        for starts, title in ((True, say("It starts")), (False, say("It does not start")))
    ]
    small_table([say("Log"), say("We say: fits"), say("We say: does not fit")], rows, numbers=2)
    tight = sum(cell.count for cell in evidence.court if cell.word == "tight")
    caption(
        "Each is weighed with its own flags and one request of its length. “Fits” counts {tight} that are tight, "
        "where the overhead decides; “does not fit” counts those that do not run. ATOM is weighed as vLLM.",
        tight=tight,
    )
    head = [say("Engine"), say("Starts, fits"), say("Starts, does not fit")]
    head += [say("Does not start, fits"), say("Does not start, does not fit")]
    cells = [(starts, fits) for starts in (True, False) for fits in (True, False)]
    lines = [
        (engine, *(f"{evidence.judged(starts=starts, fits=fits, engine=engine):,}" for starts, fits in cells))
        for engine in sorted({cell.engine for cell in evidence.court})
    ]
    small_table(head, lines, numbers=4)
    misses(evidence)


def misses(evidence: Startups) -> None:
    if not evidence.misses:
        return
    st.subheader(say("Where we are wrong"), anchor=False)
    tables.draw(
        "startup_misses",
        say("Where we are wrong"),
        [
            Column("Model", "model", "name"),
            Column("GPUs", on),
            Column("Engine", "engine"),
            Column("What happens", lambda row: say("It starts") if row.starts else say("It does not start")),
            Column("What we say", lambda row: say(BADGES[row.word][0])),
            Column("Source", "source", "name"),
        ],
        evidence.misses,
    )


def on(row: Miss | StartedLog) -> str:
    return f"{row.gpus} × {find_gpu(row.gpu).name}"


def budgets(evidence: Startups) -> None:
    heading("Available KV cache memory and CUDA graphs")
    head = [say("Logs"), say("Records"), say("Median error"), say("90% within"), say("Inside the range")]
    head += [say("CUDA graphs, median error"), say("90% within"), say("Records")]
    small_table(head, budget_rows(evidence), numbers=7)
    caption(
        "Errors of the cache are shares of the GPU's memory, those of CUDA graphs are GiB. A log whose weights "
        "differ from ours by more than 2% does not say which modules stay in 16 bits: its cache is not counted."
    )
    caption(FITTED)


def budget_rows(evidence: Startups) -> Iterator[tuple[str, ...]]:
    discrete = [log for log in evidence.logs if find_gpu(log.gpu).memory == "dedicated"]
    groups = {say("All"): list(evidence.logs), say("GPUs with memory of their own"): discrete}
    for (engine, version), logs in sorted(by(lambda log: log.release, evidence.logs).items()):
        groups[f"{engine} {'.'.join(map(str, version))}".strip()] = logs
    for name, logs in groups.items():
        errors = sorted(abs(log.error) for log in logs if log.error is not None)
        if errors:
            n = sum(log.error is not None and log.is_inside for log in logs)
            inside = say("{n} of {all}", n=n, all=len(errors))
            cache = f"{len(errors)}", f"**{median(errors):.2%}**", f"{percentile(errors, 90):.2%}", inside
            yield name, *cache, *of_graphs(sorted(abs(size) for log in logs if (size := log.graphs_error) is not None))


def of_graphs(errors: list[float]) -> tuple[str, ...]:
    """Median and nine in ten of errors of CUDA graphs in GiB, ascending, and their number."""
    if not errors:
        return "–", "–", "0"
    return f"{median(errors):.2f} GiB", f"{percentile(errors, 90):.2f} GiB", f"{len(errors)}"


def lengths(evidence: Startups) -> None:
    heading("Longest request that a refusal prints")
    head = [say("Ours"), say("Records"), say("Median error"), say("90% within"), say("Worst")]
    rows = []
    of_bytes = [(row.of_bytes, row.printed) for row in evidence.lengths]
    end_to_end = [(row.end_to_end, row.printed) for row in evidence.lengths]
    for title, pairs in ((say("From the log's own bytes"), of_bytes), (say("From its settings alone"), end_to_end)):
        errors = sorted(abs(ours / printed - 1) for ours, printed in pairs if ours is not None)
        if errors:
            shares = (f"{share:.2%}" for share in (percentile(errors, 50), percentile(errors, 90), errors[-1]))
            rows.append((title, f"{len(errors)}", *shares))
    small_table(head, rows, numbers=4)


def by_log(evidence: Startups) -> None:
    heading("Record by record")
    tables.draw(
        "startup_records",
        say("Record by record"),
        [
            Column("Model", "model", "name"),
            Column("Engine", lambda log: f"{log.engine} {log.version or ''}".strip()),
            Column("GPUs", on),
            Column("Cache in the log, GiB", "cache_logged", "two"),
            Column("Predicted", "cache", "two"),
            Column("Low", "cache_low", "two"),
            Column("High", "cache_high", "two"),
            Column(
                "Error, share of the GPU", lambda log: None if log.error is None else hundredths(log.error), "error"
            ),
            Column("CUDA graphs in the log, GiB", "graphs_logged", "two"),
            Column("Predicted", "graphs", "two"),
            tables.source(),
        ],
        evidence.logs,
    )
