"""The answer on Train: one sentence, one bar of one GPU, what would make it fit, and what each technique saves."""

from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from calc.errors import Message
from calc.hardware.custom_gpu import find_gpu
from calc.training.colocated import RolloutReport
from calc.training.layout import TrainingLayout
from calc.training.levers import Together, TrainingLever
from calc.training.report import PEAKS
from calc.training.verdict import TrainingVerdict
from pages.parts import words
from pages.parts.inputs.drawer import drawer
from pages.parts.outputs.answer import details
from pages.parts.outputs.bar import bar
from pages.parts.outputs.cards import BADGES, most
from pages.parts.outputs.rollout_memory import peak_of
from pages.parts.state.scenario import places
from pages.parts.state.url import change
from pages.parts.state.weighed import Trained
from pages.parts.words import say


def draw(answer: Trained) -> None:
    focus, report = answer.focus, answer.report
    if focus is None:
        st.info(say("No GPU is chosen: choose one above to see whether it fits."), icon=":material/memory:")
        return
    details(report.verdicts, focus, spelled(report.scenario.layout), room(focus) if focus.verdict == "fits" else None)
    if (rollout := answer.rollout) is not None:
        generation(rollout, focus)
        return
    if report.scenario.objective is not None:
        st.markdown(say(PEAKS[report.memory.moment]))
    bar(report.memory, focus.usable, words.TRAINED)
    if focus.verdict != "fits":
        offers(answer, focus)
    levers(answer, focus)


def generation(rollout: RolloutReport, focus: TrainingVerdict) -> None:
    """Which phase is the peak, the share of the GPU to give to the engine, and that phase as a bar."""
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
    st.markdown(" ".join(lines))
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
    """Its degrees, and how much is sharded."""
    degrees = (f"{name.upper()} {getattr(layout, name):,}" for name in ("tp", "pp", "vp", "dp", "ep", "cp"))
    some = [text for text in degrees if not text.endswith(" 1")]
    return ", ".join([*some, f"ZeRO-{layout.zero}"] if layout.zero else some)


def room(focus: TrainingVerdict) -> str:
    """What the headroom would buy."""
    return say(
        "Room for a micro-batch of {batch}, or for sequences of {sequence} tokens.",
        batch=most(focus.max_micro_batch),
        sequence=most(focus.max_sequence),
    )


def offers(answer: Trained, focus: TrainingVerdict) -> None:
    """The least changes on the same GPUs, and the fewest GPUs with what has to change for that."""
    assert answer.smaller is not None
    least, spread = answer.smaller.least, answer.more_gpus(focus)
    if least is not None:
        offer(say("Apply the least that fits"), "least", least, said(least.what), kind="primary")
    if spread is not None and spread.gpus > focus.gpus:
        offer(say("Use this"), "more_gpus", spread, on_gpus(spread))
    if least is None and spread is None:
        st.caption(say("No change here makes it fit, nor do 1,024 of these GPUs: tensor or pipeline parallel may."))


def offer(label: str, key: str, together: Together, what: str, kind: Any = "secondary") -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"offer_{key}"):
        st.button(label, key=key, type=kind, on_click=use, args=(together.changes,))
        st.markdown(
            say("**{what}**: fits, {size} headroom per GPU", what=what, size=words.gib(together.spare)), width="stretch"
        )


def said(what: Iterable[Message]) -> str:
    return words.listed(say(part) for part in what)


def on_gpus(spread: Together) -> str:
    """So many GPUs, and what has to change beside that."""
    if not spread.what:
        return say("{n:,} GPUs with ZeRO-3", n=spread.gpus)
    return say("{n:,} GPUs with ZeRO-3; {what}", n=spread.gpus, what=said(spread.what))


def levers(answer: Trained, focus: TrainingVerdict) -> None:
    """Every change by itself: what it saves, what is left then, what it costs."""
    with drawer(say("What each technique saves"), "levers_drawer", opened=False) as is_open:
        if is_open and answer.smaller is not None:
            name = find_gpu(focus.gpu).name
            st.caption(say("Each by itself, on {gpu}, the least change first.", gpu=name))
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
    """What is missing still."""
    return say("{size} short", size=words.gib(-lever.spare))


def use(changes: Mapping[str, Any]) -> None:
    known = places(("training",))
    change({known[name]: value for name, value in changes.items()})
