"""The numbers on Train: the step's, those of one GPU, one card for each GPU, and the phases."""

from collections.abc import Callable
from functools import partial
from typing import get_args

import streamlit as st

from calc.hardware import find_gpu
from calc.training import PEAKS, TrainingComponent, TrainingVerdict
from calc.units import GIB
from pages.parts import words
from pages.parts.outputs import charts, plot
from pages.parts.outputs.cards import BADGES, head, headroom, limit, most
from pages.parts.outputs.derivations import ModelDerivations, overhead
from pages.parts.outputs.explained_figures import derivation, figures
from pages.parts.outputs.gpu_rows import MARKS, cards_or_table, verdict_table
from pages.parts.outputs.tables import Column
from pages.parts.outputs.training_answer import said
from pages.parts.outputs.training_derivations import TrainingDerivations
from pages.parts.screen import caption
from pages.parts.state.weighed import Trained
from pages.parts.words import say


def totals(answer: Trained) -> None:
    """The step's model and settings, and the parts that add up to the bar."""
    report, step, model = answer.report, TrainingDerivations(answer), ModelDerivations(answer)
    memory = report.memory
    figures(
        "step",
        [
            ("parameters", say("Parameters"), words.count(report.parameters.total), model.parameters),
            ("trained", say("Trainable parameters"), words.count(report.trained_parameters), step.trained),
            ("tokens", say("Tokens per step"), f"{report.tokens:,}", step.tokens),
            ("on_disk", say("Checkpoint on disk"), words.size(report.on_disk.total), step.on_disk),
            ("memory", memory_label(answer), words.gib(memory.total), step.memory),
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


def memory_label(answer: Trained) -> str:
    """Note that the sum below leaves out the engine."""
    return say("Memory per GPU") if answer.rollout is None else say("Memory per GPU, trainer alone")


def timeline(answer: Trained) -> None:
    """Each phase of the step at its peak, the largest marked, and the derivation of each."""
    report, step = answer.report, TrainingDerivations(answer)
    if answer.rollout is not None:
        bars = charts.rollout_bars(answer.rollout, charts.theme())
        plot.draw("rollout_phases", say("Trainer and engine in each phase"), bars, titled=True)
        caption("Below, the trainer alone.")
    caption(PEAKS[report.memory.moment])
    plot.draw("phases", say("Memory vs. phase of the step"), charts.phase_bars(report, charts.theme()))
    caption("What is alive in each phase, by formula:")
    with st.container(horizontal=True, gap="xsmall", key="phase_derivations"):
        for phase in report.phases:
            name = words.phase(phase, report.memory.moment)
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
        notes(verdict)
        reasons(answer, verdict)


def only_gpu(answer: Trained, verdict: TrainingVerdict) -> None:
    """Details of the GPU that the title and the figures below it leave out."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=f"card_{verdict.gpu}"):
        st.markdown(fewest_sharded(answer, verdict), width="content")
        reasons(answer, verdict)
    notes(verdict)


def notes(verdict: TrainingVerdict) -> None:
    """Limits of the card."""
    for sentence in verdict.notes:
        st.caption(f":material/info: {words.capitalized(say(sentence))}")


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
        return None if (way := spread[verdict.gpu]) is None else said(way.what)

    columns = [
        Column(say("GPU"), lambda verdict: find_gpu(verdict.gpu).name),
        Column(say("Verdict"), lambda verdict: f"{MARKS[verdict.verdict]} {say(BADGES[verdict.verdict][0])}"),
        Column(say("Headroom, GiB"), lambda verdict: verdict.spare / GIB, "two", say("Below zero: short by so many.")),
        Column(say("Max micro-batch size"), lambda verdict: limit(verdict.max_micro_batch), "whole"),
        Column(say("Max sequence length"), lambda verdict: limit(verdict.max_sequence), "whole"),
        Column(say("Min. GPUs (ZeRO-3)"), fewest, "whole"),
        Column(say("With"), changes, help=say("What has to change for so few GPUs beside ZeRO-3.")),
        Column(say("Usable, GiB"), lambda verdict: verdict.usable / GIB, "two"),
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
    return say("Min. GPUs (ZeRO-3): **{n:,}**, with: {what}", n=spread.gpus, what=said(spread.what))
