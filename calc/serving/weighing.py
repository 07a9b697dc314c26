"""The weights of a tensor-parallel rank, weighed once for every way to cut its layers into pipeline stages."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, Self

from calc.formats import Precision
from calc.formats.stored import Piece
from calc.hardware.parallel import Layout
from calc.hardware.shards import blocks_within, copies_within, layer_kinds
from calc.model.architecture import Architecture
from calc.model.named import Peak, largest
from calc.serving.engines.engine import Engine, LaidOut, Limits, LoadedWeights, Stage


class LayerBytes(NamedTuple):
    """Bytes on a rank: of all layers up to each, of what stands before and behind them, and on each stage beside."""

    layers: list[int]
    before: int
    behind: int
    beside: int

    @classmethod
    def of(cls, each: Iterable[int], before: int, behind: int, beside: int = 0) -> Self:
        """By the bytes of each layer."""
        return cls([0, *accumulate(each)], before, behind, beside)


class Weighing:
    """The weights of a tensor-parallel rank: of each kind of layer, and of what stands before and behind them."""

    def __init__(self, engine: Engine, architecture: Architecture, precision: Precision, layout: Layout) -> None:
        self.engine, self.layout = engine, layout
        self.whole, self.precision = engine.with_draft(architecture), precision
        self.rank = layout.rank(self.whole, engine.vocabulary(architecture.vocab, layout.tp))
        self.at_ends = dict[tuple[bool, bool], tuple[int, LoadedWeights]]()
        self.shares = dict[Layout, LayerBytes]()
        self.peaks = dict[tuple[Limits, frozenset[int], bool], Peak]()

    @cached_property
    def pieces(self) -> list[Piece]:
        """The tensors that are loaded."""
        engine = self.engine
        counted = {None, engine.loads_vision and "vision", engine.loads_draft and "multi_token_prediction"}
        stored = engine.stored(self.whole, self.precision, self.rank)
        return [piece for piece in stored if piece.tensor.excluded_as in counted]

    @cached_property
    def layers(self) -> list[Piece]:
        return [piece for piece in self.pieces if piece.tensor.layers and piece.tensor.excluded_as is None]

    @cached_property
    def ends(self) -> list[Piece]:
        """What stands before the layers and behind them."""
        return [piece for piece in self.pieces if not piece.tensor.layers or piece.tensor.excluded_as is not None]

    @cached_property
    def kinds(self) -> list[int]:
        """The number of each layer's kind: layers of one weigh the same."""
        places = [*(block.runs_in for block in self.rank.all_blocks), *(piece.tensor.layers for piece in self.layers)]
        numbers: dict[tuple[int, ...], int] = {}
        return [numbers.setdefault(kind, len(numbers)) for kind in layer_kinds(self.rank.num_layers, places)]

    @cached_property
    def of_kind(self) -> list[tuple[list[Piece], range]]:
        """The tensors of the first layer of each kind, and that layer."""
        firsts = [self.kinds.index(number) for number in range(len(set(self.kinds)))]
        places = {piece.tensor.layers: frozenset(piece.tensor.layers) for piece in self.layers}
        return [
            ([piece for piece in self.layers if first in places[piece.tensor.layers]], range(first, first + 1))
            for first in firsts
        ]

    @cached_property
    def stored_each(self) -> list[int]:
        """Bytes of a layer of each kind, as stored."""
        return [self.size_of(pieces, layer) for pieces, layer in self.of_kind]

    @cached_property
    def loaded_each(self) -> list[LoadedWeights]:
        """The same as loaded."""
        return [self.engine.loaded(self.rank, pieces, layer, self.layout) for pieces, layer in self.of_kind]

    @cached_property
    def tables(self) -> LoadedWeights:
        return self.engine.tables(self.rank)

    @cached_property
    def parts(self) -> list[tuple[int, int]]:
        """Bytes of routed experts and of all else: of a layer of each kind, then of what stands before the layers and
        behind them."""
        found, layers = [], self.rank.num_layers
        for pieces, stage in [*self.of_kind, (self.ends, range(0)), (self.ends, range(layers, layers))]:
            sizes = [0, 0]
            for piece in pieces:
                sizes[piece.tensor.component == "experts_routed"] += self.size(piece, stage)
            found.append((sizes[True], sizes[False]))
        return found

    def divided(self, shape: Layout) -> LayerBytes:
        """What a rank of a shape stores at least: all its ranks share the routed experts, those of a copy all else."""
        if shape not in self.shares:
            *each, before, behind = (experts // shape.gpus + others // shape.tp for experts, others in self.parts)
            self.shares[shape] = LayerBytes.of((each[kind] for kind in self.kinds), before, behind)
        return self.shares[shape]

    @cached_property
    def stored(self) -> LayerBytes:
        """What this rank stores."""
        before, behind = (self.size_of(self.ends, self.around(first=first, last=not first)) for first in (True, False))
        return LayerBytes.of((self.stored_each[kind] for kind in self.kinds), before, behind)

    @cached_property
    def loaded(self) -> LayerBytes:
        """What it takes once it is loaded, with the tables of each stage."""
        before, behind = (self.at_end(first=first, last=not first)[1].total for first in (True, False))
        return LayerBytes.of((self.loaded_each[kind].total for kind in self.kinds), before, behind, self.tables.total)

    def size(self, piece: Piece, stage: range) -> int:
        """Bytes of a stage's share of a tensor, as stored; a vision encoder counts apart."""
        if piece.tensor.excluded_as == "vision":
            return 0
        return piece.nbytes * piece.a_layer * copies_within(self.whole, piece.tensor, stage)

    def size_of(self, pieces: Iterable[Piece], stage: range) -> int:
        """The same of several."""
        return sum(self.size(piece, stage) for piece in pieces)

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
        weights, ends = self.at_end(first=first, last=last)
        parts = [(1, ends), (1, self.tables), (1, LoadedWeights(draft=beside))]
        for kind, count in counts.items():
            weights += count * self.stored_each[kind]
            parts.append((count, self.loaded_each[kind]))
        blocks = blocks_within(self.rank, layers)
        if last and self.engine.loads_draft:
            blocks += [module.block for module in self.rank.prediction]
        loaded = LoadedWeights.sum(parts)
        return Stage(tuple(blocks), weights + beside, loaded.vision, first=first, last=last, loaded=loaded)

    def working(self, engine: Engine, laid_out: LaidOut, stage: int, limits: Limits) -> Peak:
        """What an engine finds at start that a pass takes on a stage: the same for all that have layers of the same
        kinds, however many, and that do sample or do not."""
        layers = laid_out.ranges[stage]
        key = limits, frozenset(self.kinds[layers.start : layers.stop]), laid_out.stages[stage].last
        if key not in self.peaks:
            self.peaks[key] = largest(engine.peaks(laid_out, stage, limits))
        return self.peaks[key]

    def around(self, *, first: bool, last: bool) -> range:
        """Layers of a stage that stands so: as many as tell what it holds beside them."""
        return range(0 if first else 1, self.rank.num_layers if last else 0 if first else 1)

    def at_end(self, *, first: bool, last: bool) -> tuple[int, LoadedWeights]:
        """What a stage holds beside its layers, as stored and as loaded."""
        if (first, last) not in self.at_ends:
            layers = self.around(first=first, last=last)
            loaded = self.engine.loaded(self.rank, self.ends, layers, self.layout)
            self.at_ends[first, last] = self.size_of(self.ends, layers), loaded
        return self.at_ends[first, last]
