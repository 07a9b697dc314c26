"""The derivation of each figure on Train. What calc says of a training step is asked for here and nowhere else."""

import streamlit as st

from calc.training.derivation import phase_steps
from calc.training.moments import Component, Phase
from calc.training.training_report import PEAKS
from calc.training.training_verdict import TrainingVerdict
from pages.parts import words
from pages.parts.outputs.derivations import overhead
from pages.parts.outputs.figure import legend, table
from pages.parts.state.weighed import Trained
from pages.parts.words import say


class TrainingDerivations:
    def __init__(self, answer: Trained) -> None:
        self.answer, self.report = answer, answer.report

    def trained(self) -> None:
        """Which weights are trained."""
        report = self.report
        if report.scenario.workload.trains_base:
            st.markdown(say("Every weight is trained: **{n:,}**.", n=report.trained_parameters))
            return
        st.markdown(
            say(
                "Adapters of rank {rank:,} beside frozen matrices, rank · (rows + columns) each: **{n:,}**.",
                rank=report.scenario.workload.lora_rank,
                n=report.trained_parameters,
            )
        )

    def component(self, name: Component) -> None:
        """A part of the memory at the peak: every tensor of it by formula, and what its name covers."""
        self.lines(self.report.memory.moment, name)

    def phase(self, phase: Phase) -> None:
        """Everything that is alive in a phase of the step."""
        self.lines(phase)
        memory = self.report.phases[phase].memory
        st.markdown(say("Sum without overhead: **{total:,} bytes**.", total=memory.total - memory.overhead))

    def lines(self, phase: Phase, of: Component | None = None) -> None:
        steps, meanings = phase_steps(self.answer.architecture, self.report.scenario, phase, of)
        if not steps:
            st.markdown(say("Nothing of it is there at that moment."))
            return
        table(steps, say("Bytes"))
        legend(meanings)
        if self.report.scenario.layout.gpus > 1:
            st.caption(say("On the most loaded GPU, divided as laid out."))

    def memory(self) -> None:
        """Every part at the peak, and the sum."""
        memory = self.report.memory
        self.lines(memory.moment)
        st.markdown(
            say(
                "Sum with the overhead: **{total:,} bytes**, {low} to {high}.",
                total=memory.total,
                low=words.gib(memory.low),
                high=words.gib(memory.high),
            )
        )
        st.caption(say(PEAKS[memory.moment]))
        overhead(self.report.overhead_items)

    def verdict(self, verdict: TrainingVerdict) -> None:
        """What the verdict hangs on."""
        st.markdown(
            say(
                "Usable less required: {usable:,} − {required:,} = **{spare:,} bytes**.",
                usable=verdict.usable,
                required=verdict.required,
                spare=verdict.spare,
            )
        )
        self.lines(self.report.memory.moment)
