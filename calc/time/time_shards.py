"""What one rank of each layout holds and does, in several formats at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from calc.formats import CACHE_BITS, CacheFormat, Precision, WeightFormat
from calc.hardware.parallel import Layout
from calc.hardware.shards import blocks_within
from calc.model.architecture import Architecture
from calc.model.mixers import AttentionMixer
from calc.model.tensor import WindowTokens
from calc.serving.engines.engine import Engine
from calc.serving.engines.loading import vision_share
from calc.serving.engines.sizes import LaidOut, Limits, Stage
from calc.serving.kv_cache import state_bytes
from calc.time.alike import Alike
from calc.time.bytes import read_bits, written_bits
from calc.time.flops import Product, is_multiplied, product_of, unrolled
from calc.time.sizes import Array, Indices, MixShares, Table, bytes_an_element, bytes_by_tensor
from calc.time.time_operations import Demand, Routing, attending_mixers, computed, of_all_layers, routing

BLOCK = 16
"""Tokens that a paged cache is handed out in."""


@dataclass(frozen=True)
class Shard:
    """A rank of a layout."""

    weighed: "Weighed"  # in all formats that were asked for
    experts: "Weighed"  # where the routed experts are from: those of one GPU where each rank holds whole ones
    stage_bytes: Array  # weights of each pipeline stage, [stages, formats]
    bits: dict[WindowTokens, Array]  # of cache a token on each stage, [stages, formats]
    state: Array  # bytes of recurrent state a sequence, [stages]
    rank: Architecture
    whole: Architecture
    layout: Layout
    precisions: tuple[Precision, ...]
    ranges: tuple[range, ...]

    @property
    def caching(self) -> Architecture:
        """A rank with all experts, which no cache depends on."""
        return self.weighed.rank

    @property
    def is_plain(self) -> bool:
        """Whether every layer keeps all tokens: an engine then needs whole blocks of each, and no more."""
        return set(self.bits) == {None} and not self.state.any()

    def plain_bytes(self, length: int) -> Array:
        """Bytes of cache of a sequence on each stage, [stages, formats], in whole blocks."""
        own = -(-length // self.layout.dcp)
        return np.maximum(self.bits[None] * (-(-own // BLOCK) * BLOCK) / 8, 1.0)

    def without_weights(self, precision: Precision, ranges: tuple[range, ...] | None = None) -> LaidOut:
        """As an engine lays its cache out."""
        return without_weights(self.whole, self.caching, ranges or self.ranges, self.layout, precision)

    @cached_property
    def stage_kinds(self) -> Alike[tuple[bool, bool, frozenset[int]]]:
        """Stages by whether they are the first or the last, and by the kinds of layers on them: their passes take the
        same working memory."""
        blocks, layers = self.rank.all_blocks, self.rank.num_layers
        return Alike.of(
            (
                stage.start == 0,
                stage.stop == layers,
                frozenset(i for i, block in enumerate(blocks) if any(place in stage for place in block.runs_in)),
            )
            for stage in self.ranges
        )

    @cached_property
    def unlike_stages(self) -> LaidOut:
        """One stage of each kind, as an engine's passes run on it."""
        ranges = tuple(self.ranges[first] for first in self.stage_kinds.first)
        return without_weights(self.whole, self.rank, ranges, self.layout, self.precisions[0])

    @cached_property
    def demand(self) -> Demand:
        """What the rank does, all stages together; weights and cache in all formats that were weighed, [formats]."""
        own, experts = self.weighed.demand, self.experts.demand
        sharded = replace(
            own,
            routing=routing(self.whole, self.layout),
            dcp=self.layout.dcp,
            longest=max(map(len, self.ranges)),
            stages=self.layout.pp,
        )
        if sharded.routing is None:
            return sharded
        return replace(
            sharded,
            flops=own.flops | {"experts_routed": experts.flops["experts_routed"]},
            elements=own.elements | {"experts_routed": experts.elements["experts_routed"]},
            weights=own.weights
            | {"experts_routed": experts.weights["experts_routed"] * share_of_experts(sharded.routing, self.layout)},
        )

    def working_bytes(self, engine: Engine, limits: Limits) -> list[int]:
        """The largest pass of each stage."""
        stages = self.unlike_stages
        peaks = (engine.peaks(stages, kind, limits) for kind in range(len(stages.stages)))
        largest = [max((int(working.bytes) for working in passes), default=0) for passes in peaks]
        return [largest[kind] for kind in self.stage_kinds.which]


