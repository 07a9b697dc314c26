"""Maps of which model fits which GPU, computed once for all sessions."""

from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from types import MappingProxyType

import numpy as np

from calc import Architecture, Precision
from calc.formats import Native, WeightFormat, native
from calc.hardware import GPU, Layout, find_gpu, runs
from calc.serving.engines import ENGINES
from calc.serving.engines.engine import Engine
from calc.serving.engines.rules import Question
from calc.time import (
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
NODE = 8


def formats_of(engine: str) -> tuple[WeightFormat, ...]:
    """Formats of a map: GGUF files where the engine reads them."""
    return FORMATS if ENGINES[engine].keeps(FORMATS[1]) else FILES


@cache
def architectures() -> Mapping[str, Architecture]:
    """Architectures of all presets that generate, by id, the largest first."""
    known = {name: Architecture.from_config(preset.config) for name, preset in models().items()}
    generate = [(name, model) for name, model in known.items() if not model.pooled]
    return MappingProxyType(dict(sorted(generate, key=lambda row: -row[1].parameters().total)))


def servings(model: Architecture, stored: Native, engine: Engine, count: int) -> Formats:
    """A model in all formats on so many GPUs; in the checkpoint's own as it stores it."""
    precisions = [engine.precision(stored, form) for form in formats_of(engine.name)]
    return in_formats(model, engine, precisions, count=count, node=NODE)


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


def on_gpus(
    model: Architecture, stored: Native, own: tuple[str, ...], count: int, context: int, name: str
) -> tuple[list[GPU], Fitting]:
    """One model in all formats on so many of each GPU that the engine runs on; the reader's own come first."""
    known = [find_gpu(name) for name in (*own, *gpus())]
    kinds = [gpu for gpu in known if gpu.bandwidth_gb_s and runs(gpu, ENGINES[name].support)]
    formats = servings(model, stored, ENGINES[name](), count)
    return kinds, fitting(((gpu.id, formats, gpu) for gpu in kinds), context)


def of_scenario(answer: Answer, name: str) -> tuple[list[GPU], Fitting]:
    """The model of a scenario on all GPUs, as the page of hardware asks about it."""
    choice, own = answer.scenario.hardware, own_gpus(answer.scenario)
    return on_gpus(answer.architecture, answer.model.published.stored, tuple(own), choice.cards, choice.length, name)


def points_on(
    model: Architecture, precision: Precision, card: str, count: int, context: int, name: str
) -> tuple[Layout, tuple[OperatingPoint, ...]]:
    """Prefill and decode under a GPU's roofline. Raises ConfigError where no layout shares the model."""
    engine = ENGINES[name]()
    layout = layout_on(model, engine, precision, min(count, NODE), NODE)
    if layout is None or layout.pp > 1:
        engine.check(Question(model, precision, Layout(tp=min(count, NODE))))
        layout = Layout()
    return layout, operating_points(model, engine, precision, find_gpu(card), layout, context)
