"""The reverse question: which models fit some GPUs, in which format, up to which context, and how fast."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calc.formats import Precision, WeightFormat
from calc.hardware.gpu import GPU
from calc.hardware.overhead import Overhead
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines import ENGINES
from calc.serving.engines.engine import Engine
from calc.serving.engines.rules import Question
from calc.serving.memory import MOST_TOKENS, Serving
from calc.serving.verdict import max_context
from calc.serving.weighing import RankWeights
from calc.serving.workload import Workload
from calc.time.arrays import Array, read_only
from calc.time.cluster import USUAL
from calc.time.roofline import Machine, machine
from calc.time.serving import Speed, speed_on

MAPPED = tuple(name for name, engine in ENGINES.items() if engine.sequences_option is not None)
"""Engines that allocate at start: those whose room is known before requests come."""
ONE_REQUEST = Workload()
Formats = Mapping[WeightFormat, Serving | None]
"""A model on some GPUs in each format of its weights; None where the engine does not take it so."""


@dataclass(frozen=True)
class Fitting:
    """A row a model, or a GPU; a column a format."""

    names: tuple[str, ...]
    formats: tuple[WeightFormat, ...]
    layouts: tuple[tuple[Layout | None, ...], ...]  # on that many GPUs; None: the engine accepts none
    max_context: Array  # tokens of one sequence that memory and the model allow; 0: it does not fit; most: no limit
    tokens_per_s: Array  # of one sequence at the context asked about, or the longest that fits; 0: none are made


def in_formats(model: Architecture, engine: Engine, precisions: Sequence[Precision], *, count: int = 1) -> Formats:
    """A model in each format on so many GPUs, as `layout_on` lays it out."""
    servings: dict[WeightFormat, Serving | None] = {}
    overhead, first = Overhead(), None
    for precision in precisions:
        layout, servings[precision.weights] = layout_on(model, engine, precision, count), None
        if layout is not None:
            ranks = RankWeights(model, engine, precision, first)
            servings[precision.weights], first = Serving(ranks, engine, layout, overhead), first or ranks
    return servings


def layout_on(model: Architecture, engine: Engine, precision: Precision, count: int) -> Layout | None:
    """Tensor parallelism over all of them where the engine accepts it, else over as many as it does; None where it
    does not run the model."""
    for tp in range(min(count, USUAL.gpus_per_node), 0, -1):
        layout = Layout(tp=tp, pp=count // tp)
        if count % tp == 0 and not any(engine.refusals(Question(model, precision, layout))):
            return layout
    return None


def fitting(
    rows: Iterable[tuple[str, Formats, GPU]], context: int = 8192, longest: Sequence[Sequence[int]] | None = None
) -> Fitting:
    """Models in the same formats, each on GPUs of a kind, by the engine's defaults: what Weigh says of each. A row is
    let go before the next is laid out. `longest` are the longest contexts of each, where they are known."""
    names, lengths, rates, formats = [], [], [], tuple[WeightFormat, ...]()
    layouts, alike = list[tuple[Layout | None, ...]](), dict[Layout, Layout]()
    machines = dict[tuple[Any, ...], Machine]()

    def machine_of(gpu: GPU, *at: Any) -> Machine:
        """`machine`, which models in the same format share."""
        key = gpu.id, *at[:-1]  # USUAL is the cluster of all
        if key not in machines:
            machines[key] = machine(gpu, *at)
        return machines[key]

    for place, (name, row, gpu) in enumerate(rows):
        most_of_row = [longest_context(serving, gpu) for serving in row.values()] if longest is None else longest[place]
        names.append(name)
        formats = tuple(row)
        each = (None if serving is None else serving.layout for serving in row.values())
        layouts.append(tuple(layout and alike.setdefault(layout, layout) for layout in each))
        lengths.append(most_of_row)
        rates.append(rates_of(row, gpu, most_of_row, context, machine_of))
    return Fitting(
        tuple(names), formats, tuple(layouts), read_only(np.array(lengths, dtype=np.int64)), read_only(np.array(rates))
    )


def rates_of(
    row: Formats, gpu: GPU, longest: Sequence[int], context: int, machine_of: Callable[..., Machine]
) -> list[float]:
    """Tokens a second of one sequence of a model in each format; 0 where it does not fit, or makes none."""
    rates: list[float] = []
    speeds: dict[Layout, Speed] = {}
    for serving, most in zip(row.values(), longest, strict=True):
        rate, tokens = 0.0, min(context, most)
        if serving is not None and tokens and not serving.architecture.pooled:
            speed = speeds[serving.layout] = speed_on(
                gpu, serving, sibling=speeds.get(serving.layout), machine_of=machine_of
            )
            rate = 1 / float(speed.step(1, max(2, tokens), "expected"))
        rates.append(rate)
    return rates


def longest_context(serving: Serving | None, gpu: GPU) -> int:
    """Tokens of one sequence that memory and the model allow; 0 where it does not fit."""
    if serving is None or serving.outweighs(gpu):
        return 0
    most = serving.architecture.max_positions or MOST_TOKENS
    longest = max_context(serving.on(gpu, ONE_REQUEST), most)
    return most if longest is None else longest
