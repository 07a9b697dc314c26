"""Which hardware, laid out how: every GPU, format and layout that the engine accepts, weighed and timed at once.

Memory and time are sums of a few terms linear in batch, context and their product, so that all GPUs and formats of a
layout are arrays: [formats, GPUs, batches]. Nothing of a report is built.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from pydantic import Field, model_validator

from calc.errors import Frozen, Message
from calc.formats import CacheFormat, Precision, WeightFormat
from calc.hardware.engines import runs
from calc.hardware.gpu import GPU
from calc.hardware.overhead import OverheadItem
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.engine import Engine
from calc.serving.workload import Workload
from calc.time.layouts import layouts
from calc.time.machines import Cards
from calc.time.prices import price_of
from calc.time.roofline import Bound, sharing
from calc.time.serving import Speed
from calc.time.shards import Shard, Shards, shards
from calc.time.sizes import Array, Flags
from calc.units import GIB

BATCHES = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Sequences of a replica that are tried."""
BOUNDS: tuple[Bound, ...] = get_args(Bound)
HOUR = 3600


class Needs(Frozen):
    """What a server must do."""

    users: int | None = Field(default=None, ge=1, le=2**24, description="Concurrent users, each with one request.")
    requests_per_s: float | None = Field(default=None, gt=0, le=1e6, description="Requests a second, if not users.")
    prompt: int = Field(default=2048, ge=1, le=2**30, description="Tokens of a prompt.")
    output: int = Field(default=512, ge=1, le=2**30, description="Tokens of an answer.")
    prefix_share: float = Field(default=0.0, ge=0, lt=1, description="Share of the prompt that is cached already.")
    ttft_ms: float | None = Field(default=None, gt=0, description="Longest time to first token (TTFT).")
    tpot_ms: float | None = Field(default=None, gt=0, description="Longest time per output token (TPOT).")

    @model_validator(mode="after")
    def _one_load(self) -> "Needs":
        if self.users is not None and self.requests_per_s is not None:
            raise ValueError("users and requests a second are two ways to say the same; give one of them")
        return self

    @property
    def cached(self) -> int:
        """Tokens of a prompt that are cached already."""
        return min(self.prompt - 1, int(self.prompt * self.prefix_share))

    @property
    def context(self) -> int:
        return self.prompt + self.output


class Plan(Frozen):
    """One way to serve it: replicas of a layout on GPUs of one kind; figures are the expected ones."""

    gpu: str
    gpus: int
    replicas: int
    layout: Layout
    weights: WeightFormat
    kv: CacheFormat
    batch: int  # sequences of a replica
    capacity: int  # that its cache has room for
    headroom_gib: float  # of the most loaded GPU, beside what these sequences take
    ttft_ms: float
    tpot_ms: float
    tokens_per_s_per_user: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    usd_per_hour: float | None
    usd_per_million_tokens: float | None  # output
    bound: Bound
    meets: bool  # the targets


@dataclass(frozen=True)
class Found:
    """All GPUs and formats in one layout: arrays [formats, GPUs]."""

    layout: Layout
    formats: tuple[int, ...]  # which of those asked for the engine accepts so
    kinds: tuple[int, ...]  # which GPUs it may fit
    batch: Array
    capacity: Array
    headroom: Array
    ttft: Array
    tpot: Array
    replicas: Array
    binds: Array  # number of what takes most of a step, in BOUNDS
    meets: Flags

    def kind_numbers(self, gpus: int, f: Any, g: Any) -> Any:
        """A number for each pair of a format and a GPU, the same in every layout."""
        return np.array(self.formats)[f] * gpus + np.array(self.kinds)[g]


