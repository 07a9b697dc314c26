"""The weights of a tensor-parallel rank, weighed once for every way to cut its layers into pipeline stages."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Generic, NamedTuple, TypeVar

from calc.formats import Precision
from calc.formats.stored import Piece
from calc.hardware.gpu import GPU
from calc.hardware.overhead import OverheadItem, Range
from calc.hardware.parallel import Layout
from calc.hardware.shards import OutsideRules, blocks_within, copies_within_piece, layer_kinds, places_within
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.named import Peak, largest
from calc.remembered import remembered
from calc.serving.engines.cache import Cache
from calc.serving.engines.engine import Engine
from calc.serving.engines.sizes import LaidOut, Limits, LoadedWeights, Stage

StepSize = tuple[int, int, int, int, bool]
"""Tokens of a forward pass, sequences that run at once, bytes of images, patches of them that pass the encoder at once,
and whether the stage is the last: all that a pass depends on."""


def step_size(limits: Limits, *, last: bool) -> StepSize:
    return limits.step_tokens, limits.sequences, limits.encoder_bytes, limits.image_patches, last


Amount = TypeVar("Amount")


class OutsideLayers(NamedTuple, Generic[Amount]):
    """Amounts outside the layers: on the only stage, on the first of several, on one between and on the last."""

    only: Amount
    first: Amount
    between: Amount
    last: Amount

    def of_stages(self, stages: int) -> list[Amount]:
        """Amount on each of so many stages [stages]."""
        return [self.only] if stages == 1 else [self.first, *[self.between] * (stages - 2), self.last]


ENDS = OutsideLayers(only=(True, True), first=(True, False), between=(False, False), last=(False, True))
"""Whether each is the first stage, and whether it is the last."""


class LayerBytes(NamedTuple):
    """Bytes on a rank: cumulated over the layers, and outside them."""

    layers: list[int]
    outside: OutsideLayers[int]


class Places(NamedTuple):
    """Numbers of a rank's pieces, by where in the model they are."""

    outside_layers: list[int]
    """Pieces before the first layer and after the last."""
    of_kinds: list[list[int]]
    """Pieces of a layer of each kind."""
    kinds: list[int]
    """Number of each layer's kind: layers of a kind have equal bytes."""
    firsts: list[int]
    """The first layer of each kind."""


class BlockPeaks(NamedTuple):
    """Peaks of a pass on a rank at start, whatever the workload."""

    blocks: list[Peak | None]
    """Peak in each block."""
    behind: Peak | None
    """Peak after the last layer."""


