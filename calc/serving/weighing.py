"""The weights of a tensor-parallel rank, weighed once for every way to cut its layers into pipeline stages."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple, Self

from calc.formats import Precision
from calc.formats.stored import Piece
from calc.hardware.parallel import Layout
from calc.hardware.shards import blocks_within, copies_within, layer_kinds
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.named import Peak, largest
from calc.serving.engines.engine import Engine
from calc.serving.engines.sizes import LaidOut, Limits, LoadedWeights, Stage

StepSize = tuple[int, int, int]
"""Tokens of a forward pass, and sequences that run at once: all of an engine's limits that a pass hangs on."""


class LayerBytes(NamedTuple):
    """Bytes on a rank: of all layers up to each, of what stands before and behind them, and on each stage beside."""

    layers: list[int]
    before: int
    behind: int
    beside: int

    @classmethod
    def of(cls, each: Iterable[int], before: int, behind: int, beside: int = 0) -> Self:
        """By the bytes of each layer."""
        return cls([*accumulate(each, initial=0)], before, behind, beside)


class KindPeaks(NamedTuple):
    """What an engine finds at start that a pass takes on a rank, whatever the workload."""

    layers: list[Peak | None]
    """In a layer of each kind."""
    behind: Peak | None
    """In what stands behind the layers."""


