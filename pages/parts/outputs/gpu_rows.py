"""The verdict of each GPU: up to four as cards as wide as the row, more as a table that sorts and filters."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TypeVar

import streamlit as st

from calc.hardware import Layout, find_gpu, note
from calc.serving import KVBudget, Verdict
from calc.time import price_of
from calc.training import TrainingVerdict
from calc.units import GIB
from pages.parts import words
from pages.parts.outputs import paper, tables
from pages.parts.outputs.answer import longest, use_layout
from pages.parts.outputs.bar import bar
from pages.parts.outputs.cards import BADGES, head, headroom, limit, most, notes
from pages.parts.outputs.charts import served
from pages.parts.outputs.derivations import ServingDerivations, derivation
from pages.parts.outputs.tables import Column, Gauge
from pages.parts.screen import paragraph
from pages.parts.state.scenario import Scenario, places
from pages.parts.state.url import change
from pages.parts.state.weighed import Weighed
from pages.parts.words import say

V = TypeVar("V", Verdict, TrainingVerdict)
CARDS = 4
"""GPUs side by side."""
LEAST = (24, 48, 80)
"""GB of memory by which rows are chosen."""
DECISIVE = 5
"""Columns in sight without a click."""
MARKS = {"fits": "✓", "fits with": "⚙", "tight": "≈", "does not fit": "✗", "does not run": "⊘"}


def cards_or_table(verdicts: Sequence[V], card: Callable[[V], None], table: Callable[[], None]) -> None:
    """A few verdicts as cards side by side, more as a table."""
    if len(verdicts) > CARDS:
        table()
    elif verdicts:
        with st.grid(len(verdicts), min_column_width=200, gap="small", key="gpu_cards"):
            for verdict in verdicts:
                card(verdict)


def verdict_table(
    scenario: Scenario,
    key: str,
    columns: Sequence[Column],
    verdicts: Iterable[V],
    card: Callable[[V], None],
    most: int | None = None,
    use: Callable[[str], None] | None = None,
) -> None:
    """A row a GPU; the one that is clicked, or that the link opens, has its card below."""
    known = {verdict.gpu: verdict for verdict in verdicts}
    place = places(("opened",))["opened"]
    opened = place.of(scenario)
    tables.draw(
        key,
        say("The verdict of each GPU"),
        columns,
        known.values(),
        id=lambda verdict: verdict.gpu,
        most=most,
        chosen=() if opened is None else (opened,),
        turn=lambda gpus: change({place: gpus[0] if gpus else None}),
        use=use,
    )
    if opened in known:
        card(known[opened])


def card(answer: Weighed, verdict: Verdict) -> None:
    """Whether it fits, by how much, what is the most that would, and on how few GPUs; the reason one click away."""
    gpu = find_gpu(verdict.gpu)
    with st.container(border=True, height="stretch", gap="xsmall", key=f"card_{gpu.id}"):
        head(verdict)
        for flag in verdict.flags:
            st.markdown(f"`{flag}`")
        if len(answer.report.verdicts) > 1:  # the answer has the bar of one
            bar(verdict.memory, verdict.usable, served([verdict.memory]), labelled=False)
        if verdict.verdict == "does not run":
            paragraph(verdict.reason)
        st.markdown(headroom(verdict))
        st.markdown("  \n".join(largest(verdict, budget_of(answer, verdict), answer.architecture.max_positions)))
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(fewest(verdict))
            if verdict.layout is not None and verdict.layout != answer.report.scenario.layout:
                use = partial(use_layout, answer, verdict.gpu, verdict.layout)
                st.button(say("Use this"), key=f"fewest_{verdict.gpu}", type="tertiary", on_click=use)
        derivation(f"verdict_{gpu.id}", gpu.name, partial(why, answer, verdict))


def why(answer: Weighed, verdict: Verdict) -> None:
    """Reason of the verdict, limits of the card, requirements of the engine, and the derivation."""
    gpu = find_gpu(verdict.gpu)
    paragraph(verdict.reason)
    remark = None if verdict.verdict == "does not run" else note(gpu, answer.serving.engine.support)
    notes(verdict.notes if remark is None else (*verdict.notes, remark))
    ServingDerivations(answer, gpu).verdict()
    paper.link(answer, "verdict")


def largest(verdict: Verdict, budget: KVBudget | None, made_for: int | None) -> list[str]:
    """Memory with its range, the most that fits, the figures that the engine will print, and the price."""
    memory = verdict.memory
    size, low, high = map(words.gib, (memory.total, memory.low, memory.high))
    lines = [
        say("Max context length: **{n}**", n=longest(verdict, made_for)),
        say("Max batch size: **{n}**", n=most(verdict.max_batch)),
        say("Needs **{size}** ({low} to {high})", size=size, low=low, high=high),
    ]
    if budget is not None and budget.tokens:
        tokens, requests = budget.tokens, budget.concurrency
        lines.append(say("At start: {tokens:,} tokens, {requests:,.2f}x concurrency", tokens=tokens, requests=requests))
    usd, cut = price_of(verdict.gpu), find_gpu(verdict.gpu).slice
    if usd is not None and cut is not None:
        sentence = "{price} per hour ({share:.0%} of the GPU's list price: the larger of the slice's shares)"
        lines.append(say(sentence, price=words.dollars(usd), share=cut.share))
    elif usd is not None:
        lines.append(say("{price} per GPU-hour (list price)", price=words.dollars(usd)))
    return lines


def fewest(verdict: Verdict) -> str:
    """Fewest GPUs on which it fits, and their layout."""
    if verdict.min_gpus is None and find_gpu(verdict.gpu).slice is not None:
        return say("Min. GPUs: **none**: a model is on one slice")
    if verdict.min_gpus is None:
        return say("Min. GPUs: **none** up to 1,024")
    degrees = "" if verdict.layout is None else words.layout(verdict.layout)
    if not degrees:
        return say("Min. GPUs: **{n:,}**", n=verdict.min_gpus)
    return say("Min. GPUs: **{n:,}** ({layout})", n=verdict.min_gpus, layout=degrees)


def budget_of(answer: Weighed, verdict: Verdict) -> KVBudget | None:
    """Memory that an engine sets aside for its cache there."""
    if verdict.verdict == "does not run":
        return None
    return next((budget for budget in answer.report.kv_budget if budget.gpu == verdict.gpu), None)


def table(answer: Weighed) -> None:
    """The rows that pass the filters."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="gpu_view"):
        filters = choice(answer.report.verdicts)
        most = tables.in_sight("gpu_columns", DECISIVE)
    shown = {verdict.gpu: verdict for verdict in answer.report.verdicts if passes(verdict, filters)}

    def use(gpu: str) -> None:
        use_layout(answer, gpu, shown[gpu].layout or Layout())

    verdict_table(answer.scenario, "gpu_rows", columns(answer), shown.values(), partial(card, answer), most, use)


