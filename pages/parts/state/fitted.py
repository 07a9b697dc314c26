"""Maps of which model fits which GPU, computed once for all sessions."""

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from types import MappingProxyType

import numpy as np

from calc import Architecture
from calc.formats import Native, WeightFormat, native
from calc.hardware import GPU, Layout, find_gpu, runs
from calc.serving.engines import ENGINES
from calc.serving.engines.engine import Engine
from calc.serving.engines.rules import Question
from calc.time import (
    USUAL,
    Array,
    Fitting,
    Formats,
    OperatingPoint,
    fitting,
    in_formats,
    layout_on,
    longest_context,
    operating_points,
    read_only,
)
from pages.parts.state.planned import own_gpus
from pages.parts.state.weighed import Answer
from presets import gpus, models

FORMATS: tuple[WeightFormat, ...] = ("bf16", "fp8", "int8", "int4", "nvfp4", "mxfp4")
FILES: tuple[WeightFormat, ...] = ("bf16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")


@cache
def architectures() -> Mapping[str, Architecture]:
    """Architectures of all presets that generate, by id, the largest first."""
    known = {name: Architecture.from_config(preset.config) for name, preset in models().items()}
    generate = [(name, model) for name, model in known.items() if not model.pooled]
    return MappingProxyType(dict(sorted(generate, key=lambda row: -row[1].parameters().total)))


def servings(model: Architecture, stored: Native, engine: Engine, count: int) -> Formats:
    """A model in all formats of a map on so many GPUs, GGUF files where the engine reads them; in the checkpoint's own
    as it stores it."""
    forms = FORMATS if engine.keeps(FORMATS[1]) else FILES
    return in_formats(model, engine, [engine.precision(stored, form) for form in forms], count=count)


@lru_cache(maxsize=64)
def models_on(card: str, count: int, context: int, name: str) -> Fitting:
    """All presets in all formats on so many of a GPU."""
    gpu = find_gpu(card)
    rows = ((of, row, gpu) for of, row in zip(architectures(), presets_on(name, count), strict=True))
    return fitting(rows, context, longest_on(card, count, name).tolist())


@lru_cache(maxsize=64)
def longest_on(card: str, count: int, name: str) -> Array:
    """The longest contexts alone, which do not depend on the one that is asked about."""
    gpu = find_gpu(card)
    rows = presets_on(name, count)
    return read_only(np.array([[longest_context(serving, gpu) for serving in row.values()] for row in rows]))


def presets_on(name: str, count: int) -> Iterator[Formats]:
    """Every preset on so many GPUs, the largest first."""
    engine = ENGINES[name]()
    for of, architecture in architectures().items():
        yield servings(architecture, native(models()[of].config), engine, count)


def of_scenario(answer: Answer, name: str) -> tuple[list[GPU], Fitting]:
    """The model of a scenario in all formats on each GPU that the engine runs on, as many of it as the page of hardware
    asks about; the reader's own come first."""
    choice = answer.scenario.hardware
    known = [find_gpu(gpu) for gpu in (*own_gpus(answer.scenario), *gpus())]
    kinds = [gpu for gpu in known if gpu.bandwidth_gb_s and runs(gpu, ENGINES[name].support)]
    formats = servings(answer.architecture, answer.model.published.stored, ENGINES[name](), choice.cards)
    return kinds, fitting(((gpu.id, formats, gpu) for gpu in kinds), choice.length)


def points_on(answer: Answer, name: str) -> tuple[Layout, tuple[OperatingPoint, ...]]:
    """Prefill and decode of the model of a scenario under its GPU's roofline. Raises ConfigError where no layout shares
    the model."""
    model, choice, engine = answer.architecture, answer.scenario.hardware, ENGINES[name]()
    precision, ranks = answer.model.precision(answer.scenario.serving), min(choice.cards, USUAL.gpus_per_node)
    layout = layout_on(model, engine, precision, ranks)
    if layout is None or layout.pp > 1:
        engine.check(Question(model, precision, Layout(tp=ranks)))
        layout = Layout()
    return layout, operating_points(model, engine, precision, find_gpu(choice.card), layout, choice.length)
