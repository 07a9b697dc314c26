"""The answer for a training step: its parts, its working, and one card for each GPU."""

from collections.abc import Mapping

import streamlit as st

from calc import Architecture, TrainingReport
from calc.training.derivation import phase_steps
from calc.training.moments import Phase
from calc.training.recipe import WIDTH
from calc.training.training_report import PEAKS
from pages.parts import words
from pages.parts.outputs.cards import card
from pages.parts.outputs.charts import CONFIG, LABELS, TRAINED, phase_bars
from pages.parts.outputs.derivations import table

PHASES: dict[Phase, str] = {
    "after_init": "Before the step",
    "forward": "Forward",
    "loss": "Loss",
    "backward": "Backward",
    "optimizer": "Optimizer",
    "after_step": "After the step",
}


def totals(report: TrainingReport) -> None:
    memory = report.memory
    numbers = {
        "Parameters": words.count(report.parameters.total),
        "Trained": words.count(report.trained_parameters),
        "Weights": words.size(memory.weights + memory.master_weights),
        "Gradients, optimizer": words.size(memory.gradients + memory.optimizer),
        "Activations, logits": words.size(memory.activations + memory.logits),
        "Memory, one GPU": words.gib(memory.total),
    }
    with st.grid(6, min_column_width=150, gap="xsmall"):
        for label, value in numbers.items():
            with st.container(border=True, gap="xxsmall"):
                st.metric(label, value)
                with st.popover("Working", type="tertiary", icon=":material/function:"):
                    working(report)


def working(report: TrainingReport) -> None:
    """Every part of the fullest moment, what it is made of, and the sum."""
    memory = report.memory
    rows = [f"| {LABELS[part]} | {getattr(memory, part):,} | {made_of(part, report)} |" for part in TRAINED]
    st.markdown("\n".join(["| Part | Bytes | Made of |", "| --- | ---: | --- |", *rows]))
    st.markdown(f"Sum: **{memory.total:,} bytes**, {words.gib(memory.low)} to {words.gib(memory.high)}.")
    st.caption(f"{PEAKS[memory.moment]} Each tensor of it, by formula, stands under the phases of the step.")
    gpus_in_all = report.scenario.layout.gpus
    if gpus_in_all > 1:
        st.caption(f"Of {gpus_in_all:,} GPUs this is the fullest one.")


def timeline(report: TrainingReport, architecture: Architecture, dark: bool) -> None:
    """Each phase of the step at its fullest, the peak marked, and the derivation of each."""
    names = {phase: PHASES[phase] + (" (peak)" if phase == report.memory.moment else "") for phase in report.phases}
    bars = {names[phase]: fullest.memory for phase, fullest in report.phases.items()}
    st.plotly_chart(phase_bars(bars, dark), key="phases", theme=None, config=CONFIG)
    chosen = st.segmented_control("Derivation", list(names), format_func=names.get, key="phase")
    if chosen is not None:
        steps, legend = phase_steps(architecture, report.scenario, chosen)
        table(steps, "Bytes")
        st.caption("; ".join(f"`{s}` {meaning} = {value:,}" for s, (meaning, value) in legend.items()))


def made_of(part: str, report: TrainingReport) -> str:
    """The formula of a part in words and numbers."""
    asked, trained = report.scenario, f"{report.trained_parameters:,}"
    recipe, work, layout = asked.recipe, asked.workload, asked.layout
    shared = layout.gpus > 1
    divided = " · divided as laid out" if shared else ""
    tokens = f"{work.micro_batch:,} · {work.sequence:,} tokens"
    lora = not work.trains_base
    words: Mapping[str, str] = {
        "weights": f"{trained} · {WIDTH[recipe.weights]} bytes"
        + (f" + frozen weights in {asked.frozen.weights}" if lora else "")
        + divided,
        "master_weights": f"{trained} · 4 bytes{divided}" if recipe.master else "no copy kept",
        "gradients": f"{trained} · {WIDTH[recipe.gradients]} bytes{divided}"
        if report.memory.gradients
        else "not there yet at that moment",
        "optimizer": f"states of {work.optimizer} for {trained} weights{divided}",
        "activations": f"what each layer keeps of {tokens}, recomputation {work.recompute}, {work.attention} attention",
        "logits": f"{tokens} · vocabulary, loss {work.loss}" if report.memory.logits else "not there at that moment",
        "temporaries": "what the optimizer needs for its update, and gradients on their way",
        "overhead": "middle of the measured range",
    }
    return words[part]


def sentence(report: TrainingReport) -> None:
    share = report.trained_parameters / report.parameters.total
    st.caption(
        f"Exactly **{report.trained_parameters:,}** of **{report.parameters.total:,}** parameters are trained "
        f"({share:.2%}). {PEAKS[report.memory.moment]}"
    )


def cards(report: TrainingReport) -> None:
    """One verdict a GPU."""
    with st.grid(5, min_column_width=175, gap="xsmall"):
        for verdict in report.verdicts:
            largest = {"Largest micro-batch": verdict.max_micro_batch, "Longest sequence": verdict.max_sequence}
            card(verdict, largest, "Fewest GPUs, ZeRO-3")
