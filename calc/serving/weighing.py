"""The weights of a tensor-parallel rank, weighed once for every way to cut its layers into pipeline stages."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate

from calc.formats import Precision
from calc.formats.stored import Piece
from calc.hardware.parallel import Layout
from calc.hardware.shards import blocks_within, copies_within, layer_kinds, layers_within
from calc.model.architecture import Architecture
from calc.serving.engines.engine import Engine, LoadedWeights, Stage

ONE = Layout()
UNBOUNDED = 2**62
"""Stages, where no number of them would do."""


class Weighing:
    """The weights of a tensor-parallel rank: of each kind of layer, and of what stands before and behind them."""

    def __init__(self, engine: Engine, architecture: Architecture, precision: Precision, layout: Layout) -> None:
        self.engine, self.layout = engine, layout
        self.whole, self.precision = engine.with_draft(architecture), precision
        self.rank = layout.rank(self.whole, engine.vocabulary(architecture.vocab, layout.tp))
        counted = {None, engine.loads_vision and "vision", engine.loads_draft and "multi_token_prediction"}
        pieces = [piece for piece in engine.stored(self.whole, precision, self.rank) if piece.tensor.apart in counted]
        self.layers = [piece for piece in pieces if piece.tensor.layers and piece.tensor.apart is None]
        self.ends = [piece for piece in pieces if not piece.tensor.layers or piece.tensor.apart is not None]
        places = [*(block.runs_in for block in self.rank.all_blocks), *(p.tensor.layers for p in self.layers)]
        kinds = layer_kinds(self.rank.num_layers, places)
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        self.kinds = [numbers[kind] for kind in kinds]
        self.tables = engine.tables(self.rank)
        self.at_ends = dict[tuple[bool, bool], tuple[int, LoadedWeights]]()
        self.each = [self.weighed(self.within(i), range(i, i + 1)) for i in map(self.kinds.index, numbers.values())]
        self.stored = [0, *accumulate(self.each[kind][0] for kind in self.kinds)]

    def within(self, layer: int) -> list[Piece]:
        """The tensors of one layer."""
        return [piece for piece in self.layers if layers_within(piece.tensor, range(layer, layer + 1))]

    @cached_property
    def divided(self) -> tuple[tuple[int, int, int], ...]:
        """How often each kind of layer occurs, and of one its bytes of routed experts and of all else."""
        found = []
        for kind, count in Counter(self.kinds).items():
            sizes = Counter[bool]()
            for piece in self.within(self.kinds.index(kind)):
                sizes[piece.tensor.component == "experts_routed"] += piece.nbytes * piece.a_layer
            found.append((count, sizes[True], sizes[False]))
        return tuple(found)

    def least_stages(self, room: int, shape: Layout = ONE) -> int:
        """Pipeline stages that must be where a GPU has so many bytes of room, each rank further divided into a shape:
        all its ranks share the routed experts, those of a copy all else."""
        if room <= 0:
            return UNBOUNDED
        least, total = 1, 0
        for count, experts, others in self.divided:
            one = experts // shape.gpus + others // shape.tp
            total += count * one
            if one > room:
                return UNBOUNDED
            if one:
                least = max(least, -(-count // (room // one)))
        return max(least, -(-total // room))

    def heaviest(self, ranges: Iterable[range]) -> int:
        """Bytes of the layers of the heaviest of these stages, ends apart."""
        return max(self.stored[layers.stop] - self.stored[layers.start] for layers in ranges)

    def weighed(self, pieces: Sequence[Piece], stage: range) -> tuple[int, LoadedWeights]:
        """Bytes of a stage's share of some tensors, as stored and as loaded."""
        size = sum(
            piece.nbytes * piece.a_layer * copies_within(self.whole, piece.tensor, stage)
            for piece in pieces
            if piece.tensor.apart != "vision"
        )
        return size, self.engine.loaded(self.rank, pieces, stage, self.layout)

    def stages(self, ranges: Sequence[range]) -> tuple[Stage, ...]:
        """Stages with as many layers of each kind, first and last excepted, are one object."""
        alike: dict[tuple[object, ...], Stage] = {}
        stages = []
        for layers, beside in zip(ranges, self.engine.beside(self.whole, self.precision, len(ranges)), strict=True):
            counts = Counter(self.kinds[layers.start : layers.stop])
            first, last = layers.start == 0, layers.stop == self.rank.num_layers
            key = first, last, beside, *sorted(counts.items())
            if key not in alike:
                alike[key] = self.stage(layers, counts, beside, first=first, last=last)
            stages.append(alike[key])
        return tuple(stages)

    def stage(self, layers: range, counts: Counter[int], beside: int, *, first: bool, last: bool) -> Stage:
        """`beside`: bytes of another model's weights."""
        if (first, last) not in self.at_ends:
            start = 0 if first else 1
            stop = self.rank.num_layers if last else start
            self.at_ends[first, last] = self.weighed(self.ends, range(start, stop))
        weights, ends = self.at_ends[first, last]
        parts = [(1, ends), (1, self.tables), (1, LoadedWeights(draft=beside))]
        for kind, count in counts.items():
            size, one = self.each[kind]
            weights += count * size
            parts.append((count, one))
        blocks = blocks_within(self.rank, layers)
        if last and self.engine.loads_draft:
            blocks += [module.block for module in self.rank.prediction]
        loaded = LoadedWeights.sum(parts)
        return Stage(tuple(blocks), weights + beside, loaded.vision, first=first, last=last, loaded=loaded)
