"""A number that opens its own derivation; and the derivation of each figure on Weigh and on Train: formula, with the
values filled in, result."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import streamlit as st

from calc import GPU, Memory
from calc.errors import ConfigError, Message
from calc.hardware import OverheadItem
from calc.model.derivation import Derivation, Legend, Step, derive
from calc.model.formula import Formula
from calc.model.paper import occurring
from calc.model.rough import gated_rule
from calc.serving.derivation import Derivations, cache_steps, total_cache_steps
from calc.training import PEAKS, Phase, RolloutReport, TrainingComponent, TrainingVerdict, in_flight, phase_steps
from pages.parts import words
from pages.parts.outputs import scripts, tables
from pages.parts.outputs.tables import Column
from pages.parts.screen import caption, paragraph, small_table
from pages.parts.state.weighed import Answer, Trained, Weighed
from pages.parts.words import field, say


class ModelDerivations:
    """Derivations of the parameters of a model."""

    def __init__(self, answer: Answer) -> None:
        self.architecture = answer.architecture
        self.count = answer.architecture.parameters()

    @cached_property
    def derivation(self) -> Derivation:
        return derive(self.architecture)

    def parameters(self) -> None:
        table(self.derivation.parameters, say("Parameters"))
        paragraph("Sum: **{total:,}**", total=self.count.total)
        about = gated_rule(self.architecture)
        if about is not None:
            caption(
                "The usual rough formula {formula} gives {rough:,}, {error:+.1%}: it gives every head keys and "
                "values of its own, counts a tied output head twice, and omits norms and biases.",
                formula="`V·h·2 + L·(4 + 3·M)·h²`",
                rough=about.rough,
                error=about.error,
            )
        legend(self.derivation.legend)

    def active(self) -> None:
        table(self.derivation.active, say("Parameters"))
        paragraph("Sum: **{active:,}**, all that one token passes through.", active=self.count.active)
        legend(self.derivation.legend)

    def tensors(self) -> None:
        """Every weight: name, shape, formula, where it occurs."""
        total = self.count.total
        columns = [
            Column("Tensor", lambda row: row[0].name, "name"),
            Column("Shape", lambda row: words.shape(row[0].shape), "name"),
            Column("Formula", lambda row: str(row[1].formula), "name"),
            Column("Count", lambda row: row[0].count, "whole"),
            Column("Parameters", lambda row: row[0].parameters, "whole"),
            Column("Share", lambda row: row[0].parameters / total, "percent"),
            Column("With values", lambda row: str(row[1].values), "name"),
            Column("Component", lambda row: words.part(row[0].component)),
            Column("Not in total", lambda row: words.part(row[0].excluded_as) if row[0].excluded_as else ""),
        ]
        lines = zip(self.architecture.tensors(), self.derivation.tensors, strict=True)
        tables.draw("tensors", say("Tensors"), columns, lines, most=tables.in_sight("tensors_columns", 6))
        legend(self.derivation.legend)


class ServingDerivations:
    """Derivations of the memory on one kind of GPU."""

    def __init__(self, answer: Weighed, gpu: GPU | None) -> None:
        self.answer, self.gpu, self.report = answer, gpu, answer.report

    @property
    def memory_used(self) -> Memory:
        """Memory of one such GPU."""
        known = {verdict.gpu: verdict.memory for verdict in self.report.verdicts}
        return self.report.memory if self.gpu is None else known[self.gpu.id]

    @cached_property
    def lines(self) -> Derivations:
        return self.answer.derivations(self.gpu)

    def weights(self) -> None:
        report = self.report
        table(self.lines.weights(), say("Bytes"))
        if report.scenario.layout.gpus == 1:
            paragraph("**{bytes:,} bytes** on the GPU.", bytes=self.memory_used.weights)
        else:
            paragraph(
                "**{bytes:,} bytes**, its share, on the GPU with the most memory in use.",
                bytes=self.memory_used.weights,
            )
        paragraph("Once the engine has loaded them:")
        table(self.lines.loaded(), say("Bytes"))
        paragraph("Sum: **{total:,} bytes**.", total=report.loaded.total)

    def cache_per_token(self) -> None:
        cache = self.report.kv_cache
        steps = list(cache_steps(self.answer.architecture, self.report.scenario.precision.kv))
        table(steps, say("Bytes per token"))
        sentences = [
            say("Layers that keep the whole context: **{bytes:,} bytes** per token.", bytes=cache.bytes_per_token)
        ]
        if cache.window_bytes:
            window_bytes = cache.window_bytes
            sentences.append(
                say("Layers with a window stop growing; they hold {bytes:,} bytes a sequence here.", bytes=window_bytes)
            )
        if cache.state_bytes:
            sentences.append(say("States that do not grow: {bytes:,} bytes a sequence.", bytes=cache.state_bytes))
        st.markdown(words.together(sentences))
        legend(occurring(steps, ModelDerivations(self.answer).derivation.legend))

    def cache(self) -> None:
        steps, meanings = total_cache_steps(self.report)
        table(steps, say("Bytes"))
        legend(meanings)
        paragraph("The part on one GPU, as the engine allocates it:")
        table(self.lines.kv_cache(), say("Bytes"))
        legend(self.lines.symbols.occurring())

    def memory(self) -> None:
        """Every part of the most loaded GPU, with the tensors that are alive at the peak."""
        memory = self.memory_used
        table(self.lines.total(), say("Bytes"))
        paragraph(
            "Sum: **{total:,} bytes**, {low} to {high}.",
            total=memory.total,
            low=words.gib(memory.low),
            high=words.gib(memory.high),
        )
        paragraph("Activations, at their peak:")
        table(self.lines.activations(), say("Bytes"))
        legend(self.lines.symbols.occurring())
        paragraph("Overhead, the middle of its range:")
        table(self.lines.overhead(), say("Bytes"))
        overhead(self.lines.overhead_items)

    def verdict(self) -> None:
        """Lines of the verdict's headroom, and of the memory set aside for the cache."""
        table(self.lines.spare(), say("Bytes"))
        budget = self.lines.kv_budget()
        if budget:
            paragraph("Set aside for the KV cache:")
            table(budget, say("Bytes, blocks"))
        paragraph("Required:")
        table(self.lines.total(), say("Bytes"))
        paragraph("In the host's memory:")
        table(self.lines.host_memory(), say("Bytes"))


