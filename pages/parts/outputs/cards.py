"""The answer: totals, memory, and one card for each GPU."""

from collections.abc import Mapping
from typing import Literal

import streamlit as st

from calc import Report
from calc.serving.report import KVCache
from calc.serving.verdict import Verdict
from calc.training.training_verdict import TrainingVerdict
from pages.parts import words
from pages.parts.outputs.derivations import Working
from presets import Part, Preset, Published, gpus

Color = Literal["green", "orange", "red"]
BADGES: dict[str, tuple[str, Color, str]] = {
    "fits": ("Fits", "green", ":material/check_circle:"),
    "fits with": ("Fits with flags", "orange", ":material/tune:"),
    "tight": ("Tight", "orange", ":material/balance:"),
    "does not fit": ("Does not fit", "red", ":material/cancel:"),
}


def totals(report: Report, working: Working) -> None:
    """The numbers first, each with its formula and values one click away."""
    parameters, cache, memory = report.parameters, report.kv_cache, report.memory
    numbers = {
        "Parameters": (words.count(parameters.total), working.parameters),
        "Active for a token": (words.count(parameters.active), working.active),
        "Weights": (words.size(memory.weights), working.weights),
        "KV cache a token": (growing(cache), working.cache_per_token),
        "KV cache in all": (words.size(cache.total), working.cache),
        "Memory, one GPU": (words.gib(memory.total), working.memory),
    }
    with st.grid(6, min_column_width=150, gap="xsmall"):
        for label, (value, explain) in numbers.items():
            with st.container(border=True, gap="xxsmall"):
                st.metric(label, value)
                with st.popover("Working", type="tertiary", icon=":material/function:"):
                    explain()


def growing(cache: KVCache) -> str:
    """What one more token adds; some models stop growing."""
    if cache.bytes_per_token:
        return words.size(cache.bytes_per_token)
    return "window only" if cache.window_bytes else "state only" if cache.state_bytes else "none"


PARTS: dict[Part, str] = {
    "tied_head": "tied head, stored a second time",
    "multi_token_prediction": "multi-token prediction (MTP) layers",
    "tables_of_prediction": "embedding and head of the MTP layers, not stored",
    "persistent_buffers": "persistent buffers",
    "vision": "vision encoder and projector",
    "causal_masks": "causal masks of every layer, saved by an old version",
    "rotary_frequencies": "rotary frequencies of every layer, saved by an old version",
    "rotary_frequencies_once": "rotary frequencies, saved by an old version",
    "scales": "scales of quantised weights",
    "sibling": "larger vocabulary of the published sibling",
}


def exact(report: Report, preset: Preset | None) -> None:
    """The count to the last one, what it leaves out, and the total that others published."""
    parameters = report.parameters
    apart = [f"{PARTS[name]} {n:,}" for name, n in parameters.not_in_total.items() if n]
    st.caption(
        f"Exactly **{parameters.total:,}** parameters, **{parameters.active:,}** active."
        + (f" Listed apart, not in the total: {'; '.join(apart)}." if apart else "")
    )
    if preset is not None and preset.published is not None:
        st.caption(difference_to(parameters.total, preset, preset.published))


def difference_to(total: int, preset: Preset, published: Published) -> str:
    """Our total beside the one that others published."""
    parts = preset.beside()
    difference = published.total - total - sum(parts.values())
    plus = "".join(f" {'−' if n < 0 else '+'} {abs(n):,} ({PARTS[part]})" for part, n in parts.items())
    return (
        f"Published: {published.total:,} = {total:,}{plus}, difference **{difference:,}**. "
        f"Source: {published.source}, {published.date}"
    )


def cards(report: Report) -> None:
    """One verdict a GPU."""
    with st.grid(5, min_column_width=175, gap="xsmall"):
        for verdict in report.verdicts:
            largest = {"Largest context": verdict.max_context, "Largest batch": verdict.max_batch}
            card(verdict, largest, "Fewest GPUs")


def card(verdict: Verdict | TrainingVerdict, largest: Mapping[str, int | None], fewest: str) -> None:
    """Whether it fits, by how much, what is the most that would, and on how few GPUs."""
    word, color, icon = BADGES[verdict.verdict]
    with st.container(border=True, height="stretch", gap="xsmall"):
        st.markdown(f"**{gpus()[verdict.gpu].name}**")
        st.badge(word if verdict.gpus == 1 else f"{word} on {verdict.gpus}", color=color, icon=icon)
        spare = words.gib(abs(verdict.spare))
        st.markdown(f"{spare} {'spare' if verdict.spare >= 0 else '**missing**'} of {words.gib(verdict.usable)}")
        number = "more than 1,024" if verdict.min_gpus is None else f"{verdict.min_gpus:,}"
        lines = [f"{label}: **{most(n)}**" for label, n in largest.items()]
        st.markdown("  \n".join([*lines, f"{fewest}: **{number}**"]))
        st.caption(str(verdict.reason))
        for note in map(str, verdict.notes):
            st.caption(f":material/info: {note[:1].upper()}{note[1:]}")


def most(n: int | None) -> str:
    """The largest context or batch that surely fits."""
    return "no limit" if n is None else f"{n:,}" if n else "none"


def overtaking(report: Report) -> None:
    """From which context on the cache outweighs the weights, as a heading of its chart."""
    st.subheader("Memory over the context", anchor=False)
    over = [context for context, memory in report.by_context.items() if memory.kv_cache > memory.weights]
    batch = report.scenario.workload.batch
    sequences = "one sequence" if batch == 1 else f"{batch:,} sequences"
    if over:
        st.caption(f"With {sequences}, the KV cache has overtaken the weights at {words.tokens(over[0])} tokens.")
    else:
        most_shown = words.tokens(max(report.by_context))
        st.caption(f"With {sequences}, the weights outweigh the KV cache up to {most_shown} tokens.")