def without_weights(
    whole: Architecture, rank: Architecture, ranges: tuple[range, ...], layout: Layout, precision: Precision
) -> LaidOut:
    """Stages of a rank as an engine knows them, their weights left out."""
    stages = tuple(
        Stage(tuple(blocks_within(rank, stage)), first=stage.start == 0, last=stage.stop == rank.num_layers)
        for stage in ranges
    )
    return LaidOut(whole, rank, stages, ranges, layout, precision)


@dataclass(frozen=True)
class Weighed:
    """A tensor-parallel rank in all formats, all experts whole: [formats] and [formats, layers]."""

    rank: Architecture
    plain: Array  # bytes of each layer without routed experts
    routed: Array
    first: Array
    last: Array
    demand: Demand


def of_rows(figures: Sequence[Any], which: Indices, forms: Indices) -> Any:
    """Of the figures of some ranks, each one or [formats], those of rows of one rank and format each: [rows, 1]; one
    figure where all are alike. Demands are rows of all their figures."""
    first = figures[0]
    if first is None:
        return None
    if isinstance(first, Mapping):
        return {key: of_rows([figure[key] for figure in figures], which, forms) for key in first}
    if isinstance(first, Demand | Routing):
        names = [field.name for field in fields(first)]
        return replace(
            first, **{name: of_rows([getattr(figure, name) for figure in figures], which, forms) for name in names}
        )
    table = np.array(figures)
    if (table == table.flat[0]).all():
        return table.flat[0].item()
    return table[which, None] if table.ndim == 1 else table[which, forms, None]


Shards = Callable[[Layout, tuple[int, ...]], Shard]
"""The shard of a layout in some of the formats."""


def shards(architecture: Architecture, engine: Engine, precisions: Sequence[Precision]) -> Shards:
    """The shard of a layout in some of the formats; each tensor-parallel degree is weighed once."""
    whole = engine.with_draft(architecture)
    mixes = bytes_an_element(whole, precisions)
    known: dict[int, Weighed] = {}
    ranks: dict[Layout, Architecture] = {}
    cached: dict[tuple[Layout, tuple[int, ...]], Shard] = {}

    def of(tp: int) -> Weighed:
        if tp not in known:
            known[tp] = weighed(whole, engine, precisions, tp, mixes)
        return known[tp]

    def rank(layout: Layout) -> Architecture:
        """Bytes of each stage, for any number of stages."""
        key = layout.model_copy(update={"pp": 1})
        if key not in ranks:
            ranks[key] = layout.rank(whole, engine.vocabulary(whole.vocab, layout.tp))
        return ranks[key]

    def shard(layout: Layout, formats: tuple[int, ...]) -> Shard:
        key = layout, formats
        if layout.dcp > 1:
            alone = shard(layout.model_copy(update={"dcp": 1}), formats)
            return replace(alone, layout=layout)
        if key not in cached:
            cached[key] = laid_out(whole, engine, precisions, layout, formats, of, rank(layout))
        return cached[key]

    return shard