class Search:
    """A model, what a server of it must do, and what may be used."""

    def __init__(
        self,
        architecture: Architecture,
        engine: Engine,
        needs: Needs,
        gpus: Sequence[GPU],
        precisions: Sequence[Precision],
        *,
        most: int = 64,
        node: int = 8,
        prices: dict[str, float] | None = None,
        weighed: Shards | None = None,
    ) -> None:
        self.architecture, self.engine, self.needs = architecture, engine, needs
        name: Any = engine.name
        self.gpus = [gpu for gpu in gpus if gpu.bandwidth_gb_s and runs(gpu, name)]
        self.precisions, self.most, self.node = tuple(precisions), most, node
        self.prices = {gpu.id: (prices or {}).get(gpu.id, price_of(gpu.id)) for gpu in self.gpus}
        self.price = np.array([self.prices[gpu.id] or np.nan for gpu in self.gpus])
        self.shards = weighed or shards(architecture, engine, self.precisions)
        weights = [precision.weights for precision in self.precisions]
        self.cards = Cards(self.gpus, weights, name, node)
        work = Workload(batch=1, context=needs.context)
        self.limits = [engine.limits(work, gpu, architecture, Layout()) for gpu in self.gpus]
        self.budgets = dict[tuple[tuple[int, ...], bool, str], Array]()
        self.unlike = list(dict.fromkeys(self.limits))
        self.which = [self.unlike.index(limits) for limits in self.limits]

    def with_needs(self, needs: Needs) -> "Search":
        """The same for another need."""
        return Search(
            self.architecture,
            self.engine,
            needs,
            self.gpus,
            self.precisions,
            most=self.most,
            node=self.node,
            prices={gpu: price for gpu, price in self.prices.items() if price is not None},
            weighed=self.shards,
        )

    @cached_property
    def found(self) -> list[Found]:
        """Every layout that the engine accepts in some format."""
        by_layout: dict[Layout, list[int]] = {}
        for index, precision in enumerate(self.precisions):
            for layout in layouts(self.architecture, self.engine, precision, self.most, self.node):
                by_layout.setdefault(layout, []).append(index)
        found = (self.of(layout, tuple(formats)) for layout, formats in by_layout.items())
        return [one for one in found if one is not None]

    def of(self, layout: Layout, formats: tuple[int, ...]) -> Found | None:
        """All GPUs and some formats in one layout; None where nothing fits."""
        shard = self.shards(layout, formats)
        free, sure = self.free(shard, layout)
        each = np.broadcast_to(self.each(shard), free.shape)
        room = np.floor(np.maximum((free / each).min(axis=2), 0)) * layout.dp
        room = np.where((sure / each).min(axis=2) > 1, room, 0)
        kinds = tuple(int(kind) for kind in np.flatnonzero(room.max(axis=0) >= 1))
        if not kinds:
            return None
        room, free, each = room[:, kinds], free[:, kinds], each[:, kinds]
        speed = self.speed(shard, layout, formats, kinds)
        batch, tpot = self.largest_batch(speed, layout, room)
        replicas, batch = self.replicas(speed, batch, tpot)
        binding, tpot = self.bound_step(speed, batch)
        ttft = self.first_token(speed, kinds)
        meets = (replicas * layout.gpus <= self.most) & (batch >= 1)
        meets &= (ttft <= (self.needs.ttft_ms or np.inf)) & (tpot <= (self.needs.tpot_ms or np.inf))
        headroom = (free - np.ceil(batch / layout.dp)[..., None] * each).min(axis=2)
        return Found(layout, formats, kinds, batch, room, headroom, ttft, tpot, replicas, binding, meets)

    def free(self, shard: Shard, layout: Layout) -> tuple[Array, Array]:
        """Bytes for the cache on each stage, [formats, GPUs, stages], in the middle and at the high end of the
        overhead: the engine's budget less the weights. What loading adds to weights (padding, tables) is left out."""
        ranges = self.engine.overhead(layout.gpus)
        works = tuple(zip(*(shard.working_bytes(self.engine, limits) for limits in self.unlike), strict=True))

        def at(end: Literal["middle", "high"]) -> Array:
            sizes: dict[OverheadItem, int] = {
                item: round((span.high if end == "high" else (span.low + span.high) / 2) * GIB)
                for item, span in ranges.items()
                if item != "fragmentation"
            }
            budgets = [self.budget(work, layout.gpus > 1, end, sizes) for work in works]
            return np.stack(budgets, axis=1)[None] - shard.stage_bytes[:, None, :]

        return at("middle"), at("high")

    def budget(self, working: tuple[int, ...], several: bool, end: str, sizes: dict[OverheadItem, int]) -> Array:
        """What the engine would set aside for its cache on each GPU without weights; what is left, where it sets
        nothing aside. `working` is that of GPUs with unlike limits."""
        key = working, several, end
        if key not in self.budgets:
            self.budgets[key] = np.array(
                [
                    gpu.usable_bytes - working[w] - sum(sizes.values())
                    if limits.share is None
                    else self.engine.budget(gpu.usable_bytes, limits, 0, working[w], sizes, None).cache
                    for gpu, limits, w in zip(self.gpus, self.limits, self.which, strict=True)
                ],
                dtype=np.float64,
            )
        return self.budgets[key]

    def each(self, shard: Shard) -> Array:
        """Bytes of cache of a sequence on each stage, [formats, GPUs, stages]."""
        length = self.needs.context
        if shard.is_plain:
            return shard.sequence_bytes(self.engine, self.gpus[0], self.limits[0], length)[:, None, :]
        found = [
            shard.sequence_bytes(self.engine, self.gpus[self.limits.index(limits)], limits, length)
            for limits in self.unlike
        ]
        return np.stack(found, axis=1)[:, self.which]

    def speed(self, shard: Shard, layout: Layout, formats: tuple[int, ...], kinds: tuple[int, ...]) -> Speed:
        """GPUs and formats as arrays."""
        ranks = sharing(layout, experts=shard.demand.routing is not None)
        on = self.cards.of(ranks, formats, kinds)
        return Speed((shard.demand,), layout, lambda end: on)

    def step(self, speed: Speed, batch: Any) -> Array:
        """Milliseconds of a step of a full server, prompts being prefilled beside."""
        needs = self.needs
        return np.asarray(
            1000 * speed.continuous(batch, needs.prompt, needs.output, "expected", needs.cached), dtype=np.float64
        )

    def bound_step(self, speed: Speed, batch: Array) -> tuple[Array, Array]:
        """What takes most of a step, by its number in BOUNDS, and the milliseconds of the step."""
        needs, running = self.needs, np.maximum(batch, 1)[..., None]
        by_bound = np.zeros((len(BOUNDS), *running.shape))
        for part in speed.parts_continuous(running, needs.prompt, needs.output, "expected", needs.cached):
            for index, bound in enumerate(BOUNDS):
                by_bound[index] += part.seconds * part.is_bound_by(bound)
        return by_bound.argmax(axis=0)[..., 0], 1000 * by_bound.sum(axis=0)[..., 0]

    def batches(self, layout: Layout, room: Array) -> Array:
        """Sequences of a replica that are tried, [formats, GPUs, batches]: at most what there is room for."""
        tried = np.array([b * layout.dp * layout.pp for b in BATCHES], dtype=np.float64)
        most = np.minimum(room, self.limits[0].sequences * layout.dp)
        return np.minimum(np.broadcast_to(tried, (*room.shape, len(tried))), np.maximum(most, 1)[..., None])

    def largest_batch(self, speed: Speed, layout: Layout, room: Array) -> tuple[Array, Array]:
        """The most sequences of a replica that its cache holds and that get their tokens in time, of those tried and
        of all that there is room for; at least one where there is room."""
        batches = self.batches(layout, room)
        times = self.step(speed, batches)
        allowed = times <= (self.needs.tpot_ms or np.inf)
        index = np.where(allowed.any(axis=2), allowed.shape[2] - 1 - allowed[..., ::-1].argmax(axis=2), 0)[..., None]
        batch = np.take_along_axis(batches, index, axis=2)[..., 0]
        return np.where(room >= 1, batch, 0), np.take_along_axis(times, index, axis=2)[..., 0]

    def replicas(self, speed: Speed, batch: Array, tpot: Array) -> tuple[Array, Array]:
        """How many replicas the load takes, and the sequences of each: of requests a second as many as arrive while one
        is answered (Little's law)."""
        needs, most = self.needs, np.maximum(batch, 1)
        if needs.requests_per_s is None:
            users = needs.users or 1
            replicas = np.ceil(users / most)
            return replicas, np.minimum(batch, np.ceil(users / replicas))
        replicas = np.ceil(needs.requests_per_s * needs.output * tpot / 1000 / most)
        running = batch
        for _ in range(4):
            arrived = np.ceil(needs.requests_per_s / replicas * needs.output * tpot / 1000)
            running = np.minimum(batch, np.maximum(arrived, 1))
            tpot = self.step(speed, running[..., None])[..., 0]
        return replicas, running

    def first_token(self, speed: Speed, kinds: tuple[int, ...]) -> Array:
        """Milliseconds until the first token of one prompt, in chunks as the engine has them."""
        chunk = int(min(self.limits[i].step_tokens for i in kinds))
        seconds = speed.prompt(1, self.needs.prompt - self.needs.cached, "expected", chunk, self.needs.cached)
        return np.asarray(1000 * seconds, dtype=np.float64)[..., 0]

    def plans(self, limit: int = 100, *, best_of_each: bool = True) -> list[Plan]:
        """Best first: those that meet the targets, by cost where prices are known, then by GPUs and speed. Of each GPU
        and format the best layout, or all."""
        if not self.found:
            return []
        places = [np.nonzero(found.batch >= 1) for found in self.found]
        which = np.concatenate([np.full(len(f), index) for index, (f, _) in enumerate(places)])
        rows = np.stack([which, *(np.concatenate([place[side] for place in places]) for side in (0, 1))], axis=1)
        keys = [self.keys(found, f, g) for found, (f, g) in zip(self.found, places, strict=True)]
        order = np.lexsort(np.concatenate(keys, axis=1)[::-1])
        if best_of_each:
            kinds = np.concatenate(
                [f.kind_numbers(len(self.gpus), *at) for f, at in zip(self.found, places, strict=True)]
            )
            order = order[np.sort(np.unique(kinds[order], return_index=True)[1])]
        return [self.plan(self.found[index], f, g) for index, f, g in rows[order[:limit]].tolist()]

    def keys(self, found: Found, f: Any, g: Any) -> Array:
        """What plans are ordered by, the first first."""
        gpus = found.replicas[f, g] * found.layout.gpus
        price = self.price[np.array(found.kinds)[g]]
        unknown = np.isnan(price)
        cost = gpus * np.where(unknown, 0.0, price)
        return np.array([~found.meets[f, g], gpus > self.most, unknown, cost, gpus, found.tpot[f, g]])

    def plan(self, found: Found, f: int, g: int) -> Plan:
        gpu, precision = self.gpus[found.kinds[g]], self.precisions[found.formats[f]]
        replicas, batch = int(found.replicas[f, g]), int(found.batch[f, g])
        tpot = float(found.tpot[f, g])
        rate, gpus = replicas * batch * 1000 / tpot, replicas * found.layout.gpus
        price = self.prices[gpu.id]
        return Plan(
            gpu=gpu.id,
            gpus=gpus,
            replicas=replicas,
            layout=found.layout,
            weights=precision.weights,
            kv=precision.kv,
            batch=batch,
            capacity=int(found.capacity[f, g]),
            headroom_gib=float(found.headroom[f, g]) / GIB,
            ttft_ms=float(found.ttft[f, g]),
            tpot_ms=tpot,
            tokens_per_s_per_user=1000 / tpot,
            tokens_per_s=rate,
            tokens_per_s_per_gpu=rate / gpus,
            usd_per_hour=None if price is None else price * gpus,
            usd_per_million_tokens=None if price is None else price * gpus / (rate * HOUR) * 1e6,
            bound=BOUNDS[int(found.binds[f, g])],
            meets=bool(found.meets[f, g]),
        )


