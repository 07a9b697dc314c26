"""The answer: totals, memory, and one card for each GPU."""

from typing import Literal

import streamlit as st

from calc import Memory, Report
from calc.fit import Verdict
from pages.parts import formats
from presets import gpus

Color = Literal["green", "orange", "red"]
BADGES: dict[str, tuple[str, Color, str]] = {
    "fits": ("Fits", "green", ":material/check_circle:"),
    "tight": ("Tight", "orange", ":material/balance:"),
    "does not fit": ("Does not fit", "red", ":material/cancel:"),
}


def totals(report: Report) -> None:
    """The numbers first."""
    parameters, cache, memory = report.parameters, report.kv_cache, report.memory
    share = parameters.active / parameters.total
    with st.grid(6, min_column_width=150, gap="xsmall"):
        st.metric("Parameters", formats.count(parameters.total), border=True, help=f"{parameters.total:,}")
        st.metric(
            "Active for a token",
            formats.count(parameters.active),
            border=True,
            help=f"{parameters.active:,}, {share:.1%} of all: routed experts by experts per token, all else whole.",
        )
        st.metric("Weights", formats.size(memory.weights), border=True, help=f"{memory.weights:,} bytes on one GPU")
        st.metric(
            "KV cache a token",
            formats.size(cache.bytes_per_token),
            border=True,
            help=f"{cache.bytes_per_token:,} bytes that one more token of one sequence adds. Layers with a window "
            f"stop growing: they hold {formats.size(cache.window_bytes)} a sequence.",
        )
        st.metric("KV cache in all", formats.size(cache.total), border=True, help=f"{cache.total:,} bytes")
        st.metric(
            "Memory needed, one GPU",
            formats.gib(memory.total),
            border=True,
            help=f"{formats.gib(memory.low)} to {formats.gib(memory.high)}: the overhead is a range.",
        )


def exact(report: Report) -> None:
    """The same to the last one, and what the total leaves out."""
    parameters = report.parameters
    left_out = {
        "multi_token_prediction": "multi-token-prediction layer",
        "persistent_buffers": "router bias buffers",
        "vision": "vision tower",
    }
    apart = [f"{left_out[name]} {n:,}" for name, n in parameters.not_in_total.items() if n]
    st.caption(
        f"Exactly **{parameters.total:,}** parameters, **{parameters.active:,}** active."
        + (f" Listed apart, not in the total: {'; '.join(apart)}." if apart else "")
    )


def cards(report: Report) -> None:
    """One verdict a GPU."""
    with st.grid(5, min_column_width=200, gap="xsmall"):
        for verdict in report.verdicts:
            with st.container(border=True, height="stretch", gap="xsmall"):
                card(verdict, report.memory)


def card(verdict: Verdict, memory: Memory) -> None:
    gpu = gpus()[verdict.gpu]
    word, color, icon = BADGES[verdict.verdict]
    st.markdown(f"**{gpu.name}**")
    st.badge(word if verdict.gpus == 1 else f"{word} on {verdict.gpus}", color=color, icon=icon)
    spare = formats.gib(abs(verdict.spare))
    st.markdown(f"{spare} {'spare' if verdict.spare >= 0 else '**missing**'} of {formats.gib(verdict.usable)}")
    context = "no limit from memory" if verdict.max_context is None else f"{verdict.max_context:,} tokens"
    batch = "no limit from memory" if verdict.max_batch is None else f"{verdict.max_batch:,}"
    fewest = "more than 1,024" if verdict.min_gpus is None else f"{verdict.min_gpus:,}"
    st.markdown(f"Largest context: {context}  \nLargest batch: {batch}  \nFewest GPUs: {fewest}")
    st.caption(verdict.reason)
    for note in verdict.notes:
        st.caption(f":material/info: {note[:1].upper()}{note[1:]}")