class Weighing:
    """The weights of a tensor-parallel rank: of each kind of layer, and of what stands before and behind them."""

    def __init__(self, engine: Engine, whole: Architecture, precision: Precision, layout: Layout) -> None:
        self.engine, self.whole, self.precision, self.layout = engine, whole, precision, layout
        self.rank = layout.rank(whole, engine.vocabulary(whole.vocab, layout.tp))
        counted = {None, engine.loads_vision and "vision", engine.loads_draft and "multi_token_prediction"}
        self.file: list[Piece] = engine.file(whole, precision, self.rank)
        """The tensors of the rank, each with the format of the file that it is read from."""
        self.on_gpus: list[Piece] = engine.on_gpus(whole, self.file)
        """Those that GPUs hold."""
        self.pieces = [piece for piece in self.on_gpus if piece.tensor.excluded_as in counted]
        """The tensors that are loaded."""
        self.ends = [piece for piece in self.pieces if not piece.tensor.layers or piece.tensor.excluded_as is not None]
        """What stands before the layers and behind them."""
        layers: dict[tuple[int, ...], list[Piece]] = {}
        for piece in self.pieces:
            if piece.tensor.layers and piece.tensor.excluded_as is None:
                layers.setdefault(piece.tensor.layers, []).append(piece)
        kinds = layer_kinds(self.rank.num_layers, [*(block.runs_in for block in self.rank.all_blocks), *layers])
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        self.kinds: list[int] = [numbers[kind] for kind in kinds]
        """The number of each layer's kind: layers of one weigh the same."""
        self.firsts: list[int] = [kinds.index(kind) for kind in numbers]
        """The first layer of each kind."""
        self.of_kind = [
            ([piece for places, alike in layers.items() if first in places for piece in alike], range(first, first + 1))
            for first in self.firsts
        ]
        """The tensors of the first layer of each kind, and that layer."""
        self.stored_each: list[int] = [sum(piece.nbytes * piece.a_layer for piece in own) for own, _ in self.of_kind]
        """Bytes of a layer of each kind, as stored."""
        self.loaded_each = [engine.loaded(self.rank, own, layer, layout) for own, layer in self.of_kind]
        """What a layer of each kind takes once it is loaded."""
        self.tables: LoadedWeights = engine.tables(self.rank)
        self.at_ends = dict[tuple[bool, bool], tuple[int, LoadedWeights]]()
        each = [loaded.total for loaded in self.loaded_each]
        before, behind = (self.at_end(first=first, last=not first)[1].total for first in (True, False))
        self.loaded = LayerBytes.of([each[kind] for kind in self.kinds], before, behind, self.tables.total)
        """What the rank takes once it is loaded, with the tables of each stage."""
        self.peaks = dict[StepSize, KindPeaks]()
        self.block_peaks = dict[StepSize, list[Peak | None]]()

    def divided(self, shapes: Iterable[Layout]) -> list[tuple[Layout, LayerBytes]]:
        """Shapes with what a rank of each stores at least: all its ranks share the routed experts, those of a copy all
        else, and each has whole tables."""
        parts, layers = list[tuple[int, int]](), self.rank.num_layers
        for pieces, stage in [*self.of_kind, (self.ends, range(0)), (self.ends, range(layers, layers))]:
            sizes = [0, 0]
            for piece in pieces:
                sizes[piece.tensor.component == "experts_routed"] += self.size(piece, stage)
            parts.append((sizes[True], sizes[False]))

        def on_rank(shape: Layout) -> LayerBytes:
            *each, before, behind = (experts // shape.gpus + others // shape.tp for experts, others in parts)
            return LayerBytes.of([each[kind] for kind in self.kinds], before, behind, self.tables.total)

        return [(shape, on_rank(shape)) for shape in shapes]

    def size(self, piece: Piece, stage: range) -> int:
        """Bytes of a stage's share of a tensor, as stored; a vision encoder counts apart."""
        if piece.tensor.excluded_as == "vision":
            return 0
        return piece.nbytes * piece.a_layer * copies_within(self.whole, piece.tensor, stage)

    def size_of(self, pieces: Iterable[Piece], stage: range) -> int:
        """The same of several."""
        return sum(self.size(piece, stage) for piece in pieces)

    def laid_out(self, layout: Layout, ranges: tuple[range, ...]) -> LaidOut:
        """With the layers on so many pipeline stages."""
        return LaidOut(self.whole, self.rank, self.stages(ranges), ranges, layout, self.precision)

    @property
    def unweighed(self) -> LaidOut:
        """All layers on one stage, weights left out."""
        layers = range(self.rank.num_layers)
        blocks = (*blocks_within(self.rank, layers), *self.drafts)
        stage = Stage(blocks, weights=0, vision=0, first=True, last=True, loaded=LoadedWeights())
        return LaidOut(self.whole, self.rank, (stage,), (layers,), self.layout, self.precision)

    def stages(self, ranges: Sequence[range]) -> tuple[Stage, ...]:
        """Stages with as many layers of each kind, first and last excepted, are one object."""
        alike: dict[tuple[object, ...], Stage] = {}
        stages = []
        drafts = self.engine.draft_weights_per_stage(self.whole, self.precision, len(ranges))
        for layers, draft in zip(ranges, drafts, strict=True):
            counts = Counter(self.kinds[layers.start : layers.stop])
            first, last = layers.start == 0, layers.stop == self.rank.num_layers
            key = first, last, draft, *sorted(counts.items())
            if key not in alike:
                alike[key] = self.stage(layers, counts, draft, first=first, last=last)
            stages.append(alike[key])
        return tuple(stages)

    def stage(self, layers: range, counts: Counter[int], draft: int, *, first: bool, last: bool) -> Stage:
        """A stage of these layers; `draft`: bytes of a draft model's weights on it."""
        weights, ends = self.at_end(first=first, last=last)
        parts = [(1, ends), (1, self.tables), (1, LoadedWeights(draft=draft))]
        for kind, count in counts.items():
            weights += count * self.stored_each[kind]
            parts.append((count, self.loaded_each[kind]))
        blocks = blocks_within(self.rank, layers)
        if last:
            blocks += self.drafts
        loaded = LoadedWeights.sum(parts)
        return Stage(tuple(blocks), weights + draft, loaded.vision, first=first, last=last, loaded=loaded)

    def working(self, peaks: KindPeaks, laid_out: LaidOut, stage: int) -> Peak:
        """What an engine finds at start that a pass takes on a stage: it goes through layer after layer."""
        layers = laid_out.ranges[stage]
        passed = [peaks.layers[kind] for kind in set(self.kinds[layers.start : layers.stop])]
        if laid_out.stages[stage].last:
            passed.append(peaks.behind)
        return largest([peak for peak in passed if peak is not None])

    def peaks_of(self, engine: Engine, limits: Limits) -> KindPeaks:
        """The same of a layer of each kind, and of what stands behind them."""
        size = limits.step_tokens, limits.sequences, limits.encoder_bytes
        if size not in self.peaks:
            of_blocks = [*zip(self.rank.all_blocks, self.peaks_of_blocks(engine, limits), strict=True)]
            runs = [[peak for block, peak in of_blocks if peak and at in block.runs_in] for at in self.firsts]
            layers = [largest(peaks) if peaks else None for peaks in runs]
            self.peaks[size] = KindPeaks(layers, self.peak(engine, limits, self.drafts, last=True))
        return self.peaks[size]

    def peaks_of_blocks(self, engine: Engine, limits: Limits) -> list[Peak | None]:
        """The same of each block."""
        size = limits.step_tokens, limits.sequences, limits.encoder_bytes
        if size not in self.block_peaks:
            self.block_peaks[size] = [self.peak(engine, limits, [block]) for block in self.rank.all_blocks]
        return self.block_peaks[size]

    def least_working(self, engine: Engine, limits: Limits) -> int:
        """Bytes that a pass takes in the layer that takes least."""
        peaks = self.peaks_of_blocks(engine, limits)
        return min(0 if peak is None else int(peak.bytes) for peak in peaks)

    def peak(self, engine: Engine, limits: Limits, blocks: list[Block], *, last: bool = False) -> Peak | None:
        stage = Stage(tuple(blocks), 0, 0, first=False, last=last, loaded=LoadedWeights())
        laid_out = LaidOut(self.whole, self.rank, (stage,), (range(0),), self.layout, self.precision)
        return max(engine.peaks(laid_out, 0, limits), key=lambda peak: int(peak.bytes), default=None)

    @property
    def drafts(self) -> list[Block]:
        """The layers that only speculate."""
        return [module.block for module in self.rank.prediction] if self.engine.loads_draft else []

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
