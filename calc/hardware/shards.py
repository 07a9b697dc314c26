"""Parts of a model on each pipeline stage."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.tensor import Component, Tensor

AT_ENDS = frozenset({"vision", "multi_token_prediction"})
"""Components outside the layers, also where they have layers of their own."""


class OutsideRules(NamedTuple):
    """Weights outside the layers that stages hold beyond those that they run."""

    on_every_stage: frozenset[Component] = frozenset()
    own_head: bool = False
    """Whether a tied head is a table of its own."""
    own_head_on_stages: bool = False
    """Whether it is one where there are several stages."""


AS_RUN = OutsideRules()
"""Each stage holds what it runs."""


def layers_within(tensor: Tensor, *pieces: range) -> tuple[int, ...]:
    """The layers of a stage, in one piece or several, that hold a tensor; layers are in ascending order."""
    return places_within(tensor.layers, pieces)


def places_within(places: tuple[int, ...], pieces: Iterable[range]) -> tuple[int, ...]:
    """The layers, given in ascending order, that lie in any of the pieces."""
    parts = [places[bisect_left(places, piece.start) : bisect_left(places, piece.stop)] for piece in pieces]
    return parts[0] if len(parts) == 1 else tuple(chain.from_iterable(parts))


def copies_within(architecture: Architecture, tensor: Tensor, *pieces: range) -> int:
    """Layers of a stage, in one piece or several, that run a tensor; 1 or 0 for one that stands outside the layers."""
    if len(pieces) == 1:
        return copies_within_piece(architecture, tensor, pieces[0])
    return sum([copies_within_piece(architecture, tensor, piece) for piece in pieces])


def copies_within_piece(
    architecture: Architecture, tensor: Tensor, stage: range, outside: OutsideRules = AS_RUN
) -> int:
    """Layers of one range that hold a tensor; for one that stands outside the layers, times that it is held.

    The embedding, what stands with it and the vision encoder are on the first piece, all that follows the layers and
    the draft layers on the last; a tied head is the embedding once more. A stage may have others, which it does not
    run.
    """
    if tensor.layers and tensor.excluded_as not in AT_ENDS:
        return bisect_left(tensor.layers, stage.stop) - bisect_left(tensor.layers, stage.start)
    first, last = stage.start == 0, stage.stop == architecture.num_layers
    if tensor.excluded_as == "vision":
        return int(first)
    if tensor.excluded_as == "multi_token_prediction":
        return max(1, len(tensor.layers)) * last
    if tensor.component == "embedding" or tensor.before_layers:
        embeds = first or "embedding" in outside.on_every_stage
        if not architecture.tied or tensor.name != architecture.names.table:
            return int(embeds)
        if outside.own_head or (outside.own_head_on_stages and not (first and last)):
            return embeds + (last or "lm_head" in outside.on_every_stage)
        return int(embeds or last)
    return int(last or tensor.component in outside.on_every_stage)


def blocks_within(architecture: Architecture, *pieces: range) -> list[Block]:
    """The part of each block that runs in a stage, in one piece or several."""
    stage_blocks = []
    for block in architecture.all_blocks:
        where = places_within(block.runs_in, pieces)
        if where == block.layers and not block.places:
            stage_blocks.append(block)
        elif where:
            cache_layers = None if block.cache_layers is None else places_within(block.cache_layers, pieces)
            stage_blocks.append(block.model_copy(update={"layers": where, "places": (), "cache_layers": cache_layers}))
    return stage_blocks


def layer_kinds(layers: int, places: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Kind of each layer, by number: `places` are the layers that each thing stands in. Layers of one kind weigh
    the same."""
    kinds: list[tuple[int, ...]] = [()] * layers
    for number, where in enumerate(dict.fromkeys(places)):
        for layer in where:
            kinds[layer] += (number,)
    return kinds


def alike_pieces(rank: Architecture, pieces: Iterable[range], tensors: Iterable[Tensor]) -> list[int]:
    """Number of the first equal piece, for each piece of the model; tensors listed apart, at the ends of the model, are
    left aside."""
    places = [layers for block in rank.all_blocks for layers in (block.runs_in, block.cached_in)]
    places += [tensor.layers for tensor in tensors if tensor.excluded_as is None]
    kinds = layer_kinds(rank.num_layers, places)
    contents = [
        (piece.start == 0, piece.stop == rank.num_layers, *sorted(kinds[piece.start : piece.stop])) for piece in pieces
    ]
    return [contents.index(content) for content in contents]


def alike_stages(alike: Sequence[int], stages: int) -> list[int]:
    """Number of the first equal stage, for each of so many, which take turns in the pieces of the model; `alike` are
    the pieces that stand for them."""
    contents = [alike[stage::stages] for stage in range(stages)]
    return [contents.index(content) for content in contents]
