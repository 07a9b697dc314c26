"""The answer first: one sentence, one bar of one GPU, what would make it fit, how fast it is, and overhead that is a
machine's own, from its start-up log."""

from collections.abc import Callable
from functools import partial

import streamlit as st

from calc import Layout, Overhead
from calc.errors import Outside
from calc.hardware import OverheadItem, find_gpu, format_note
from calc.serving import Lever, Verdict
from calc.time import Choice, cheapest, smallest
from calc.training import TrainingVerdict
from pages.parts import words
from pages.parts.inputs import efficiencies
from pages.parts.labels import ORIGINS
from pages.parts.outputs.bar import bar
from pages.parts.outputs.cards import most, no_gpu
from pages.parts.outputs.charts import served
from pages.parts.screen import alert, offer, paragraph, quiet_button
from pages.parts.state.query import WEIGH
from pages.parts.state.scenario import Scenario, places
from pages.parts.state.url import change
from pages.parts.state.weighed import Trained, Weighed
from pages.parts.words import say
from presets import gpus

FEW = 5
"""Levers in sight."""


def draw(answer: Weighed) -> None:
    focus = answer.focus
    if focus is None:
        no_gpu()
        return
    report = answer.report
    buys = room(focus, answer.architecture.max_positions) if focus.verdict == "fits" else None
    details(answer, focus, words.layout(report.scenario.layout), buys)
    finders(answer)
    warnings(answer, focus)
    bar(focus.memory, focus.usable, served([focus.memory]))
    if focus.verdict != "fits":
        offers(answer)


def details(answer: Weighed | Trained, focus: Verdict | TrainingVerdict, layout: str, buys: str | None) -> None:
    """Details that the title leaves out: of several GPUs the one that the figures are of, the layout, the reason, and
    what the headroom would buy."""
    lines = [] if buys is None else [buys]
    if layout and focus.gpus > 1:
        lines.insert(0, say("With {layout}.", layout=layout))
    if len(answer.report.verdicts) > 1:
        gpu = words.on_gpus(focus.gpu, focus.gpus)
        fits = focus.verdict == "fits"
        smallest = say("Figures of the smallest that fits, **{gpu}**.", gpu=gpu)
        lines.insert(0, smallest if fits else say("Figures of the nearest, **{gpu}**.", gpu=gpu))
    if lines:
        st.markdown(words.together(lines))
    if isinstance(focus, Verdict) and focus.verdict == "fits with":
        alert("warning", "tune", "It fits with `{flags}`.", flags=" ".join(focus.flags))
    elif focus.verdict == "tight":
        alert("warning", "balance", "The overhead decides whether it fits.")
    elif focus.verdict == "does not run" or (focus.verdict == "does not fit" and focus.spare >= 0):
        alert("error", "cancel", focus.reason)


def room(focus: Verdict, made_for: int | None) -> str:
    """Sentence on the largest batch and context that there is room for."""
    batch = say("any size") if focus.max_batch is None else f"{focus.max_batch:,}"
    if focus.max_context is None:
        return say("Room for a batch of {batch}, or for a context of any length.", batch=batch)
    return say(
        "Room for a batch of {batch}, or for a context of {context} tokens.",
        batch=batch,
        context=longest(focus, made_for),
    )


def longest(verdict: Verdict, made_for: int | None) -> str:
    """The smaller of what memory holds and what the model was made for, and both where they differ."""
    memory, most_of_both = verdict.max_context_memory, most(verdict.max_context)
    if made_for is None or not verdict.max_context or memory == made_for:
        return most_of_both
    if verdict.max_context == made_for:
        return say("{n} (memory: {memory})", n=most_of_both, memory=most(memory))
    return say("{n} (model: {model:,})", n=most_of_both, model=made_for)


def warnings(answer: Weighed, focus: Verdict) -> None:
    """Warnings: of a context for which the model was not made, and of a format in which the engine does not compute, or
    that its documentation does not know there."""
    longest, scenario, engine = answer.architecture.max_positions, answer.report.scenario, answer.serving.engine
    context, weights = scenario.workload.context, scenario.precision.weights
    if longest is not None and context > longest:
        alert(
            "warning",
            "straighten",
            "The model was made for {most:,} tokens; {context:,} go beyond that.",
            most=longest,
            context=context,
        )

    if not engine.keeps(weights):
        alert(
            "warning",
            "unarchive",
            "{engine} does not compute in {format}: it unpacks these weights when it loads them, to 16 or 32 bits. "
            "The figures are those of the file.",
            engine=engine.title,
            format=weights,
        )

    remark = format_note(find_gpu(focus.gpu), engine.support, weights)
    if remark is not None:
        st.warning(words.capitalized(say(remark)), icon=":material/block:")


