"""The answer on Train: one sentence, one bar of one GPU, which GPU does, what makes it fit, and what each technique
saves; the step's numbers, one card for each GPU, and the phases."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, get_args

import streamlit as st

from calc import TrainingLayout
from calc.errors import Message
from calc.hardware import find_gpu
from calc.time import least_price, price_of
from calc.training import PEAKS, CombinedLever, RolloutReport, TrainingComponent, TrainingLever, TrainingVerdict
from calc.units import GIB
from pages.parts import words
from pages.parts.inputs.control import drawer
from pages.parts.outputs import charts, plot
from pages.parts.outputs.answer import details, fits_then
from pages.parts.outputs.bar import bar
from pages.parts.outputs.cards import BADGES, head, headroom, limit, most, no_gpu, notes
from pages.parts.outputs.charts import peak_of
from pages.parts.outputs.derivations import ModelDerivations, TrainingDerivations, derivation, figures, overhead
from pages.parts.outputs.gpu_rows import MARKS, cards_or_table, verdict_table
from pages.parts.outputs.tables import Column
from pages.parts.screen import caption, offer, paragraph, quiet_button, small_table
from pages.parts.state.scenario import places
from pages.parts.state.trained_as import DEGREES
from pages.parts.state.url import change
from pages.parts.state.weighed import Trained
from pages.parts.words import say

FEW_GPUS = (1, 2, 4, 8)
"""Usual numbers of GPUs."""


def draw(answer: Trained) -> None:
    focus, report = answer.focus, answer.report
    if focus is None:
        no_gpu()
        return
    sentence = "Room for a micro-batch of {batch}, or for sequences of {sequence} tokens."
    room = say(sentence, batch=most(focus.max_micro_batch), sequence=most(focus.max_sequence))
    details(answer, focus, spelled(report.scenario.layout), room if focus.verdict == "fits" else None)
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
    smallest, cheapest, count = answer.able[0].id, least_price(answer.able), answer.report.scenario.layout.gpus
    with st.container(horizontal=True, gap="small", key="finders"):
        label = say("Smallest that fits: {gpus}", gpus=words.on_gpus(smallest, count))
        quiet_button(label, "smallest", "compress", partial(change, gpu=(smallest,)))
        if cheapest is not None:
            usd = words.dollars(count * (price_of(cheapest.id) or 0))
            label = say("Cheapest: {gpus}, {usd} per hour", gpus=words.on_gpus(cheapest.id, count), usd=usd)
            quiet_button(label, "cheapest", "payments", partial(change, gpu=(cheapest.id,)))


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
    text = say("**{share:.2f}** of the GPU for the engine", share=high)
    label = say("Use {value}", value=words.value(high))
    offer(text, label, "engine_share_high", use, {"engine_share": high}, type="primary")


def share_of(rollout: RolloutReport) -> str:
    """The range of the share of the GPU that does for the engine and for the trainer."""
    low, every, high = rollout.share_low, rollout.share_all, rollout.share_high
    if low is None:
        return say("No share of the GPU is enough for the engine.")
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
    degrees = [f"{name.upper()} {n:,}" for name in DEGREES if (n := getattr(layout, name)) > 1]
    return ", ".join([*degrees, f"ZeRO-{layout.zero}"] if layout.zero else degrees)


def offers(answer: Trained, focus: TrainingVerdict) -> None:
    """The least changes on the same GPUs; more of them, with the least that has to change then; and the fewest."""
    assert answer.smaller is not None
    least, spread = answer.smaller.least, answer.more_gpus(focus)
    if least is not None:
        text = fits_then(words.listed(least.what), least.spare)
        offer(text, say("Apply the least that fits"), "least", use, least.changes, type="primary")
    ways = {} if spread is None else {spread.gpus: spread}
    for count in FEW_GPUS:
        way = answer.over_gpus(focus.gpu, count) if count > focus.gpus else None
        if way is not None:
            ways.setdefault(count, way)
    for count, way in sorted(ways.items()):
        if count <= focus.gpus:
            continue
        what = say("{n:,} GPUs with ZeRO-3", n=way.gpus)
        if way.what:
            what = say("{n:,} GPUs with ZeRO-3; {what}", n=way.gpus, what=words.listed(way.what))
        offer(fits_then(what, way.spare), say("Use this"), f"over_{count}", use, way.changes)
        if not way.what:
            break  # what fits as it is, fits on more
    if least is None and not ways and answer.rollout is None:
        caption("No change here makes it fit, nor do 1,024 of these GPUs: tensor or pipeline parallel may.")


def by_number(answer: Trained) -> None:
    """A row a GPU, a column a number of them: whether it fits, or with which changes."""

    def cell(way: CombinedLever | None) -> str:
        if way is None:
            return "✗"
        return f"✓ {words.listed(way.what)}" if way.what else "✓"

    head = [say("GPU"), *(f"{count}\u00a0×" for count in FEW_GPUS)]
    rows = [
        [find_gpu(verdict.gpu).name, *(cell(answer.over_gpus(verdict.gpu, count)) for count in FEW_GPUS)]
        for verdict in answer.report.verdicts
    ]
    caption(
        "Over several GPUs all that belongs to weights is sharded (ZeRO-3); a cell names the least that has to change."
    )
    small_table(head, rows, numbers=0)


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
        if lever.verdict == "does not fit":
            word = Message("{size} short", size=words.gib(-lever.spare))
        st.badge(say(word), color=color, icon=icon, width=150)
        st.button(say("Use this"), key=f"lever_{lever.name}", on_click=use, args=(lever.changes,))


def use(changes: Mapping[str, Any]) -> None:
    known = places(("training",))
    change({known[name]: value for name, value in changes.items()})


def totals(answer: Trained) -> None:
    """The step's model and settings, and the parts that add up to the bar."""
    report, step, model = answer.report, TrainingDerivations(answer), ModelDerivations(answer)
    memory = report.memory
    memory_label = say("Memory per GPU") if answer.rollout is None else say("Memory per GPU, trainer alone")
    figures(
        "step",
        [
            ("parameters", say("Parameters"), words.count(report.parameters.total), model.parameters),
            ("trained", say("Trainable parameters"), words.count(report.trained_parameters), step.trained),
            ("tokens", say("Tokens per step"), f"{report.tokens:,}", step.tokens),
            ("on_disk", say("Checkpoint on disk"), words.size(report.on_disk.total), step.on_disk),
            ("memory", memory_label, words.gib(memory.total), step.memory),
        ],
        columns=5,
    )
    if report.trained_parameters == report.parameters.total:
        text = say("All **{total:,}** parameters are trainable.", total=report.parameters.total)
    elif report.trained_parameters > report.parameters.total:
        more = report.trained_parameters - report.parameters.total
        sentence = "All **{total:,}** parameters are trainable, and **{more:,}** of a value model."
        text = say(sentence, total=report.parameters.total, more=more)
    else:
        text = say(
            "Exactly **{trained:,}** of **{total:,}** parameters are trainable ({share}).",
            trained=report.trained_parameters,
            total=report.parameters.total,
            share=words.percent(report.trained_parameters / report.parameters.total),
        )
    st.caption(text)


