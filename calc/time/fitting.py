"""The reverse question: which models fit some GPUs, in which format, up to which context, and how fast."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

from calc.formats import Precision
from calc.hardware.generations import Platform
from calc.hardware.gpu import GPU
from calc.hardware.overhead import OverheadItem
from calc.hardware.parallel import Layout
from calc.hardware.shards import blocks_within
from calc.model.architecture import Architecture
from calc.model.feedforward import MoE
from calc.model.mixers import Recurrent
from calc.serving.engines import ENGINES
from calc.serving.engines.engine import Engine, LaidOut, LoadedWeights, Stage
from calc.serving.engines.loading import vision_share
from calc.serving.kv_cache import state_bytes
from calc.serving.workload import Workload
from calc.time.layouts import refusal
from calc.time.machines import Cards
from calc.time.roofline import Machine, all_reduce
from calc.time.sizes import Array, Table, bytes_an_element, bytes_by_tensor, read_only
from calc.time.time_shards import BLOCK, held_bits, without_weights
from calc.units import GIB

LENGTH = 16_384
"""Tokens of the sequence whose pass is planned; beyond, only the cache grows."""
MAPPED = tuple(name for name, engine in ENGINES.items() if engine.sequences_option is not None)
"""Engines that allocate at start: those whose room is known before requests come."""


@dataclass(frozen=True)
class Fitting:
    """A row a model, or a GPU; a column a format."""

    names: tuple[str, ...]
    precisions: tuple[Precision, ...]
    layouts: tuple[Layout | None, ...]  # on that many GPUs; None: the engine accepts none
    max_context: Array  # tokens of one sequence that memory and the model allow; 0: it does not fit
    tokens_per_s: Array  # of one sequence at the context asked about, or the longest that fits; 0: it does not fit


def fitting(
    models: Mapping[str, Architecture],
    gpu: GPU,
    engine: Engine,
    precisions: Sequence[Precision],
    *,
    count: int = 1,
    context: int = 8192,
    node: int = 8,
) -> Fitting:
    """Every model in every format on so many GPUs of one kind, by the engine's defaults."""
    sized = {name: Sized.of(model, engine, precisions, count, node) for name, model in models.items()}
    return fitting_sized(sized, gpu, engine, precisions, context=context, node=node)


def fitting_sized(
    sized: Mapping[str, "Sized | None"],
    gpu: GPU,
    engine: Engine,
    precisions: Sequence[Precision],
    *,
    context: int = 8192,
    node: int = 8,
) -> Fitting:
    """The same of models whose layout and bytes are known."""
    cards = Cards([gpu], [precision.weights for precision in precisions], engine.name, node)
    rows = [None if row is None else (row, *row.on(gpu, engine, cards, 0, context)) for row in sized.values()]
    return fitted(tuple(sized), precisions, rows)


def fitting_gpus(
    model: Architecture,
    gpus: Sequence[GPU],
    engine: Engine,
    precisions: Sequence[Precision],
    *,
    count: int = 1,
    context: int = 8192,
    node: int = 8,
) -> Fitting:
    """One model in every format on so many of each of some GPUs."""
    cards = Cards(gpus, [precision.weights for precision in precisions], engine.name, node)
    sized = Sized.of(model, engine, precisions, count, node)
    rows = [
        None if sized is None else (sized, *sized.on(gpu, engine, cards, at, context)) for at, gpu in enumerate(gpus)
    ]
    return fitted(tuple(gpu.id for gpu in gpus), precisions, rows)


def fitted(
    names: tuple[str, ...], precisions: Sequence[Precision], rows: Sequence["tuple[Sized, Array, Array] | None"]
) -> Fitting:
    none = np.zeros(len(precisions))
    return Fitting(
        names=names,
        precisions=tuple(precisions),
        layouts=tuple(row and row[0].layout for row in rows),
        max_context=read_only(np.array([none if row is None else row[1] for row in rows])),
        tokens_per_s=read_only(np.array([none if row is None else row[2] for row in rows])),
    )


