"""The answer on Train: its parts, and one card for each GPU."""

from functools import partial
from typing import get_args

import streamlit as st

from calc.hardware.custom_gpu import find_gpu
from calc.training.moments import Component
from calc.training.training_report import PEAKS
from pages.parts import words
from pages.parts.outputs import charts
from pages.parts.outputs.cards import card, most
from pages.parts.outputs.derivations import ModelDerivations
from pages.parts.outputs.figure import derivation, figures
from pages.parts.outputs.training_derivations import TrainingDerivations
from pages.parts.state.weighed import Trained
from pages.parts.words import say


def totals(answer: Trained) -> None:
    report, step, model = answer.report, TrainingDerivations(answer), ModelDerivations(answer)
    memory = report.memory
    figures(
        [
            ("parameters", say("Parameters"), words.count(report.parameters.total), model.parameters),
            ("trained", say("Trainable parameters"), words.count(report.trained_parameters), step.trained),
            ("memory", say("Memory per GPU"), words.gib(memory.total), step.memory),
            *(
                (name, words.part(name), words.size(getattr(memory, name)), partial(step.component, name))
                for name in get_args(Component)
            ),
        ],
        columns=5,
    )


def sentence(answer: Trained) -> None:
    report = answer.report
    st.caption(
        say(
            "Exactly **{trained:,}** of **{total:,}** parameters are trainable ({share}).",
            trained=report.trained_parameters,
            total=report.parameters.total,
            share=words.percent(report.trained_share),
        )
    )


def timeline(answer: Trained) -> None:
    """Each phase of the step at its fullest, the peak marked, and the derivation of each."""
    report, step = answer.report, TrainingDerivations(answer)
    st.subheader(say("Memory vs. phase of the step"), anchor=False)
    st.caption(say(PEAKS[report.memory.moment]))
    charts.draw("phases", charts.phase_bars(report, charts.theme()))
    with st.container(horizontal=True, gap="xsmall"):
        for phase in report.phases:
            derivation(f"phase_{phase}", words.phase(phase, report.memory.moment), partial(step.phase, phase))


def cards(answer: Trained) -> None:
    """One verdict a GPU."""
    step = TrainingDerivations(answer)
    with st.grid(5, min_column_width=175, gap="xsmall"):
        for verdict in answer.report.verdicts:
            lines = [
                say("Max micro-batch size: **{n}**", n=most(verdict.max_micro_batch)),
                say("Max sequence length: **{n}**", n=most(verdict.max_sequence)),
                fewest_sharded(verdict.min_gpus),
            ]
            with st.container(border=True, height="stretch", gap="xsmall"):
                card(verdict, lines)
                derivation(f"verdict_{verdict.gpu}", find_gpu(verdict.gpu).name, partial(step.verdict, verdict))


def fewest_sharded(n: int | None) -> str:
    """On how few GPUs it fits with everything sharded over them."""
    if n is None:
        return say("Min. GPUs (ZeRO-3): **more than 1,024**")
    return say("Min. GPUs (ZeRO-3): **{n:,}**", n=n)
