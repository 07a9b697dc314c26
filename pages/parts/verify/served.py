"""Servers under a steady load: predicted times beside measured ones, by engine and generation of GPU."""

from collections import Counter

import streamlit as st

from calc.hardware import find_gpu
from pages.parts import words
from pages.parts.inputs.drawer import drawer
from pages.parts.outputs import records
from pages.parts.verify.evidence import reason
from pages.parts.verify.served_evidence import (
    FIGURES,
    REASONS,
    Figure,
    Served,
    Servers,
    by_engine,
    summary_of,
)
from pages.parts.words import say


def draw(servers: Servers) -> None:
    rows = list(servers.servers())
    st.header(say("Servers under a steady load"), anchor=False)
    st.markdown(
        say(
            "What each request sees of **{n}** servers that kept so many requests in flight: predicted from the model, "
            "the GPUs and the load alone.",
            n=len(rows),
        )
    )
    head = [say("Engine and GPUs"), say("Records"), say("Median error"), say("Within 25%")]
    head += [say("Inside the range"), say("Width of the range")]
    groups = {say("All on the same GPUs"): [row for row in rows if not row.separate]}
    groups |= {say("All with prefill and decode on separate GPUs"): [row for row in rows if row.separate]}
    groups |= {titled(*kind): group for kind, group in by_engine(rows).items()}
    for figure, title in FIGURES.items():
        st.markdown(f"**{say(title)}**")
        lines = [(name, f"{len(group)}", *figures(group, figure)) for name, group in groups.items()]
        st.markdown(words.table(head, lines, numbers=5))
        crossed = {row.column: row.median_error for row in servers.crossed if row.figure == figure}
        st.caption(
            say(
                "The constants are fitted on those on the same GPUs. With each model left out in turn, and one factor "
                "an engine fitted on the others, the median error is {model}; with each GPU left out, {gpu}.",
                model=f"{crossed['model']:.1%}",
                gpu=f"{crossed['gpu']:.1%}",
            )
        )
    by_server(rows)
    left_out(servers)


def titled(separate: bool, engine: str, generation: str) -> str:
    """A group of servers."""
    return say("{engine}, {gpu}, separate", engine=engine, gpu=generation) if separate else f"{engine}, {generation}"


def left_out(servers: Servers) -> None:
    counts = Counter[str]()
    for row in servers.left_out:
        counts[say(reason(REASONS, row.reason))] += row.count
    named = words.listed(f"{why}: {count}" for why, count in counts.most_common())
    st.caption(say("Left out: {list}.", list=named))


def figures(rows: list[Served], figure: Figure) -> tuple[str, ...]:
    row = summary_of(rows, figure)
    return f"**{row.median:.1%}**", f"{row.within_25:.0%}", f"{row.inside:.0%}", f"{row.width:.2f} ×"


def by_server(rows: list[Served]) -> None:
    with drawer(say("Server by server"), "served_drawer", icon=":material/table:") as is_open:
        if not is_open:
            return
        number = records.number
        records.draw(
            "served_records",
            say("Server by server"),
            rows,
            {
                "model": records.name(say("Model")),
                "engine": say("Engine"),
                "weights": say("Weights"),
                "gpus": (say("GPUs"), lambda row: f"{row.gpus} × {find_gpu(row.gpu).name}"),
                "lengths": (say("Prompt and output tokens"), lambda row: f"{row.prompt:,} + {row.output:,}"),
                "concurrency": number(say("Requests in flight"), "whole"),
                "tpot": (number(say("TPOT measured, ms"), "four"), lambda row: row.tpot_ms),
                "tpot_ours": (number(say("TPOT predicted, ms"), "four"), lambda row: row.tpot_ours[1]),
                "ttft": (number(say("TTFT measured, ms"), "four"), lambda row: row.ttft_ms),
                "ttft_ours": (number(say("TTFT predicted, ms"), "four"), lambda row: row.ttft_ours[1]),
                "source": records.source(),
            },
        )