class Weighing:
    """Weights of a tensor-parallel rank: of each kind of layer, before the first layer and after the last."""

    def __init__(
        self,
        engine: Engine,
        whole: Architecture,
        precision: Precision,
        layout: Layout,
        sibling: "Weighing | None" = None,
    ) -> None:
        """`sibling` is this rank in other formats: its passes take equal memory where activations are as wide."""
        self.engine, self.whole, self.precision, self.layout, self.sibling = engine, whole, precision, layout, sibling
        self.rank: Architecture = engine.rank(whole, layout) if sibling is None else sibling.rank
        self.peaks: dict[StepSize, BlockPeaks] = {}
        self.highest: dict[tuple[StepSize, range], Peak] = {}
        self.cuts: dict[int, list[tuple[int, ...]]] = {}
        if sibling is not None and sibling.precision.activation_bytes == precision.activation_bytes:
            self.peaks, self.highest = sibling.peaks, sibling.highest

    @cached_property
    def file(self) -> list[Piece]:
        """The tensors of the rank, each with the format of the file that it is read from."""
        return self.engine.file(self.whole, self.precision, self.rank)

    def read(self, whole: Architecture, precision: Precision, rank: Architecture) -> list[Piece]:
        """The tensors of a rank, each with the format of the engine's file; those of its own rank are read once."""
        is_own = whole is self.whole and rank is self.rank and precision is self.precision
        return self.file if is_own else self.engine.file(whole, precision, rank)

    @cached_property
    def pieces(self) -> list[Piece]:
        """The tensors of the rank that are loaded."""
        engine = self.engine
        counted = {None, engine.loads_vision and "vision", engine.loads_draft and "multi_token_prediction"}
        on_gpus = engine.on_gpus(self.whole, self.file)
        return [piece for piece in on_gpus if piece.tensor.excluded_as in counted]

    @property
    def stored(self) -> int:
        """Bytes of the rank's weights as stored, of all stages, without a vision encoder."""
        pieces = (piece for piece in self.pieces if piece.tensor.excluded_as != "vision")
        return sum([piece.nbytes * piece.a_layer * max(1, len(piece.tensor.layers)) for piece in pieces])

    @cached_property
    def places(self) -> Places:
        """Places of the loaded tensors; formats that split no tensor by layers share them."""
        tensors = [piece.tensor for piece in self.pieces]
        if self.sibling is not None and tensors == [piece.tensor for piece in self.sibling.pieces]:
            return self.sibling.places
        within = [tensor.layers if tensor.excluded_as is None else () for tensor in tensors]
        kinds = layer_kinds(
            self.rank.num_layers, [*(block.runs_in for block in self.rank.all_blocks), *filter(None, within)]
        )
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        firsts = [kinds.index(kind) for kind in numbers]
        of_kinds = [[i for i, layers in enumerate(within) if first in layers] for first in firsts]
        ends = [i for i, layers in enumerate(within) if not layers]
        return Places(ends, of_kinds, [numbers[kind] for kind in kinds], firsts)

    def pieces_of_kinds(self) -> Iterator[tuple[list[Piece], range]]:
        """Pieces of one layer of each kind, the first, and its number as a range."""
        for numbers, first in zip(self.places.of_kinds, self.places.firsts, strict=True):
            yield [self.pieces[number] for number in numbers], range(first, first + 1)

    @property
    def outside_layers(self) -> list[Piece]:
        """Pieces before the first layer and after the last."""
        return [self.pieces[number] for number in self.places.outside_layers]

    def kinds_of(self, stages: Sequence[range]) -> list[tuple[int, ...]]:
        """Kinds of the layers of each of the engine's stages, ascending. The last layer of all, after which tokens are
        sampled, is a kind of its own, -1; the first stage is marked by a -2, the last by a -3."""
        if len(stages) not in self.cuts:
            kinds = *self.places.kinds[:-1], -1
            in_order = [kinds[stage.start : stage.stop] for stage in stages]
            ascending = {layers: tuple(sorted(layers)) for layers in set(in_order)}
            each = [ascending[layers] for layers in in_order]
            each[0] = -2, *each[0]
            each[-1] = -3, *each[-1]
            self.cuts[len(stages)] = each
        return self.cuts[len(stages)]

    @cached_property
    def bytes_by_kind(self) -> list[tuple[int, LoadedWeights]]:
        """Bytes of a layer of each kind, as stored and as loaded."""
        by_kind, loaded = [], self.engine.loaded
        for pieces, layer in self.pieces_of_kinds():
            stored = sum([piece.nbytes * piece.a_layer for piece in pieces])
            by_kind.append((stored, loaded(self.rank, pieces, layer, self.layout)))
        return by_kind

    @cached_property
    def experts_and_rest(self) -> list[tuple[int, int]]:
        """Bytes of routed experts and of all else [kinds + 4]: by kind of layer, and outside the layers."""
        by_layer, ends = [], [(self.outside_layers, self.ending(first=first, last=last)) for first, last in ENDS]
        for pieces, stage in (*self.pieces_of_kinds(), *ends):
            sizes = [0, 0]
            for piece in pieces:
                sizes[piece.tensor.component == "experts_routed"] += self.stored_size(piece, stage)
            by_layer.append((sizes[True], sizes[False]))
        return by_layer

    def least_stored_bytes(self, shape: Layout) -> LayerBytes:
        """Lower bound of the bytes stored on a rank of a shape: all its ranks divide the routed experts, those of the
        largest group all else, and none the tables."""
        ranks = max((shape.tp, *(self.engine.groups(self.whole, shape) or ())))
        each = [experts // shape.gpus + others // ranks for experts, others in self.experts_and_rest]
        return self.cumulated(each, each[-len(ENDS) :])

    def cumulated(self, each: Sequence[int], outside: Iterable[int]) -> LayerBytes:
        """Bytes on a rank from those of a layer of each kind and outside the layers, with the tables of each stage."""
        layers = accumulate(map(each.__getitem__, self.places.kinds), initial=0)
        return LayerBytes([*layers], OutsideLayers(*(nbytes + self.tables.total for nbytes in outside)))

    @cached_property
    def loaded(self) -> LayerBytes:
        """Bytes of the rank once loaded."""
        outside = (self.bytes_outside_layers(first=first, last=last)[1].total for first, last in ENDS)
        return self.cumulated([loaded.total for _, loaded in self.bytes_by_kind], outside)

    @cached_property
    def tables(self) -> LoadedWeights:
        """Bytes of the tables on each stage."""
        return self.engine.tables(self.rank) if self.sibling is None else self.sibling.tables

    def stored_size(self, piece: Piece, stage: range) -> int:
        """Bytes of a stage's share of a tensor as stored; 0 of a vision encoder, which is counted separately."""
        if piece.tensor.excluded_as == "vision":
            return 0
        return self.at(piece, stage).nbytes * self.copies(piece, stage)

    def at(self, piece: Piece, stage: range) -> Piece:
        """A tensor as a stage holds it: a tied head on another than the embedding's is divided as heads are, also where
        the embedding is not (SGLang `models/gemma4_causal.py`)."""
        rank, tensor = self.rank, piece.tensor
        if stage.start == 0 or not rank.tied or tensor.name != rank.names.table or rank.head_rows in (None, rank.vocab):
            return piece
        return Piece.of(replace(tensor, shape=(rank.head_rows, *tensor.shape[1:])), piece.form)

    def copies(self, piece: Piece, stage: range) -> int:
        """Number of a tensor's copies on a stage."""
        return piece.a_layer * copies_within_piece(self.whole, piece.tensor, stage, self.outside_rules)

    @cached_property
    def outside_rules(self) -> OutsideRules:
        """Weights outside the layers that its stages hold."""
        return self.engine.outside_rules(self.whole)

    def ending(self, *, first: bool, last: bool) -> range:
        """Layers of a stage that has none, or all of them, as the first stage or the last."""
        begin = 0 if first else 1
        return range(begin, self.rank.num_layers if last else begin)

    @property
    def without_weights(self) -> LaidOut:
        """All layers on one stage, weights not counted."""
        layers = range(self.rank.num_layers)
        blocks = (*blocks_within(self.rank, layers), *self.draft_layers)
        stage = Stage(blocks, first=True, last=True)
        return LaidOut(self.whole, self.rank, (stage,), (layers,), self.layout, self.precision)

    def stages(self, ranges: Sequence[range]) -> tuple[Stage, ...]:
        """Pipeline stages; those with as many layers of each kind, first and last excepted, are one object."""
        built: dict[tuple[object, ...], Stage] = {}
        counted: dict[tuple[int, ...], Counter[int]] = {}
        stages = []
        drafts = self.engine.draft_weights_per_stage(self.whole, self.precision, self.layout.tp, len(ranges))
        for layers, draft in zip(ranges, drafts, strict=True):
            kinds = tuple(self.places.kinds[layers.start : layers.stop])
            if kinds not in counted:
                counted[kinds] = Counter(kinds)
            counts = counted[kinds]
            first, last = layers.start == 0, layers.stop == self.rank.num_layers
            key = first, last, draft, *sorted(counts.items())
            if key not in built:
                built[key] = self.stage(layers, counts, draft, first=first, last=last)
            stages.append(built[key])
        return tuple(stages)

    def stage(self, layers: range, counts: Counter[int], draft: int, *, first: bool, last: bool) -> Stage:
        """A stage of these layers; `draft`: bytes of a draft model's weights on it."""
        weights, ends = self.bytes_outside_layers(first=first, last=last)
        parts = [(1, ends), (1, self.tables)] + ([(1, LoadedWeights(draft=draft))] if draft else [])
        for kind, count in counts.items():
            stored, loaded = self.bytes_by_kind[kind]
            weights += count * stored
            parts.append((count, loaded))
        blocks = blocks_within(self.rank, layers)
        if last:
            blocks += self.draft_layers
        total = LoadedWeights.sum(parts)
        return Stage(tuple(blocks), first, last, weights + draft, total.vision, total)

    def working(self, engine: Engine, limits: Limits, layers: range) -> Peak:
        """Peak of the pass that an engine runs at start, on a stage: the largest of its layers' peaks."""
        last = layers.stop == self.rank.num_layers
        key = step_size(limits, last=last), layers
        if key not in self.highest:
            peaks = self.peaks_of(engine, limits, last=last)
            each = zip(self.rank.all_blocks, peaks.blocks, strict=True)
            passed = [peak for block, peak in each if peak is not None and places_within(block.runs_in, [layers])]
            self.highest[key] = largest(passed if peaks.behind is None else [*passed, peaks.behind])
        return self.highest[key]

    def peaks_of(self, engine: Engine, limits: Limits, *, last: bool) -> BlockPeaks:
        """Peaks of a pass in each block, on the last stage or another, and after the last layer."""
        size = step_size(limits, last=last)
        if size not in self.peaks:
            each = [self.peak(engine, limits, [block], last=last) for block in self.rank.all_blocks]
            behind = self.peak(engine, limits, self.draft_layers, last=True) if last else None
            self.peaks[size] = BlockPeaks(each, behind)
        return self.peaks[size]

    def working_bytes(self, engine: Engine, limits: Limits, stages: Sequence[range]) -> list[int]:
        """Peak bytes of the pass at start on each stage [stages]."""
        return [int(self.working(engine, limits, stage).bytes) for stage in stages]

    def least_working(self, engine: Engine, limits: Limits) -> int:
        """Peak bytes of a pass in the layer that takes least."""
        peaks = self.peaks_of(engine, limits, last=False).blocks
        return min(0 if peak is None else int(peak.bytes) for peak in peaks)

    def peak(self, engine: Engine, limits: Limits, blocks: list[Block], *, last: bool) -> Peak | None:
        stage = Stage(tuple(blocks), first=False, last=last)
        laid_out = LaidOut(self.whole, self.rank, (stage,), (range(0),), self.layout, self.precision)
        return max(engine.peaks(laid_out, 0, limits), key=lambda peak: int(peak.bytes), default=None)

    @property
    def draft_layers(self) -> list[Block]:
        """Layers for multi-token prediction, where the engine loads them."""
        return [module.block for module in self.rank.prediction] if self.engine.loads_draft else []

    @remembered
    def bytes_outside_layers(self, *, first: bool, last: bool) -> tuple[int, LoadedWeights]:
        """Bytes of a stage outside its layers, as stored and as loaded."""
        ends = self.outside_layers
        if self.sibling is not None and ends == self.sibling.outside_layers:
            return self.sibling.bytes_outside_layers(first=first, last=last)
        layers = self.ending(first=first, last=last)
        stored = sum(self.stored_size(piece, layers) for piece in ends)
        ends = [self.at(piece, layers) for piece in ends]
        return stored, self.engine.loaded(self.rank, ends, layers, self.layout)


class RankWeights:
    """Weights of a model on its ranks, under engine flags that load equal weights: each rank is weighed once and each
    layout laid out once for a whole report."""

    def __init__(
        self, architecture: Architecture, engine: Engine, precision: Precision, sibling: "RankWeights | None" = None
    ) -> None:
        """`sibling` has the weights in other formats."""
        self.architecture, self.engine, self.precision, self.sibling = architecture, engine, precision, sibling
        self.whole: Architecture = engine.with_draft(architecture) if sibling is None else sibling.whole
        self.starts: dict[tuple[Hashable, ...], tuple[Cache | None, Mapping[OverheadItem, Range]]] = (
            {} if sibling is None else sibling.starts
        )
        """Cache and overhead of engines that set memory aside, which weights in other formats leave as they are."""
        self.under_flags: dict[str, RankWeights] = {}

    @remembered
    def of(self, layout: Layout) -> Weighing:
        """Weights of a rank, with the layers of all its pipeline stages."""
        if layout.pp > 1:
            unstaged = layout.model_copy(update={"pp": 1})
            if self.engine.groups(self.whole, unstaged) == self.engine.groups(self.whole, layout):
                return self.of(unstaged)
        sibling = None if self.sibling is None else self.sibling.of(layout)
        return Weighing(self.engine, self.whole, self.precision, layout, sibling)

    @remembered
    def ranges_of(self, stages: int) -> tuple[range, ...]:
        """Layers of each of so many pipeline stages."""
        return tuple(self.engine.stages(self.architecture.num_layers, stages))

    @remembered
    def laid_out(self, layout: Layout) -> LaidOut:
        """A rank of each pipeline stage."""
        weighing, ranges = self.of(layout), self.ranges_of(layout.pp)
        return LaidOut(self.whole, weighing.rank, weighing.stages(ranges), ranges, layout, self.precision)

    def start(
        self, engine: Engine, layout: Layout, gpu: GPU, limits: Limits
    ) -> tuple[Cache | None, Mapping[OverheadItem, Range]]:
        """Layout of the cache, and the usual overhead, on GPUs with the kernels and links of this one."""
        key = engine, layout, self.precision.kv, limits, *engine.kernel_key(gpu)
        if (known := self.starts.get(key)) is not None:
            return known
        laid_out = self.laid_out(layout)
        start = engine.cache(laid_out, gpu, limits), engine.overhead_on(gpu, laid_out, limits)
        if limits.share is not None:
            self.starts[key] = start
        return start

    def reloaded(self, engine: Engine) -> "RankWeights":
        """Weights as an engine loads them under other flags."""
        flags = engine.options.model_dump_json()
        if flags not in self.under_flags:
            self.under_flags[flags] = RankWeights(self.architecture, engine, self.precision)
        return self.under_flags[flags]