@dataclass(frozen=True, eq=False)
class Sized:
    """A model on so many GPUs, whatever they are; figures are [formats]."""

    model: Architecture
    rank: Architecture
    layout: Layout
    weights: "WeightBytes"
    per_token: Array  # bits of cache where all tokens are kept
    window: Array  # bits of full windows
    windows: Mapping[int, Array]  # bits of a token by window
    state: int  # bytes

    @classmethod
    def of(
        cls, model: Architecture, engine: Engine, precisions: Sequence[Precision], count: int, node: int
    ) -> "Sized | None":
        """In the layout of `layout_on`; None where the engine accepts none."""
        layout = layout_on(model, engine, precisions[0], count, node)
        if layout is None:
            return None
        rank = layout.rank(model, engine.vocabulary(model.vocab, layout.tp))
        table = Table.of(rank.tensors())
        mixes = bytes_an_element(model, precisions, gguf=engine.reads_gguf)
        sizes = np.array([bytes_by_tensor(model, rank, table, precision, mixes) for precision in precisions])
        weights = WeightBytes.of(rank, engine, table, sizes, layout)
        state = state_bytes(blocks_within(rank, range(rank.num_layers)))
        return cls(model, rank, layout, weights, *cache_terms(rank, precisions), state)

    def on(self, gpu: GPU, engine: Engine, cards: Cards, at: int, context: int) -> tuple[Array, Array]:
        """The longest context, and tokens a second, on GPUs of a kind, the one `at` this place of the cards."""
        pp, none = self.layout.pp, np.zeros(len(self.per_token))
        growth = self.per_token / 8 / pp
        if engine.share_option is None:
            room = usual_room(gpu, engine, self.layout)
            kept = none + (self.slots(gpu, engine) if room > self.weights.total.min() / pp else 0)
        else:
            room = budget(self.model, self.rank, gpu, engine, self.layout, context)
            kept = (self.window / 8 + self.state) / pp
        free = room - self.weights.total / pp
        longest = np.where(growth > 0, (free - kept) / np.maximum(growth, 1e-9), np.inf)
        longest = np.floor(np.minimum(longest, self.model.max_positions or 2**24) / BLOCK) * BLOCK
        longest = np.where(free > kept, np.maximum(longest, 0), 0)
        seen = np.minimum(context, longest)
        read = (self.per_token * seen + sum((b * np.minimum(seen, w) for w, b in self.windows.items()), none)) / 8
        on = cards.of(self.layout.tp, np.arange(len(none)), np.full(len(none), at))
        seconds = token_seconds(self.rank, self.layout, self.weights, read + 2 * self.state, on)
        return longest, np.where(longest > 0, 1 / seconds, 0)

    def slots(self, gpu: GPU, engine: Engine) -> float:
        """Of an engine that allocates a sequence's cache and its pass at start: their bytes on a GPU without what grows
        with the tokens of the cache."""
        grown = float(self.per_token[0]) / 8 / self.layout.pp * LENGTH
        return held_bytes(self.model, self.layout, type(engine), GPUKernels(gpu.platform, gpu.capability, gpu)) - grown


@dataclass(frozen=True)
class GPUKernels:
    """What a pass hangs on of a GPU, and a GPU that has it."""

    platform: Platform | None
    capability: str | None
    gpu: GPU = field(compare=False)