def parts(answer: Trained) -> None:
    """Parts of one GPU's memory, in the colours of its bar."""
    report, step = answer.report, TrainingDerivations(answer)
    memory = report.memory
    if answer.rollout is not None:
        caption("The trainer alone:")
    sizes = {name: size for name in words.TRAINED if (size := getattr(memory, name))}
    of: dict[str, Callable[[], None]] = {name: partial(step.component, name) for name in get_args(TrainingComponent)}
    of["overhead"] = partial(overhead, report.overhead_items)
    numbers = [(name, words.part(name), words.size(size), of[name]) for name, size in sizes.items()]
    figures(
        "parts",
        numbers,
        columns=len(numbers) if len(numbers) < 6 else -(-len(numbers) // 2),
        colors={name: words.color(name) for name in sizes},
    )


def timeline(answer: Trained) -> None:
    """Each phase of the step at its peak, the largest marked, and the derivation of each."""
    report, step = answer.report, TrainingDerivations(answer)
    if answer.rollout is not None:
        peak, title = answer.rollout.peak, say("Trainer and engine in each phase")
        both = {words.phase(phase.name, peak): charts.rollout_memory(phase) for phase in answer.rollout.phases}
        plot.draw("rollout_phases", title, charts.step_bars(both, say("Phase of the step")), titled=True)
        caption("Below, the trainer alone.")
    caption(PEAKS[report.memory.moment])
    names = {phase: words.phase(phase, report.memory.moment) for phase in report.phases}
    peaks = {names[phase]: peak.memory for phase, peak in report.phases.items()}
    plot.draw("phases", say("Memory vs. phase of the step"), charts.step_bars(peaks, say("Phase of the step")))
    caption("What is alive in each phase, by formula:")
    with st.container(horizontal=True, gap="xsmall", key="phase_derivations"):
        for phase, name in names.items():
            derivation(f"phase_{phase}", name, partial(step.phase, phase), label=name)


def gpus(answer: Trained) -> None:
    """One verdict a GPU: a few as cards, more as a table that sorts."""
    verdicts = answer.report.verdicts
    if len(verdicts) == 1:
        only_gpu(answer, verdicts[0])
    else:
        cards_or_table(verdicts, partial(gpu_card, answer), partial(table, answer))


def gpu_card(answer: Trained, verdict: TrainingVerdict) -> None:
    lines = [
        say("Max micro-batch size: **{n}**", n=most(verdict.max_micro_batch)),
        say("Max sequence length: **{n}**", n=most(verdict.max_sequence)),
        fewest_sharded(answer, verdict),
    ]
    with st.container(border=True, height="stretch", gap="xsmall", key=f"card_{verdict.gpu}"):
        head(verdict)
        st.markdown(headroom(verdict))
        st.markdown("  \n".join(lines))
        caption(verdict.reason)
        notes(verdict.notes)
        reasons(answer, verdict)


def only_gpu(answer: Trained, verdict: TrainingVerdict) -> None:
    """Details of the GPU that the title and the figures below it leave out."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"card_{verdict.gpu}"):
        st.markdown(fewest_sharded(answer, verdict), width="content")
        reasons(answer, verdict)
    notes(verdict.notes)


def reasons(answer: Trained, verdict: TrainingVerdict) -> None:
    """The derivation of a verdict."""
    name = find_gpu(verdict.gpu).name
    derivation(f"verdict_{verdict.gpu}", name, partial(TrainingDerivations(answer).verdict, verdict))


def table(answer: Trained) -> None:
    """A row a GPU."""
    verdicts = {verdict.gpu: verdict for verdict in answer.report.verdicts}
    spread = {
        gpu: None if verdict.min_gpus is not None else answer.more_gpus(verdict) for gpu, verdict in verdicts.items()
    }

    def fewest(verdict: TrainingVerdict) -> int | None:
        return verdict.min_gpus if (way := spread[verdict.gpu]) is None else way.gpus

    def changes(verdict: TrainingVerdict) -> str | None:
        return None if (way := spread[verdict.gpu]) is None else words.listed(way.what)

    columns = [
        Column("GPU", lambda verdict: find_gpu(verdict.gpu).name),
        Column("Verdict", lambda verdict: f"{MARKS[verdict.verdict]} {say(BADGES[verdict.verdict][0])}"),
        Column("Headroom, GiB", lambda verdict: verdict.spare / GIB, "two", "Below zero: the GPU lacks as many."),
        Column("Max micro-batch size", lambda verdict: limit(verdict.max_micro_batch), "whole"),
        Column("Max sequence length", lambda verdict: limit(verdict.max_sequence), "whole"),
        Column("Min. GPUs (ZeRO-3)", fewest, "whole"),
        Column("With", changes, help="Changes that so few GPUs need, besides ZeRO-3."),
        Column("Usable, GiB", lambda verdict: verdict.usable / GIB, "two"),
    ]
    verdict_table(answer.scenario, "training_rows", columns, verdicts.values(), partial(gpu_card, answer))


def fewest_sharded(answer: Trained, verdict: TrainingVerdict) -> str:
    """Fewest GPUs on which it fits with everything sharded over them, and what has to change where none do as it is."""
    if verdict.min_gpus is not None:
        return say("Min. GPUs (ZeRO-3): **{n:,}**", n=verdict.min_gpus)
    spread = answer.more_gpus(verdict)
    if spread is None and answer.report.scenario.objective is not None:
        return say("Min. GPUs (ZeRO-3): **none**")
    if spread is None:
        return say("Min. GPUs (ZeRO-3): **none**; tensor or pipeline parallel may do")
    return say("Min. GPUs (ZeRO-3): **{n:,}**, with: {what}", n=spread.gpus, what=words.listed(spread.what))
