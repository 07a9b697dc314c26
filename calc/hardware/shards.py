"""Which part of a model stands on which pipeline stage."""

from bisect import bisect_left
from collections.abc import Iterable

from calc.model.architecture import Architecture
from calc.model.block import Block


def blocks_within(architecture: Architecture, stage: range) -> list[Block]:
    """The part of each block that runs in a stage."""
    found = []
    for block in architecture.all_blocks:
        places = block.places or block.layers  # in ascending order
        where = places[bisect_left(places, stage.start) : bisect_left(places, stage.stop)]
        if where:
            found.append(block.model_copy(update={"layers": where, "places": ()}))
    return found


def layer_kinds(layers: int, places: Iterable[Iterable[int]]) -> list[tuple[int, ...]]:
    """What stands in each layer, by number: `places` are the layers that each thing stands in. Layers of one kind weigh
    the same."""
    kinds: list[tuple[int, ...]] = [()] * layers
    for number, where in enumerate(places):
        for layer in where:
            kinds[layer] += (number,)
    return kinds