def layout_on(model: Architecture, engine: Engine, precision: Precision, count: int, node: int) -> Layout | None:
    """Tensor parallelism over all of them where the engine accepts it, else over as many as it does; None where it
    does not run the model."""
    if engine.refusal(model, precision) is not None:
        return None
    for tp in range(min(count, node), 0, -1):
        layout = Layout(tp=tp, pp=count // tp)
        if count % tp == 0 and refusal(model, engine, precision, layout, node) is None:
            return layout
    return None


@dataclass(frozen=True)
class WeightBytes:
    """Bytes of a tensor-parallel rank of all layers, [formats]: in all, and what one token reads in 16 bits, in fewer,
    and of routed experts."""

    total: Array
    plain: Array
    narrow: Array
    routed: Array

    @classmethod
    def of(cls, rank: Architecture, engine: Engine, table: Table, sizes: Array, layout: Layout) -> "WeightBytes":
        count = np.array([tensor.count for tensor in table.tensors])
        parts = [tensor.excluded_as for tensor in table.tensors]
        own = np.array([part is None for part in parts])
        loaded = sizes * count
        vision = (
            sum(vision_share(t, layout) for t in table.tensors if t.excluded_as == "vision")
            if engine.loads_vision
            else 0
        )
        routed = own & (table.component == "experts_routed")
        lookup = own & (table.component == "embedding")
        share = np.array([tensor.top_k / tensor.experts for tensor in table.tensors])
        small = sizes * 8 < 15 * table.numel
        rest = own & ~routed & ~lookup
        head = sizes[:, lookup].max(axis=1) if rank.tied and lookup.any() else 0.0
        held = own if engine.loads_table or rank.tied else own & ~lookup
        return cls(
            total=read_only((loaded * held).sum(axis=1) + vision),
            plain=read_only((loaded * (rest & ~small)).sum(axis=1) + head),
            narrow=read_only((loaded * (rest & small)).sum(axis=1)),
            routed=read_only((loaded * routed * share).sum(axis=1)),
        )


def cache_terms(rank: Architecture, precisions: Sequence[Precision]) -> tuple[Array, Array, Mapping[int, Array]]:
    """Bits that a token adds where all are kept; those of full windows; and a token's by window. All [formats]."""
    grown, windows = np.zeros(len(precisions)), dict[int, Array]()
    for f, precision in enumerate(precisions):
        for block in rank.all_blocks:
            for mixer in block.mixers:
                for back, bits in {} if isinstance(mixer, Recurrent) else held_bits(mixer, precision.kv).items():
                    size = len(block.runs_in) * float(bits)
                    if back is None:
                        grown[f] += size
                    else:
                        windows.setdefault(back, np.zeros(len(precisions)))[f] += size
    full = sum((back * bits for back, bits in windows.items()), np.zeros(len(precisions)))
    alone = MappingProxyType({back: read_only(bits) for back, bits in windows.items()})
    return read_only(grown), read_only(full), alone


def budget(model: Architecture, rank: Architecture, gpu: GPU, engine: Engine, layout: Layout, context: int) -> float:
    """Bytes that the engine surely has for weights and cache on a GPU: at the high end of the overhead, as a verdict of
    "fits" asks; of the first stage, with the head."""
    limits = engine.limits(Workload(context=context), gpu, model, layout)
    blocks = tuple(blocks_within(rank, range(-(-rank.num_layers // layout.pp))))
    stage = Stage(blocks, weights=0, vision=0, first=True, last=True, loaded=LoadedWeights())
    laid_out = LaidOut(model, rank, (stage,), (range(rank.num_layers),), layout, Precision())
    working = max((int(peak.bytes) for peak in engine.peaks(laid_out, 0, limits)), default=0)
    ranges = engine.overhead(layout.gpus)
    sizes: dict[OverheadItem, int] = {
        item: round(span.high * GIB) for item, span in ranges.items() if item != "fragmentation"
    }
    if limits.share is None:
        return float(gpu.usable_bytes - working - sum(sizes.values()))
    return float(engine.budget(gpu.usable_bytes, limits, 0, working, None, sizes).cache)


@lru_cache(maxsize=2048)
def held_bytes(model: Architecture, layout: Layout, kind: type[Engine], kernels: GPUKernels) -> float:
    """Cache and working memory of a sequence of LENGTH tokens on the most loaded GPU; a map asks for all presets, each
    time that its context moves."""
    engine, gpu, work = kind(), kernels.gpu, Workload(context=LENGTH)
    rank = layout.rank(model, engine.vocabulary(model.vocab, layout.tp))
    ranges = tuple(engine.stages(rank.num_layers, layout.pp))
    laid_out = without_weights(model, rank, ranges, layout, Precision())
    limits = engine.limits(work, gpu, model, layout)
    cache = engine.cache(laid_out, gpu, limits)
    stages = range(len(ranges))
    return max(float(one.bytes) for s in stages for one in engine.moments(laid_out, s, cache, limits, work))


def usual_room(gpu: GPU, engine: Engine, layout: Layout) -> float:
    """Bytes of a GPU beside the high end of what does not belong to the model."""
    return gpu.usable_bytes - sum(span.high for span in engine.overhead(layout.gpus).values()) * GIB


def token_seconds(rank: Architecture, layout: Layout, weights: WeightBytes, cache: Array, on: Machine) -> Array:
    """A decode step of one sequence: bound by memory, links and the host (see `Speed.step`, which also looks at
    arithmetic)."""

    def flat(figure: Any) -> Any:
        return figure[:, 0]

    sparse = sum(len(block.runs_in) for block in rank.blocks if isinstance(block.ffn, MoE))
    seconds = weights.plain / flat(on.bandwidth) + weights.narrow / flat(on.bandwidth_quantized)
    seconds = seconds + weights.routed / flat(on.bandwidth_experts) + cache / flat(on.bandwidth_cache)
    seconds = seconds + rank.num_layers * flat(on.layer) + sparse * flat(on.sparse)
    if layout.tp > 1:
        seconds = seconds + 2 * rank.num_layers * np.ravel(all_reduce(on, layout.tp, 2 * rank.hidden))
    return np.asarray(seconds, dtype=np.float64)
