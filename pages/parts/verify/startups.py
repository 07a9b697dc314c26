"""Whether servers start: a court of configurations, the cache and CUDA graphs of start-up logs, and printed lengths."""

from collections.abc import Iterator

import streamlit as st

from calc.errors import Message
from calc.hardware import find_gpu
from calc.units import hundredths
from pages.parts import words
from pages.parts.outputs import records
from pages.parts.outputs.cards import BADGES
from pages.parts.verify.evidence import reason
from pages.parts.verify.startup_evidence import (
    FITTED,
    Given,
    Miss,
    StartedLog,
    Startups,
    StartupSummary,
    length_errors,
    percentile,
    summary,
)
from pages.parts.words import say

REASONS = {
    "partial": Message("Only a part of the log is stated"),
    "it did not start": Message("It did not start"),
    "a draft model that the row does not name": Message("A draft model that the log does not name"),
    "weights partly in host memory": Message("A part of the weights lies in host memory"),
    "LoRA slots": Message("Slots for LoRA adapters, whose number is not stated"),
    "not the engine's own code for this device": Message("The device runs code that is not the engine's own"),
    "no line of the flags": Message("The log does not state the flags of the start"),
    "others use the GPU": Message("Others used the GPU at the same time"),
    "a cache in four bits": Message("The cache is in a format that is not reckoned here"),
    "no config of this model": Message("No config of the model"),
    "a format that is not stated exactly": Message("The format is not stated exactly"),
    "refused by us": Message("By our count it does not run"),
}
"""Why logs are left out, by the beginning of the benchmark's words."""


def draw(evidence: Startups) -> None:
    """All of it."""
    st.markdown(
        say(
            "Our budgets beside **{logs}** public start-up logs of vLLM and SGLang, and our word on "
            "**{configurations}** configurations that start in a real engine, or do not.",
            logs=len(evidence.logs),
            configurations=sum(cell.count for cell in evidence.court),
        )
    )
    court(evidence)
    budgets(evidence)
    lengths(evidence)
    by_log(evidence)
    left_out(evidence)


def court(evidence: Startups) -> None:
    """Four cells, the same by engine, and each miss."""
    st.header(say("Does it start?"), anchor=False)
    rows = [
        (title, *(f"**{evidence.judged(starts=starts, fits=fits):,}**" for fits in (True, False)))
        for starts, title in ((True, say("It starts")), (False, say("It does not start")))
    ]
    st.markdown(words.table([say("Log"), say("We say: fits"), say("We say: does not fit")], rows, numbers=2))
    tight = sum(cell.count for cell in evidence.court if cell.word == "tight")
    st.caption(
        say(
            "Each is asked with its own flags for one request of its length. “Fits” counts {tight} that are tight, "
            "where the overhead decides; “does not fit” counts those that do not run. ATOM is asked as vLLM.",
            tight=tight,
        )
    )
    head = [say("Engine"), say("Starts, fits"), say("Starts, does not fit")]
    head += [say("Does not start, fits"), say("Does not start, does not fit")]
    cells = [(starts, fits) for starts in (True, False) for fits in (True, False)]
    lines = [
        (engine, *(f"{evidence.judged(starts=starts, fits=fits, engine=engine):,}" for starts, fits in cells))
        for engine in sorted({cell.engine for cell in evidence.court})
    ]
    st.markdown(words.table(head, lines, numbers=4))
    misses(evidence)


def misses(evidence: Startups) -> None:
    if not evidence.misses:
        return
    st.subheader(say("Where we are wrong"), anchor=False)
    records.draw(
        "startup_misses",
        say("Where we are wrong"),
        evidence.misses,
        {
            "model": records.name(say("Model")),
            "gpus": (say("GPUs"), on),
            "engine": say("Engine"),
            "starts": (say("What happens"), lambda row: say("It starts") if row.starts else say("It does not start")),
            "word": (say("What we say"), lambda row: say(BADGES[row.word][0])),
            "source": records.name(say("Source")),
        },
    )