def overhead(items: Mapping[OverheadItem, tuple[int, int]]) -> None:
    """The range of each part of the overhead."""
    lines = [(words.part(name), words.gib(low), words.gib(high)) for name, (low, high) in items.items()]
    small_table([say("Overhead"), say("from"), say("to")], lines, numbers=2)


COMPUTED = Message("computed")
ORIGINS = {
    "overhead": Message("measured: a range of public logs"),
    "memory": Message("computed, the overhead in it measured"),
}
"""Origin of a figure, by its name in links, if not from the model's config alone."""
FIGURES = scripts.element("weighbridge_figures", "figures.js")


def figures(
    key: str,
    numbers: Iterable[tuple[str, str, str, Callable[[], None]]],
    columns: int = 6,
    colors: Mapping[str, str] | None = None,
) -> None:
    """Numbers next to each other: the name of each in links, its label, its value, and what draws its derivation, which
    opens below and says where the number comes from; with colours, by name, they are the key of a bar. One element:
    each costs a browser a millisecond or two at every move of a slider."""
    shown, colors = list(numbers), colors or {}
    opened = {name: bool(st.session_state.get(f"derive_{name}")) for name, *_ in shown}

    def turn() -> None:
        for name, is_open in opened.items():
            st.session_state[f"derive_{name}"] = name == st.session_state[key].asked and not is_open

    FIGURES(
        key=key,
        data={
            "columns": columns,
            "derivation": say("Derivation"),
            "figures": [
                {"id": name, "label": label, "value": value, "open": opened[name], "color": colors.get(name)}
                for name, label, value, _ in shown
            ],
        },
        on_asked_change=turn,
    )
    for name, label, _, draw in shown:
        if opened[name]:
            with st.container(border=True):
                st.markdown(f"**{label}** · {say(ORIGINS.get(name, COMPUTED))}")
                draw()


def derivation(name: str, of: str, draw: Callable[[], None], label: str | None = None) -> None:
    """A button that opens the derivation of a figure, which is computed when it is opened."""
    with st.popover(
        label or say("Derivation"),
        type="tertiary",
        icon=":material/function:",
        help=say("Derivation of {figure}", figure=of),
        key=f"derive_{name}",
        on_change="rerun",
    ) as container:
        if container.open:
            draw()


def table(steps: Iterable[Step], result: str) -> None:
    """The result before its formula, so that a telephone shows it."""
    steps, head = list(steps), [say("Part"), result]
    rows = [[words.part(step.what), f"{step.result:,}"] for step in steps]
    if any(step.formula for step in steps):
        head += [say("Formula"), say("With values")]
        rows = [[*row, code(step.formula), code(step.values)] for row, step in zip(rows, steps, strict=True)]
    small_table(head, rows)


def code(formula: Formula | None) -> str:
    return "" if formula is None else f"`{formula}`"


def legend(meanings: Legend) -> None:
    """Legend of the symbols."""
    if meanings:
        texts = ((symbol, of if "_" in of else say(of), value) for symbol, (of, value) in meanings.items())
        rows = (
            say("`{symbol}` {meaning} = {value:,}", symbol=symbol, meaning=meaning, value=value)
            for symbol, meaning, value in texts
        )
        st.caption(words.listed(rows))


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
        sizes = {"weights": saved.weights, "master_weights": saved.master_weights, "optimizer": saved.optimizer}
        small_table(
            [say("Part"), say("Bytes"), say("Bytes per trainable parameter")],
            [[words.part(name), f"{size:,}", f"{size / n:.4g}"] for name, size in sizes.items() if size],
            numbers=2,
        )
        paragraph("Sum: **{total:,} bytes**.", total=saved.total)
        caption(
            "The weights alone are enough to use the model; the rest is needed to continue training. All GPUs together."
        )

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
            paragraph("It takes nothing at that moment.")
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
        st.markdown(words.phase(phase.name, rollout.peak))
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
        head = [say("Changes that are tried"), say("How many"), say("Need at most"), say("Fits")]
        small_table(head, rows, numbers=2)
