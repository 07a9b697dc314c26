"""Layouts that an engine accepts on so many GPUs in nodes of so many."""

from collections.abc import Iterator, Sequence
from itertools import islice

from calc.errors import ConfigError, Message
from calc.formats import CacheFormat, Precision, WeightFormat
from calc.hardware.parallel import Layout, shapes
from calc.model.architecture import Architecture
from calc.serving.engines.engine import Engine

STAGES = (1, 2, 3, 4, 6, 8, 16)
"""Pipeline stages that are tried."""


def refusal(
    architecture: Architecture, engine: Engine, precision: Precision, layout: Layout, node: int = 8
) -> ConfigError | None:
    """Why a layout is none to plan with, and what is nearest to it; None where it is."""
    if layout.tp > node:
        sentence = "Tensor parallelism over {tp:,} GPUs leaves the node, which has {node:,}: use pipeline stages."
        return ConfigError(Message(sentence, tp=layout.tp, node=node), "tp", (node,))
    try:
        engine.check_layout(architecture, precision, layout)
    except ConfigError as error:
        return error
    return None


def accepted_formats(
    architecture: Architecture, engine: Engine, precisions: Sequence[Precision]
) -> tuple[Precision, ...]:
    """Those in which the engine takes the model, each pair of weights and cache once. Raises ConfigError where it takes
    it in none."""
    found: dict[tuple[WeightFormat, CacheFormat], Precision] = {}
    refused: list[ConfigError] = []
    for precision in precisions:
        try:
            engine.check(architecture, precision, Layout())
        except ConfigError as error:
            refused.append(error)
        else:
            found.setdefault((precision.weights, precision.kv), precision)
    if refused and not found:
        raise refused[0]
    return tuple(found.values())


def layouts(
    architecture: Architecture, engine: Engine, precision: Precision, most: int = 64, node: int = 8
) -> Iterator[Layout]:
    """What the engine accepts on up to `most` GPUs: ways to share a layer, and pipeline stages of them."""
    for layout, _ in layouts_by_format(architecture, engine, (precision,), most, node):
        yield layout


def layouts_by_format(
    architecture: Architecture, engine: Engine, precisions: Sequence[Precision], most: int = 64, node: int = 8
) -> Iterator[tuple[Layout, tuple[int, ...]]]:
    """The same in some of these formats, by their numbers."""
    for plain in shapes(architecture, node):
        if plain.gpus > most or not plain.spreads_experts(architecture):
            continue
        refused = (engine.unaccepted(architecture, precision, plain) for precision in precisions)
        formats = tuple(number for number, why in enumerate(refused) if why is None)
        for shape in sharing(architecture, engine, plain) if formats else ():
            for stages in STAGES if shape.dp == shape.ep == 1 else (1,):
                if shape.gpus * stages <= most and stages <= architecture.num_layers:
                    yield shape.model_copy(update={"pp": stages}), formats


def sharing(architecture: Architecture, engine: Engine, shape: Layout) -> Iterator[Layout]:
    """The same, and with as many of its ranks as may sharing cached tokens, so that the fewest copies are held."""
    yield shape
    degrees = (n for n in range(shape.tp, 1, -1) if shape.tp % n == 0)
    shared = (shape.model_copy(update={"dcp": dcp}) for dcp in degrees)
    yield from islice((one for one in shared if engine.unshared(architecture, one) is None), 1)
