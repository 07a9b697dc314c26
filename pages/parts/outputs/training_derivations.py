"""The derivation of each figure on Train. What calc says of a training step is asked for here and nowhere else."""

from collections.abc import Callable

import streamlit as st

from calc.errors import ConfigError
from calc.training import PEAKS, Phase, RolloutReport, TrainingComponent, TrainingVerdict, in_flight, phase_steps
from pages.parts import words
from pages.parts.outputs.derivations import overhead
from pages.parts.outputs.explained_figures import legend, table
from pages.parts.screen import caption, paragraph, small_table
from pages.parts.state.weighed import Trained
from pages.parts.words import field, say


class TrainingDerivations:
    def __init__(self, answer: Trained) -> None:
        self.answer, self.report, self.stage = answer, answer.report, answer.training.most_loaded

    def trained(self) -> None:
        """Trained weights."""
        report = self.report
        if report.scenario.workload.trains_base:
            paragraph("Every weight is trained: **{n:,}**.", n=report.trained_parameters)
            return
        paragraph(
            "Adapters of rank {rank:,} beside frozen matrices, rank · (rows + columns) each: **{n:,}**.",
            rank=report.scenario.workload.lora_rank,
            n=report.trained_parameters,
        )

    def tokens(self) -> None:
        """Sequences of a step, and their tokens."""
        report, work = self.report, self.report.scenario.workload
        paragraph(
            "Micro-batch size × gradient accumulation steps × data parallel: {micro:,} × {times:,} × {dp:,} = "
            "**{batch:,}** sequences (global batch size).",
            micro=work.micro_batch,
            times=work.accumulation,
            dp=report.scenario.layout.dp,
            batch=report.global_batch,
        )
        rows = report.tokens // work.sequence
        if rows != report.global_batch:
            paragraph("Each is a pair, chosen and rejected: **{rows:,}** sequences.", rows=rows)
        paragraph(
            "Times the sequence length: {batch:,} × {sequence:,} = **{tokens:,}** tokens.",
            batch=rows,
            sequence=work.sequence,
            tokens=report.tokens,
        )

    def on_disk(self) -> None:
        """Bytes of a checkpoint, all GPUs together."""
        saved, n = self.report.on_disk, self.report.trained_parameters
        rows = [
            (words.part("weights"), saved.weights, n),
            (words.part("master_weights"), saved.master_weights, n),
            (words.part("optimizer"), saved.optimizer, n),
        ]
        small_table(
            [say("Part"), say("Bytes"), say("Bytes per trainable parameter")],
            [[name, f"{size:,}", f"{size / of:.4g}"] for name, size, of in rows if size],
            numbers=2,
        )
        paragraph("Sum: **{total:,} bytes**.", total=saved.total)
        caption("The weights alone are enough to use the model; the rest is to go on training. All GPUs together.")

    def component(self, name: TrainingComponent) -> None:
        """A part of the memory at the peak: every tensor of it by formula, and what its name covers."""
        self.lines(self.report.memory.moment, name)

    def phase(self, phase: Phase) -> None:
        """Everything that is alive in a phase of the step."""
        self.lines(phase)
        memory = self.report.phases[phase].memory
        paragraph("Sum without overhead: **{total:,} bytes**.", total=memory.total - memory.overhead)

    def lines(self, phase: Phase, of: TrainingComponent | None = None) -> None:
        steps, meanings = phase_steps(self.answer.architecture, self.report.scenario, phase, of)
        if not steps:
            paragraph("Nothing of it is there at that moment.")
            return
        table(steps, say("Bytes"))
        legend(meanings)
        if self.report.scenario.layout.gpus > 1:
            caption("On the GPU with the most memory in use, divided as laid out.")
        if self.report.scenario.layout.vp > 1:
            self.in_flight()

    def in_flight(self) -> None:
        """Pieces of the model that are under way on the most loaded stage."""
        layout, batches, stage = self.report.scenario.layout, self.report.scenario.workload.accumulation, self.stage
        caption(
            "Interleaved 1F1B: stage {stage:,} of {pp:,} has min(2 · ({pp:,} − {stage:,}) + ({vp:,} − 1) · {pp:,} "
            "+ 1, {vp:,} · {batches:,}) = **{n:,}** pieces under way, each for one micro-batch.",
            stage=stage + 1,
            pp=layout.pp,
            vp=layout.vp,
            batches=batches,
            n=in_flight(layout.pp, layout.vp, batches, stage),
        )

    def memory(self) -> None:
        """Every part at the peak, and the sum."""
        memory = self.report.memory
        self.lines(memory.moment)
        paragraph(
            "Sum with the overhead: **{total:,} bytes**, {low} to {high}.",
            total=memory.total,
            low=words.gib(memory.low),
            high=words.gib(memory.high),
        )
        caption(PEAKS[memory.moment])
        overhead(self.report.overhead_items)

    def verdict(self, verdict: TrainingVerdict) -> None:
        """Lines of the verdict's headroom."""
        paragraph(
            "Usable less required: {usable:,} − {required:,} = **{spare:,} bytes**.",
            usable=verdict.usable,
            required=verdict.required,
            spare=verdict.spare,
        )
        rollout = next((report for report in self.report.rollouts if report.gpu == verdict.gpu), None)
        if rollout is not None:
            self.peak_phase(rollout)
            return
        self.largest(verdict)
        self.lines(self.report.memory.moment)

    def peak_phase(self, rollout: RolloutReport) -> None:
        """Memory of trainer and engine in the phase that decides."""
        phase = next(phase for phase in rollout.phases if phase.name == rollout.peak)
        st.markdown(words.rollout_phase(phase.name, rollout.peak))
        parts = [[words.capitalized(say(part.name)), f"{part.bytes:,}"] for part in phase.parts]
        small_table([say("Part"), say("Bytes")], [*parts, [say("Sum"), f"{phase.total:,}"]])

    def largest(self, verdict: TrainingVerdict) -> None:
        """The largest that fits and one step more, each at the high end of the overhead."""
        training, layout = self.answer.training, self.report.scenario.layout

        def spread(gpus: int) -> int | None:
            dp = gpus * layout.dp // layout.gpus
            try:
                return training.changed(layout=layout.model_copy(update={"dp": dp, "zero": 3})).memory().high
            except ConfigError:  # fewer replicas than the experts are spread over
                return None

        needs: list[tuple[str, int | None, int, Callable[[int], int | None]]] = [
            (field("micro_batch"), verdict.max_micro_batch, 1, lambda n: training.memory(micro_batch=n).high),
            (field("sequence"), verdict.max_sequence, 1, lambda n: training.memory(sequence=n).high),
            (say("GPUs with ZeRO-3"), verdict.min_gpus, -layout.gpus // layout.dp, spread),
        ]
        rows = [
            [label, f"{tried:,}", words.gib(high), "✓" if high <= verdict.usable else "✗"]
            for label, n, step, needed in needs
            if n is not None
            for tried in (n, n + step)
            if tried > 0 and (high := needed(tried)) is not None
        ]
        head = [say("What is tried"), say("How many"), say("Need at most"), say("Fits")]
        small_table(head, rows, numbers=2)
