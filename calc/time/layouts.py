"""Layouts that an engine accepts on so many GPUs in nodes of so many."""

from collections.abc import Iterator, Sequence
from itertools import islice

from calc.formats import CacheFormat, Precision, WeightFormat
from calc.hardware.parallel import Layout, shapes
from calc.model.architecture import Architecture
from calc.serving.engines.engine import Engine
from calc.serving.engines.rules import Question

STAGES = (1, 2, 3, 4, 6, 8, 16)
"""Pipeline stages that are tried."""


def accepted_formats(
    architecture: Architecture, engine: Engine, precisions: Sequence[Precision]
) -> tuple[Precision, ...]:
    """Those in which the engine takes the model, each pair of weights and cache once. Raises ConfigError where it takes
    it in none."""
    questions = [Question(architecture, precision, Layout()) for precision in precisions]
    taken = (question.precision for question in questions if question.precision and not any(engine.refusals(question)))
    formats: dict[tuple[WeightFormat, CacheFormat], Precision] = {}
    for precision in taken:
        formats.setdefault((precision.weights, precision.kv), precision)
    if questions and not formats:
        engine.check(questions[0])
    return tuple(formats.values())


def layouts(
    architecture: Architecture, engine: Engine, precision: Precision, most: int = 64, node: int = 8
) -> Iterator[Layout]:
    """What the engine accepts on up to `most` GPUs: ways to share a layer, and pipeline stages of them."""
    for layout, _ in layouts_by_format(architecture, engine, (precision,), most, node):
        yield layout


def layouts_by_format(
    architecture: Architecture, engine: Engine, precisions: Sequence[Precision], most: int = 64, node: int = 8
) -> Iterator[tuple[Layout, tuple[int, ...]]]:
    """What the engine accepts on up to `most` GPUs, each with the numbers of the formats that it accepts there."""
    for plain in shapes(architecture, node):
        if plain.gpus > most:
            continue
        refused = [any(engine.refusals(Question(architecture, precision, plain))) for precision in precisions]
        formats = tuple(number for number, is_refused in enumerate(refused) if not is_refused)
        for shape in sharing(architecture, engine, precisions[formats[0]], plain) if formats else ():
            for stages in STAGES if shape.dp == shape.ep == 1 else (1,):
                if shape.gpus * stages <= most and stages <= architecture.num_layers:
                    yield shape.model_copy(update={"pp": stages}), formats


def sharing(architecture: Architecture, engine: Engine, precision: Precision, shape: Layout) -> Iterator[Layout]:
    """The shape, and the shape with as many of its ranks as may sharing cached tokens, for the fewest copies."""
    yield shape
    degrees = (n for n in range(shape.tp, 1, -1) if shape.tp % n == 0)
    shared = (shape.model_copy(update={"dcp": dcp}) for dcp in degrees)
    taken = (layout for layout in shared if not any(engine.refusals(Question(architecture, precision, layout))))
    yield from islice(taken, 1)
