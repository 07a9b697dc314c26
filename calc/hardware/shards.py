"""Which part of a model stands on which pipeline stage."""

from bisect import bisect_left
from collections.abc import Iterable

from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.tensor import Tensor


def layers_within(tensor: Tensor, stage: range) -> tuple[int, ...]:
    """The layers of a stage that hold a tensor; layers are in ascending order."""
    return tensor.layers[bisect_left(tensor.layers, stage.start) : bisect_left(tensor.layers, stage.stop)]


def copies_within(architecture: Architecture, tensor: Tensor, stage: range) -> int:
    """How many layers of a stage hold a tensor; 1 or 0 for one that stands outside the layers.

    The embedding, its positions and the vision encoder are on the first stage, all that follows the layers and the
    draft layers on the last; a tied head is the embedding once more.
    """
    first, last = stage.start == 0, stage.stop == architecture.num_layers
    if tensor.excluded_as == "vision":
        return int(first)
    if tensor.excluded_as == "multi_token_prediction":
        return max(1, len(tensor.layers)) * last
    if tensor.layers:
        return len(layers_within(tensor, stage))
    if tensor.component == "embedding":
        head = architecture.tied and tensor.name == f"{architecture.names.embedding}.weight"
        return int(first or (last and head))
    return int(last)


def blocks_within(architecture: Architecture, stage: range) -> list[Block]:
    """The part of each block that runs in a stage."""
    found = []
    for block in architecture.all_blocks:
        places = block.runs_in  # in ascending order
        where = places[bisect_left(places, stage.start) : bisect_left(places, stage.stop)]
        if where == block.layers and not block.places:
            found.append(block)
        elif where:
            found.append(block.model_copy(update={"layers": where, "places": ()}))
    return found


def layer_kinds(layers: int, places: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """What stands in each layer, by number: `places` are the layers that each thing stands in. Layers of one kind weigh
    the same."""
    kinds: list[tuple[int, ...]] = [()] * layers
    for number, where in enumerate(dict.fromkeys(places)):
        for layer in where:
            kinds[layer] += (number,)
    return kinds


def alike_stages(rank: Architecture, stages: Iterable[range], tensors: Iterable[Tensor]) -> list[int]:
    """For each stage the number of the first in which the same stands; what is listed apart, at the ends of the model,
    aside."""
    places = [block.runs_in for block in rank.all_blocks]
    places += [tensor.layers for tensor in tensors if tensor.excluded_as is None]
    kinds = layer_kinds(rank.num_layers, places)
    contents = [
        (stage.start == 0, stage.stop == rank.num_layers, *sorted(kinds[stage.start : stage.stop])) for stage in stages
    ]
    return [contents.index(content) for content in contents]