def choice(verdicts: Collection[Verdict]) -> list[str]:
    """Filter and order of the rows."""
    kinds = [find_gpu(verdict.gpu) for verdict in verdicts]
    vendors = list(dict.fromkeys(gpu.vendor for gpu in kinds))
    labels = {
        "fits": say("Only those that fit"),
        "fp8": say("With fp8 units"),
        **{str(gb): say("From {gb} GB", gb=gb) for gb in LEAST},
        **{name: words.vendor(name) for name in vendors if len(vendors) > 1},
    }
    return st.pills(
        say("Rows"),
        list(labels),
        selection_mode="multi",
        wrap=True,
        format_func=lambda name: labels[name],
        key="gpu_filter",
        label_visibility="collapsed",
        help=say("A row that is chosen opens below, with its reason and its derivation."),
    )


def passes(verdict: Verdict, filters: Collection[str]) -> bool:
    """Whether a row is what a reader wants; of vendors, one of those."""
    gpu = find_gpu(verdict.gpu)
    vendors = {name for name in filters if name not in ("fits", "fp8") and not name.isdecimal()}
    return (
        ("fits" not in filters or verdict.verdict == "fits")
        and ("fp8" not in filters or "fp8" in gpu.formats)
        and all(gpu.memory_gb >= int(name) for name in filters if name.isdecimal())
        and (not vendors or gpu.vendor in vendors)
    )


def columns(answer: Weighed) -> list[Column]:
    """Columns of verdicts, `DECISIVE` of them first."""

    def gauge(verdict: Verdict) -> Gauge:
        word, _, _ = BADGES[verdict.verdict]
        share = None if verdict.verdict == "does not run" else round(verdict.memory.total / verdict.usable, 4)
        return Gauge(f"{MARKS[verdict.verdict]} {say(word)}", share)

    def price(verdict: Verdict) -> float | None:
        usd = price_of(verdict.gpu)
        return None if usd is None else verdict.gpus * usd

    def other_layout(verdict: Verdict) -> str:
        if verdict.layout is None or verdict.layout == answer.report.scenario.layout:
            return ""
        return words.layout(verdict.layout) or say("Alone")

    def concurrency(verdict: Verdict) -> float | None:
        budget = budget_of(answer, verdict)
        return None if budget is None else budget.concurrency

    def headrooms(verdict: Verdict) -> str:
        least, most = (verdict.usable - size for size in (verdict.memory.high, verdict.memory.low))
        return f"{least / GIB:,.2f} – {most / GIB:,.2f}"

    return [
        Column("GPU", lambda verdict: find_gpu(verdict.gpu).name),
        Column("Verdict", gauge, "gauge", "The bar: memory needed, as a share of what is usable."),
        Column("Tokens/s per user", answer.user_rate, "rate", "Expected, with the whole batch running."),
        Column("$/h", price, "dollars", "All GPUs together, at the median of a dated sample of list prices."),
        Column("Min. GPUs", "min_gpus", "whole"),
        Column("Use this layout", other_layout, "button", "Sets this GPU, this number of them and this layout."),
        Column("Headroom, GiB", lambda verdict: verdict.spare / GIB, "two", "Below zero: the GPU lacks as many."),
        Column("Max batch size", lambda verdict: limit(verdict.max_batch), "whole"),
        Column(
            "Max context length",
            lambda verdict: limit(verdict.max_context),
            "whole",
            "The smaller of memory and model.",
        ),
        Column("Concurrency", concurrency, "times", "Requests of the whole context, as the engine prints it."),
        Column("Headroom, range", headrooms, help="At the high and the low end of the overhead."),
        Column("Context, by memory", "max_context_memory", "whole"),
        Column("Need, GiB", lambda verdict: verdict.memory.total / GIB, "two"),
        Column("Usable, GiB", lambda verdict: verdict.usable / GIB, "two"),
    ]
