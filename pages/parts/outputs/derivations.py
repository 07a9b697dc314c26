"""The derivation of each figure on Weigh: formula, the same with the values filled in, result."""

from collections.abc import Mapping
from functools import cached_property

import streamlit as st

from calc import GPU, Memory
from calc.hardware import OverheadItem
from calc.model.derivation import Derivation, derive
from calc.model.rough import gated_rule
from calc.serving.derivation import Derivations, cache_steps, total_cache_steps
from pages.parts import words
from pages.parts.outputs import tables
from pages.parts.outputs.explained_figures import legend, table
from pages.parts.outputs.tables import Column
from pages.parts.screen import caption, paragraph, small_table
from pages.parts.state.weighed import Answer, Weighed
from pages.parts.words import say


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
            Column(say("Tensor"), lambda row: row[0].name, "name"),
            Column(say("Shape"), lambda row: words.shape(row[0].shape), "name"),
            Column(say("Formula"), lambda row: str(row[1].formula), "name"),
            Column(say("Count"), lambda row: row[0].count, "whole"),
            Column(say("Parameters"), lambda row: row[0].parameters, "whole"),
            Column(say("Share"), lambda row: row[0].parameters / total, "percent"),
            Column(say("With values"), lambda row: str(row[1].values), "name"),
            Column(say("Component"), lambda row: words.part(row[0].component)),
            Column(say("Not in total"), lambda row: words.part(row[0].excluded_as) if row[0].excluded_as else ""),
        ]
        lines = zip(self.architecture.tensors(), self.derivation.tensors, strict=True)
        tables.draw("tensors", say("Tensors"), columns, lines, most=tables.in_sight("tensors_columns", 6))
        legend(self.derivation.legend)


class ServingDerivations:
    """Derivations of the memory on one kind of GPU."""

    def __init__(self, answer: Weighed, gpu: GPU | None = None) -> None:
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
        paragraph("Sum: **{total:,}**", total=report.loaded.total)

    def cache_per_token(self) -> None:
        cache = self.report.kv_cache
        table(cache_steps(self.answer.architecture, self.report.scenario.precision.kv), say("Bytes per token"))
        sentences = [
            say("The layers that keep the whole context: **{bytes:,} bytes** per token.", bytes=cache.bytes_per_token)
        ]
        if cache.window_bytes:
            window_bytes = cache.window_bytes
            sentences.append(
                say("Layers with a window stop growing; they hold {bytes:,} bytes a sequence here.", bytes=window_bytes)
            )
        if cache.state_bytes:
            sentences.append(say("States that do not grow: {bytes:,} bytes a sequence.", bytes=cache.state_bytes))
        st.markdown(words.together(sentences))
        legend(ModelDerivations(self.answer).derivation.legend)

    def cache(self) -> None:
        steps, meanings = total_cache_steps(self.report)
        table(steps, say("Bytes"))
        legend(meanings)
        paragraph("What one GPU holds of it, as the engine allocates it:")
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
