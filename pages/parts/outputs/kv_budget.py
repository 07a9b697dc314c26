"""What the engine makes of each GPU: the least that the mathematics needs, what it sets aside, and what fits in it."""

import streamlit as st

from calc import Report
from calc.serving.engines import ENGINES
from calc.serving.memory import KVBudget
from pages.parts import words
from presets import gpus


def draw(report: Report) -> None:
    """Some engines set memory aside before the first request."""
    st.subheader("KV cache: what is needed, what is held", anchor=False)
    needed_and_held(report)
    if report.kv_budget:
        table(report)
        check(report)


def needed_and_held(report: Report) -> None:
    asked, cache = report.scenario, report.kv_cache
    engine = ENGINES[asked.engine].title
    sequences = "one sequence" if asked.workload.batch == 1 else f"{asked.workload.batch:,} sequences"
    where = "the fullest of the GPUs holds" if asked.layout.gpus > 1 else f"{engine} holds"
    st.markdown(
        f"For {sequences} of {asked.workload.context:,} tokens the mathematics needs "
        f"**{words.size(cache.total)}** in all; {where} **{words.size(report.memory.kv_cache)}**."
    )


def table(report: Report) -> None:
    taken = f"{ENGINES[report.scenario.engine].title} takes"
    st.dataframe(
        [
            {
                "GPU": gpus()[budget.gpu].name,
                "Tokens": budget.tokens,
                "Requests of the context": budget.concurrency,
                "Left for the cache": left(budget),
                taken: f"{words.gib(budget.requested)} ({budget.gpu_memory_utilization:.0%})",
                "Weights": words.gib(budget.weights),
                "Profile run": words.gib(budget.profile),
            }
            for budget in report.kv_budget
        ],
        hide_index=True,
        column_config={
            "Tokens": st.column_config.NumberColumn(format="localized"),
            "Requests of the context": st.column_config.NumberColumn(format="%.2f"),
        },
    )


def left(budget: KVBudget) -> str:
    if budget.bytes <= 0:
        return "nothing"
    low, high = max(0, budget.bytes_low) / words.GIB, budget.bytes_high / words.GIB
    return f"{words.gib(budget.bytes)} ({low:,.1f} to {high:,.1f})"


def check(report: Report) -> None:
    """The arithmetic of a start-up log, in sight of the reader."""
    budget = max(report.kv_budget, key=lambda b: b.tokens)
    context = report.scenario.workload.context
    if budget.tokens <= 0:
        st.caption("On none of these GPUs does anything stay for the cache: take more GPUs or a smaller format.")
        return
    requested = budget.concurrency * context
    st.caption(
        f"Check, {gpus()[budget.gpu].name}: {budget.bytes:,} bytes in {budget.blocks:,} blocks give {budget.tokens:,} "
        f"tokens, {budget.bytes / budget.tokens:,.0f} bytes each; {budget.concurrency:,.2f} requests × {context:,} "
        f"tokens = {requested:,.0f}{windowed(requested, budget)}. {ENGINES[report.scenario.engine].title} runs up to "
        f"{budget.max_num_seqs:,} sequences at once and passes up to {budget.max_num_batched_tokens:,} tokens."
    )


def windowed(requested: float, budget: KVBudget) -> str:
    """Why the requests may hold more tokens than the blocks."""
    return (
        ", more than the blocks hold, for layers with a window drop what is behind it"
        if requested > 1.01 * budget.tokens
        else ""
    )