class Sensitivity(Frozen):
    """What another need would change."""

    what: Message
    gpus: int | None  # None: no plan meets it
    usd_per_hour: float | None


def sensitivity(search: Search) -> list[Sensitivity]:
    """The best plan, and what it becomes with half and twice the prompt, half and twice the load, and targets half as
    strict."""
    needs = search.needs
    changes: list[tuple[Message, dict[str, Any]]] = [
        (Message("prompts of {n:,} tokens", n=needs.prompt // 2 or 1), {"prompt": needs.prompt // 2 or 1}),
        (Message("prompts of {n:,} tokens", n=needs.prompt * 2), {"prompt": needs.prompt * 2}),
    ]
    if needs.requests_per_s is not None:
        for rate in (needs.requests_per_s / 2, needs.requests_per_s * 2):
            changes.append((Message("{rate:g} requests a second", rate=rate), {"requests_per_s": rate}))
    else:
        for users in sorted({max(1, (needs.users or 1) // 2), (needs.users or 1) * 2}):
            changes.append((Message("{n:,} users", n=users), {"users": users}))
    for field, name in (("ttft_ms", "time to first token"), ("tpot_ms", "time per output token")):
        if (target := getattr(needs, field)) is not None:
            changes.append((Message("{name} of {ms:g} ms", name=Message(name), ms=2 * target), {field: 2 * target}))
    rows = []
    for what, change in changes:
        best = next(iter(search.with_needs(needs.model_copy(update=change)).plans(1)), None)
        met = best if best is not None and best.meets else None
        rows.append(
            Sensitivity(what=what, gpus=met and met.gpus, usd_per_hour=None if met is None else met.usd_per_hour)
        )
    return rows