def weighed(
    whole: Architecture,
    engine: Engine,
    precisions: Sequence[Precision],
    tp: int,
    mixes: Mapping[WeightFormat, MixShares],
) -> Weighed:
    """One degree of tensor parallelism; a draft layer and a vision encoder count where the engine loads them."""
    layout = Layout(tp=tp)
    rank = layout.rank(whole, engine.vocabulary(whole.vocab, tp))
    counted = {None, "vision" if engine.loads_vision else None}
    counted |= {"multi_token_prediction"} if engine.loads_draft else set()
    table = Table.of(rank.tensors())
    sizes = np.array([bytes_by_tensor(whole, rank, table, p, mixes) for p in precisions])
    shape = (len(precisions), rank.num_layers)
    plain, routed = np.zeros(shape), np.zeros(shape)
    first, last = np.zeros(len(precisions)), np.zeros(len(precisions))
    tied = np.zeros(len(precisions))
    products: dict[Product, Array] = {}
    balance: dict[Product, Array] = {}
    table_row = np.zeros(len(precisions))
    running = {block.layers: block.runs_in for block in whole.shared}
    for i, tensor in enumerate(table.tensors):
        size = sizes[:, i] * (tensor.count // max(1, len(tensor.layers)))
        if tensor.excluded_as not in counted:
            continue
        if tensor.excluded_as == "vision":
            first += vision_share(tensor, layout)
            continue
        if tensor.excluded_as is not None:
            last += sizes[:, i] * tensor.count
            continue
        if tensor.layers:
            target = routed if tensor.component == "experts_routed" else plain
            target[:, list(tensor.layers)] += size[:, None]
        elif tensor.component == "embedding":
            first += size
            if tensor.name == f"{rank.names.embedding}.weight":
                table_row = size / tensor.shape[0]
                tied = size if whole.tied else tied
        else:
            last += size
        product = product_of(rank, tensor)
        times = len(running.get(tensor.layers, tensor.layers)) if tensor.layers else 1
        products[product] = products.get(product, 0) + size * times
        if is_multiplied(tensor):
            narrow = np.where(sizes[:, i] * 8 < 15 * tensor.numel, 1, -1) * tensor.parameters
            balance[product] = balance.get(product, 0) + narrow
    unshared, layers = unrolled(rank), range(rank.num_layers)
    attending = attending_mixers(unshared, layers)
    by_kv = {p.kv: of_all_layers(attending, partial(read_bits, kv=p.kv)) for p in precisions}
    written = {p.kv: float(sum(layers * written_bits(m, p.kv) for m, layers in attending)) for p in precisions}
    states = partial(engine.state_bytes, whole)
    base = computed(unrolled(whole), unshared, layout, layers, states=states)
    return Weighed(
        rank=rank,
        plain=plain,
        routed=routed,
        first=first,
        last=last,
        demand=replace(
            base,
            weights=products,
            quantized={product: sign > 0 for product, sign in balance.items()},
            read={back: np.array([float(by_kv[p.kv][back]) for p in precisions]) for back in by_kv[precisions[0].kv]},
            written=np.array([written[p.kv] for p in precisions]),
            table_row=table_row,
            tied_head=tied,
            width=precisions[0].activation_bytes,
        ),
    )


def laid_out(
    whole: Architecture,
    engine: Engine,
    precisions: Sequence[Precision],
    layout: Layout,
    formats: tuple[int, ...],
    of: Callable[[int], Weighed],
    rank: Architecture,
) -> Shard:
    """A layout: routed experts that are whole on each rank are those of one GPU, as many as a rank holds."""
    chosen, form_indices = of(layout.tp), list(formats)
    slices = layout.tp * layout.dp // layout.ep
    experts = chosen if slices == layout.tp else of(1)
    ranges = list(engine.stages(whole.num_layers, layout.pp))
    by_layer = chosen.plain[form_indices] + experts.routed[form_indices] * share_of_experts(
        routing(whole, layout), layout
    )
    stage_bytes = np.stack([by_layer[:, stage.start : stage.stop].sum(axis=1) for stage in ranges])
    stage_bytes[0] += chosen.first[form_indices]
    stage_bytes[-1] += chosen.last[form_indices] + (chosen.demand.tied_head[form_indices] if layout.pp > 1 else 0)
    bits = cache_bits(rank, [precisions[f] for f in formats], ranges)
    states = np.array([state_bytes(blocks_within(rank, stage)) for stage in ranges], dtype=np.float64)
    return Shard(
        weighed=chosen,
        experts=experts,
        stage_bytes=stage_bytes,
        bits=bits,
        state=states,
        rank=rank,
        whole=whole,
        layout=layout,
        precisions=tuple(precisions[f] for f in formats),
        ranges=tuple(ranges),
    )


def share_of_experts(route: Routing | None, layout: Layout) -> float:
    """Share of all routed experts that the ranks of one slice hold."""
    return 1.0 if route is None else -(-route.experts // layout.ep) / route.experts


def cache_bits(
    rank: Architecture, precisions: Sequence[Precision], ranges: Sequence[range]
) -> dict[WindowTokens, Array]:
    """Bits that a token holds in the layers of each stage, by their window."""
    rows: dict[WindowTokens, Array] = {}
    where = {
        kv: [f for f, precision in enumerate(precisions) if precision.kv == kv] for kv in {p.kv for p in precisions}
    }
    for block in rank.all_blocks:
        layers = np.array([[sum(stage.start <= place < stage.stop for place in block.runs_in)] for stage in ranges])
        for mixer in block.attentions:
            for kv, formats in where.items():
                for back, each in cached_bits(mixer, kv).items():
                    grid = rows.setdefault(back, np.zeros((len(ranges), len(precisions))))
                    grid[:, formats] += layers * float(each)
    return rows


def cached_bits(mixer: AttentionMixer, kv: CacheFormat) -> dict[WindowTokens, Any]:
    """Bits that a layer keeps of each token within its window, or of all."""
    if not (compressed := mixer.compressed_elements()):
        return {mixer.window: written_bits(mixer, kv)}
    return {mixer.window: mixer.cached_elements() * CACHE_BITS[kv], None: compressed * CACHE_BITS[kv]}