def offers(answer: Weighed) -> None:
    """The changes with which it fits, each one click away."""
    if not answer.levers:
        runs = answer.focus is None or answer.focus.verdict != "does not run"
        why = say("No single change makes it fit, nor do 1,024 of these GPUs.")
        st.caption(why if runs else say("No other format makes it run and fit there; another engine or GPU may."))
        return
    paragraph("**What would make it fit**")
    for number, lever in enumerate(answer.levers[:FEW]):
        text = fits_then(words.listed(lever.what), lever.spare)
        offer(text, say("Use this"), f"lever_{number}", use, answer, lever)


def fits_then(changes: str, spare: int) -> str:
    """A sentence on changes with which it fits, and what is left then."""
    return say("**{what}**: fits, {size} headroom per GPU", what=changes, size=words.gib(spare))


def use(answer: Weighed, lever: Lever) -> None:
    """The lever's changes, in the layout that it was computed in: a number of GPUs alone might find another one now."""
    known = places(("serving",), answer.scenario.serving.engine)
    changes = dict(lever.changes)
    if (count := answer.scenario.serving.num_gpus) is not None:
        changes = dict(answer.report.scenario.layout) | changes
        gpus = Layout(**{name: changes[name] for name in Layout.model_fields}).gpus
        changes["num_gpus"] = count if gpus == count else None
    change({known[name]: value for name, value in changes.items()})


def use_layout(answer: Weighed, gpu: str, layout: Layout) -> None:
    """GPUs of one kind in one layout, and no others."""
    known = places(("serving",), answer.scenario.serving.engine)
    change({known[name]: degree for name, degree in layout} | {known["num_gpus"]: None}, gpu=(gpu,))


def finders(answer: Weighed) -> None:
    """The way to one GPU out of the whole catalogue."""
    notice: tuple[str, str] | None = st.session_state.pop("gpu_notice", None)
    if notice is not None:
        st.toast(notice[0], icon=notice[1])
    with st.container(horizontal=True, gap="small", key="finders"):
        help_text = say("Of all GPUs that the engine runs on: the one with the least memory, in the number asked for.")
        label = say("Smallest GPU that fits")
        quiet_button(label, "find_smallest", "compress", take, answer, smallest, help=help_text)
        help_text = say("Of all GPUs with a list price: the fewest that fit, at the lowest price per hour in all.")
        quiet_button(say("Cheapest that fits"), "find_cheapest", "payments", take, answer, cheapest, help=help_text)


def take(answer: Weighed, find: Callable[..., Choice | None]) -> None:
    """Make the result the reader's choice."""
    choice = find(gpus().values(), answer.serving, answer.report.scenario.workload)
    if choice is None:
        text = say("No GPU of the catalogue does, not even with other layouts.")
        st.session_state.gpu_notice = text, ":material/search_off:"
        return
    use_layout(answer, choice.gpu, choice.layout)
    text = words.on_gpus(choice.gpu, choice.layout.gpus)
    if choice.usd_per_hour is not None:
        usd = words.dollars(choice.usd_per_hour)
        text = say("{gpus}: {usd} per hour, by the median of list prices", gpus=text, usd=usd)
    st.session_state.gpu_notice = text, ":material/check:"


def how_fast(answer: Weighed) -> None:
    """Speed; nothing where it does not fit or does not run."""
    efficiencies.idle(answer, training=False)
    speed = answer.speed
    if speed is None:
        return
    efficiencies.node(answer)
    lines = [say("Decoding is limited by {bound}.", bound=words.BOUNDS[speed.bound])]
    if answer.report.scenario.workload.batch > 1:
        rate, span = words.figure(speed.tokens_per_s.expected), words.span(speed.tokens_per_s)
        lines.append(say("In all: {rate} tokens/s ({span}).", rate=rate, span=span))
    lines.append(words.evidence(ORIGINS[speed.origin.basis], speed.origin.rows))
    st.markdown(f":material/speed: {words.together(lines)}", help=say(speed.origin.sentence))


ITEMS: tuple[OverheadItem, ...] = ("cuda_graphs", "libraries", "peak_gap")


def calibration(scenario: Scenario, *, leads_to_weigh: bool = False) -> None:
    """Overhead from a log; nothing without one."""
    overhead = scenario.overhead
    spans = {item: span for item in ITEMS if (span := getattr(overhead, item)) is not None}
    if overhead.overhead_log is None or not spans:  # a link may name a log alone
        return
    named = [
        say("{part} {span} GiB", part=words.PARTS[item], span=f"{span.low:g}" if span.low == span.high else str(span))
        for item, span in spans.items()
    ]
    line = say("Overhead from a log of {log}: {list}.", log=Outside(overhead.overhead_log), list=words.listed(named))
    st.markdown(f":material/tune: {line}")
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="calibrated"):
        take = partial(change, overhead=Overhead())
        quiet_button(say("Remove"), "remove_calibration", "undo", take, help=say("Our own ranges again."))
        if leads_to_weigh:
            st.page_link(WEIGH.script, label=say("Weigh"), icon=":material/scale:", width="content")
