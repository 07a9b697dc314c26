"""The answer on Train: one sentence, one bar of one GPU, which GPU does, what makes it fit, and what each technique
saves."""

from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from calc import GPU, TrainingLayout
from calc.errors import Message
from calc.hardware import find_gpu
from calc.time import least_price, price_of
from calc.training import PEAKS, RolloutReport, Together, TrainingLever, TrainingVerdict
from pages.parts import words
from pages.parts.inputs.control import drawer
from pages.parts.outputs.answer import details
from pages.parts.outputs.bar import bar
from pages.parts.outputs.cards import BADGES, most
from pages.parts.outputs.charts import peak_of
from pages.parts.screen import alert, caption, paragraph, quiet_button, small_table
from pages.parts.state.scenario import places
from pages.parts.state.url import change
from pages.parts.state.weighed import Trained
from pages.parts.words import say

FEW_GPUS = (1, 2, 4, 8)
"""Usual numbers of GPUs."""


def draw(answer: Trained) -> None:
    focus, report = answer.focus, answer.report
    if focus is None:
        alert("info", "memory", "No GPU is chosen: choose one above to see whether it fits.")
        return
    details(report.verdicts, focus, spelled(report.scenario.layout), room(focus) if focus.verdict == "fits" else None)
    if (rollout := answer.rollout) is not None:
        generation(rollout, focus)
        if focus.verdict not in ("fits", "does not run"):
            offers(answer, focus)
        return
    if report.scenario.objective is not None:
        paragraph(PEAKS[report.memory.moment])
    finders(answer)
    if focus.verdict != "fits":
        offers(answer, focus)
    bar(report.memory, focus.usable, words.TRAINED, labelled=False)


def finders(answer: Trained) -> None:
    """The smallest and the cheapest GPU of the catalogue on which the step fits as it is laid out, each one click."""
    if not answer.able:
        return
    smallest, cheapest = answer.able[0], least_price(answer.able)
    with st.container(horizontal=True, gap="small", key="finders"):
        label = say("Smallest that fits: {gpus}", gpus=several(answer, smallest))
        quiet_button(label, "smallest", "compress", only, smallest)
        if cheapest is not None:
            usd = words.dollars(answer.report.scenario.layout.gpus * (price_of(cheapest.id) or 0))
            label = say("Cheapest: {gpus}, {usd} per hour", gpus=several(answer, cheapest), usd=usd)
            quiet_button(label, "cheapest", "payments", only, cheapest)


def several(answer: Trained, gpu: GPU) -> str:
    """Number and name of the step's GPUs."""
    count = answer.report.scenario.layout.gpus
    return gpu.name if count == 1 else f"{count:,} × {gpu.name}"


def only(gpu: GPU) -> None:
    change(gpu=(gpu.id,))


def generation(rollout: RolloutReport, focus: TrainingVerdict) -> None:
    """Peak phase, the share of the GPU to give to the engine, and that phase as a bar."""
    lines = [share_of(rollout)]
    if focus.verdict != "does not run" and (focus.verdict != "does not fit" or focus.spare < 0):
        lines.insert(0, say(rollout.reason))
    if 1 <= rollout.concurrency < rollout.sequences:
        lines.append(
            say(
                "Of {n:,} completions the cache holds {some:,.1f} at once; the others wait.",
                n=rollout.sequences,
                some=rollout.concurrency,
            )
        )
    if rollout.host_bytes:
        lines.append(say("{size} of one GPU wait in host memory.", size=words.gib(rollout.host_bytes)))
    st.markdown(words.together(lines))
    bar(peak_of(rollout), focus.usable, words.GENERATED)
    if focus.verdict != "fits":
        other_share(rollout)


def other_share(rollout: RolloutReport) -> None:
    """The share that leaves the engine most and fits next to the trainer, to click."""
    low, high = rollout.share_low, rollout.share_high
    if low is None or high < low or rollout.engine_share == high:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="offer_share"):
        label = say("Use {value}", value=words.value(high))
        st.button(label, key="engine_share_high", type="primary", on_click=use, args=({"engine_share": high},))
        st.markdown(say("**{share:.2f}** of the GPU for the engine", share=high), width="stretch")


def share_of(rollout: RolloutReport) -> str:
    """The range of the share of the GPU that does for the engine and for the trainer."""
    low, every, high = rollout.share_low, rollout.share_all, rollout.share_high
    if low is None:
        return say("No share of the GPU does for the engine.")
    if high < low:
        return say("The engine needs {low:.2f} of the GPU, and the trainer leaves {high:.2f}.", low=low, high=high)
    if every is None or every > high:
        return say("The engine may take {low:.2f} to {high:.2f} of the GPU.", low=low, high=high)
    return say(
        "The engine may take {low:.2f} to {high:.2f} of the GPU; from {every:.2f} on it generates all at once.",
        low=low,
        high=high,
        every=every,
    )