def on(row: Miss | StartedLog) -> str:
    return f"{row.gpus} × {find_gpu(row.gpu).name}"


def budgets(evidence: Startups) -> None:
    st.header(say("Available KV cache memory and CUDA graphs"), anchor=False)
    head = [say("Logs"), say("Records"), say("Median error"), say("90% within"), say("Inside the range")]
    head += [say("CUDA graphs, median error"), say("90% within"), say("Records")]
    st.markdown(words.table(head, budget_rows(evidence), numbers=7))
    st.caption(
        say(
            "Errors of the cache are shares of the GPU's memory, those of CUDA graphs are GiB. A log whose weights "
            "differ from ours by more than 2% does not say which modules stay in 16 bits: its cache is not counted."
        )
    )
    st.caption(say(FITTED))


def budget_rows(evidence: Startups) -> Iterator[tuple[str, ...]]:
    discrete = [log for log in evidence.logs if find_gpu(log.gpu).memory == "dedicated"]
    groups = {say("All"): list(evidence.logs), say("GPUs with memory of their own"): discrete}
    for (engine, minor), logs in evidence.by_version().items():
        groups[f"{engine} {minor or ''}".strip()] = logs
    for name, logs in groups.items():
        row = summary(logs)
        if row is not None:
            yield name, *figures(row)


def figures(row: StartupSummary) -> tuple[str, ...]:
    graphs = ["–" if size is None else f"{size:.2f} GiB" for size in (row.graphs_median, row.graphs_p90)]
    inside = say("{n} of {all}", n=row.inside, all=row.records)
    return f"{row.records}", f"**{row.median:.2%}**", f"{row.p90:.2%}", inside, *graphs, f"{row.graphs}"


def lengths(evidence: Startups) -> None:
    st.header(say("Longest request that a refusal prints"), anchor=False)
    head = [say("Ours"), say("Records"), say("Median error"), say("90% within"), say("Worst")]
    rows = []
    titles: dict[Given, str] = {
        "of_bytes": say("From the log's own bytes"),
        "end_to_end": say("From its settings alone"),
    }
    for given, title in titles.items():
        errors = length_errors(evidence.lengths, given)
        if errors:
            shares = f"{percentile(errors, 50):.2%}", f"{percentile(errors, 90):.2%}", f"{errors[-1]:.2%}"
            rows.append((title, f"{len(errors)}", *shares))
    st.markdown(words.table(head, rows, numbers=4))


def by_log(evidence: Startups) -> None:
    st.header(say("Record by record"), anchor=False)
    number = records.number
    records.draw(
        "startup_records",
        say("Record by record"),
        evidence.logs,
        {
            "model": records.name(say("Model")),
            "engine": (say("Engine"), lambda log: f"{log.engine} {log.version or ''}".strip()),
            "gpus": (say("GPUs"), on),
            "logged": (number(say("Cache in the log, GiB"), "two"), lambda log: log.cache_logged),
            "ours": (number(say("Predicted"), "two"), lambda log: log.cache),
            "low": (number(say("Low"), "two"), lambda log: log.cache_low),
            "high": (number(say("High"), "two"), lambda log: log.cache_high),
            "error": (
                number(say("Error, share of the GPU"), "error"),
                lambda log: None if log.error is None else hundredths(log.error),
            ),
            "graphs_logged": number(say("CUDA graphs in the log, GiB"), "two"),
            "graphs": number(say("Predicted"), "two"),
            "source": records.source(),
        },
    )


def left_out(evidence: Startups) -> None:
    st.header(say("Left out: {n:,} logs", n=sum(row.count for row in evidence.left_out)), anchor=False)
    rows = [(say(reason(REASONS, row.reason)), f"{row.count}") for row in evidence.left_out]
    st.markdown(words.table([say("Why"), say("Records")], rows))
