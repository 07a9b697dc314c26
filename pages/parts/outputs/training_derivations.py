"""The derivation of each figure on Train. What calc says of a training step is asked for here and nowhere else."""

from functools import cached_property
from typing import Any

import streamlit as st

from calc.errors import Message
from calc.model.derivation import Step
from calc.training.recipe import WIDTH
from calc.training.saved_derivation import Legend, kept_steps
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

    @cached_property
    def kept(self) -> tuple[list[Step], Legend]:
        return kept_steps(self.answer.architecture, self.report.scenario)

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

    def weights(self) -> None:
        self.parts("weights")

    def master_weights(self) -> None:
        self.parts("master_weights")

    def gradients(self) -> None:
        self.parts("gradients")

    def optimizer(self) -> None:
        self.parts("optimizer")

    def logits(self) -> None:
        self.parts("logits")

    def activations(self) -> None:
        """What the layers keep, by formula."""
        self.parts("activations")
        st.markdown(say("What a layer keeps of a micro-batch for its backward pass:"))
        steps, meanings = self.kept
        table(steps, say("Bytes"))
        legend(meanings)

    def memory(self) -> None:
        """Every part at the peak, and the sum."""
        memory = self.report.memory
        self.parts(*words.TRAINED)
        st.markdown(
            say(
                "Sum: **{total:,} bytes**, {low} to {high}.",
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
        self.parts(*words.TRAINED)

    def parts(self, *names: str) -> None:
        """Bytes of some parts, and what they are made of."""
        rows = [(words.part(name), f"{getattr(self.report.memory, name):,}", say(self.made_of(name))) for name in names]
        st.markdown(words.table([say("Part"), say("Bytes"), say("Made of")], rows))
        if self.report.scenario.layout.gpus > 1:
            st.caption(say("On the most loaded GPU, divided as laid out."))

    def made_of(self, part: str) -> Message:
        """What a part is made of, in words and numbers."""
        report, asked = self.report, self.report.scenario
        recipe, work, trained = asked.recipe, asked.workload, report.trained_parameters
        tokens: dict[str, Any] = {"micro_batch": work.micro_batch, "sequence": work.sequence}
        match part:
            case "weights" if work.trains_base:
                return Message("{n:,} · {width} bytes", n=trained, width=WIDTH[recipe.weights])
            case "weights":
                return Message(
                    "{n:,} · {width} bytes, and frozen weights in {format}",
                    n=trained,
                    width=WIDTH[recipe.weights],
                    format=asked.frozen.weights,
                )
            case "master_weights" if recipe.master:
                return Message("{n:,} · {width} bytes", n=trained, width=4)
            case "master_weights":
                return Message("no copy kept")
            case "gradients" if report.memory.gradients:
                return Message("{n:,} · {width} bytes", n=trained, width=WIDTH[recipe.gradients])
            case "optimizer":
                return Message(
                    "states of {optimizer} for {n:,} weights",
                    optimizer=words.CHOICES["optimizer"][work.optimizer],
                    n=trained,
                )
            case "activations":
                return Message("what each layer keeps of {micro_batch:,} · {sequence:,} tokens", **tokens)
            case "logits" if report.memory.logits:
                return Message("{micro_batch:,} · {sequence:,} tokens · vocabulary", **tokens)
            case "overhead":
                return Message("the middle of the measured range")
        return Message("not there at that moment")