def spelled(layout: TrainingLayout) -> str:
    """Degrees, and how much is sharded."""
    degrees = (f"{name.upper()} {getattr(layout, name):,}" for name in ("tp", "pp", "vp", "dp", "ep", "cp"))
    some = [text for text in degrees if not text.endswith(" 1")]
    return ", ".join([*some, f"ZeRO-{layout.zero}"] if layout.zero else some)


def room(focus: TrainingVerdict) -> str:
    """Sentence on the largest micro-batch and sequence that there is room for."""
    return say(
        "Room for a micro-batch of {batch}, or for sequences of {sequence} tokens.",
        batch=most(focus.max_micro_batch),
        sequence=most(focus.max_sequence),
    )


def offers(answer: Trained, focus: TrainingVerdict) -> None:
    """The least changes on the same GPUs; more of them, with the least that has to change then; and the fewest."""
    assert answer.smaller is not None
    least, spread = answer.smaller.least, answer.more_gpus(focus)
    if least is not None:
        offer(say("Apply the least that fits"), "least", least, said(least.what), kind="primary")
    ways = {} if spread is None else {spread.gpus: spread}
    for count in FEW_GPUS:
        way = answer.over_gpus(focus.gpu, count) if count > focus.gpus else None
        if way is not None:
            ways.setdefault(count, way)
    for count, way in sorted(ways.items()):
        if count > focus.gpus:
            offer(say("Use this"), f"over_{count}", way, on_gpus(way))
            if not way.what:
                break  # what fits as it is, fits on more
    if least is None and not ways and answer.rollout is None:
        caption("No change here makes it fit, nor do 1,024 of these GPUs: tensor or pipeline parallel may.")


def offer(label: str, key: str, together: Together, what: str, kind: Any = "secondary") -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"offer_{key}"):
        st.button(label, key=key, type=kind, on_click=use, args=(together.changes,))
        st.markdown(
            say("**{what}**: fits, {size} headroom per GPU", what=what, size=words.gib(together.spare)), width="stretch"
        )


def said(what: Iterable[Message]) -> str:
    return words.listed(say(part) for part in what)


def on_gpus(spread: Together) -> str:
    """So many GPUs, and what has to change besides."""
    if not spread.what:
        return say("{n:,} GPUs with ZeRO-3", n=spread.gpus)
    return say("{n:,} GPUs with ZeRO-3; {what}", n=spread.gpus, what=said(spread.what))


def by_number(answer: Trained) -> None:
    """A row a GPU, a column a number of them: whether it fits, or with which changes."""
    head = [say("GPU"), *(f"{count}\u00a0×" for count in FEW_GPUS)]
    rows = [
        [find_gpu(verdict.gpu).name, *(cell(answer.over_gpus(verdict.gpu, count)) for count in FEW_GPUS)]
        for verdict in answer.report.verdicts
    ]
    caption(
        "Over several GPUs all that belongs to weights is sharded (ZeRO-3); a cell names the least that has to change."
    )
    small_table(head, rows, numbers=0)


def cell(way: Together | None) -> str:
    """Whether it fits, or what has to change for that."""
    if way is None:
        return "✗"
    return f"✓ {said(way.what)}" if way.what else "✓"


def levers(answer: Trained) -> None:
    """Every change by itself: what it saves, what is left then, what it costs."""
    focus = answer.focus
    if focus is None or focus.verdict == "does not run":
        return
    with drawer(say("What each technique saves"), "levers_drawer", opened=False) as is_open:
        if is_open and answer.smaller is not None:
            name = find_gpu(focus.gpu).name
            caption("Each by itself, on {gpu}, the least change first.", gpu=name)
            for lever in answer.smaller.levers:
                row(lever)


def row(lever: TrainingLever) -> None:
    word, color, icon = BADGES[lever.verdict]
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"technique_{lever.name}"):
        st.markdown(f"**{say(lever.what)}**  \n:small[{say(lever.cost)}]", width=430)
        st.markdown(say("saves **{size}**", size=words.gib(lever.saves)), width=125)
        st.badge(left(lever) if lever.verdict == "does not fit" else say(word), color=color, icon=icon, width=150)
        st.button(say("Use this"), key=f"lever_{lever.name}", on_click=use, args=(lever.changes,))


def left(lever: TrainingLever) -> str:
    """Memory that is still missing."""
    return say("{size} short", size=words.gib(-lever.spare))


def use(changes: Mapping[str, Any]) -> None:
    known = places(("training",))
    change({known[name]: value for name, value in changes.items()})
