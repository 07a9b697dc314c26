"""Which hardware, laid out how: every GPU, format and layout that the engine accepts, weighed and timed at once.

Memory and time are sums of a few terms linear in batch, context and their product, so that all GPUs and formats of a
layout are arrays: [formats, GPUs, batches]. Nothing of a report is built.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
from pydantic import Field, model_validator

from calc.errors import ConfigError, Frozen, Message
from calc.formats import CacheFormat, Precision, WeightFormat
from calc.hardware.engine_rules import runs
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines import ENGINES
from calc.serving.engines.engine import Engine
from calc.serving.workload import Workload
from calc.time.efficiency import Edits
from calc.time.estimate import End
from calc.time.layouts import layouts
from calc.time.machines import Cards
from calc.time.prices import price_of
from calc.time.roofline import Bound, sharing
from calc.time.room import Room
from calc.time.serving_time import Speed
from calc.time.sizes import Array, Flags
from calc.time.time_shards import Shard, Shards, shards
from calc.units import GIB

BATCHES = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Sequences of a replica that are tried."""
BOUNDS: tuple[Bound, ...] = get_args(Bound)
MOST_NAMED = 6
"""GPUs in a sentence."""
HOUR = 3600
PLANNED = tuple(name for name, engine in ENGINES.items() if engine.share_option is not None)
"""Engines that batch requests in memory set aside at start: those that a search knows."""


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


def unlike_formats(precisions: Sequence[Precision]) -> tuple[Precision, ...]:
    """Each pair of formats once."""
    found: dict[tuple[WeightFormat, CacheFormat], Precision] = {}
    for precision in precisions:
        found.setdefault((precision.weights, precision.kv), precision)
    return tuple(found.values())


def check_engine(engine: Engine) -> None:
    """Raise ConfigError where no search knows an engine."""
    if engine.share_option is None:
        sentence = Message(
            "No plan for {engine}: it sets no memory aside, so that how many requests fit hangs on how they come.",
            engine=engine.title,
        )
        raise ConfigError(sentence, "engine", PLANNED)


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
        prices: Mapping[str, float] | None = None,
        edited: Edits | None = None,
        weighed: Shards | None = None,
    ) -> None:
        check_engine(engine)
        self.architecture, self.engine, self.needs = architecture, engine, needs
        name: Any = engine.name
        self.gpus = [gpu for gpu in gpus if gpu.bandwidth_gb_s and runs(gpu, name)]
        if gpus and not self.gpus:
            names = ", ".join(gpu.name for gpu in gpus[:MOST_NAMED])
            sentence = Message("{engine} runs on none of these: {names}.", engine=engine.title, names=names)
            raise ConfigError(sentence, "gpu")
        self.precisions, self.most, self.node = unlike_formats(precisions), most, node
        self.prices = {gpu.id: (prices or {}).get(gpu.id, price_of(gpu.id)) for gpu in self.gpus}
        self.price = np.array([np.nan if (usd := self.prices[gpu.id]) is None else usd for gpu in self.gpus])
        self.shards = weighed or shards(architecture, engine, self.precisions)
        self.edited = dict(edited or {})
        weights = [precision.weights for precision in self.precisions]
        self.cards = Cards(self.gpus, weights, name, node, self.edited)
        work = Workload(batch=1, context=needs.context)
        self.limits = [engine.limits(work, gpu, architecture, Layout()) for gpu in self.gpus]
        self.room = Room(engine, self.gpus, self.limits, needs.context)

    def varied(
        self,
        needs: Needs | None = None,
        precisions: Sequence[Precision] | None = None,
        gpus: Sequence[GPU] | None = None,
    ) -> "Search":
        """The same for another need, in other formats, or on other GPUs."""
        return Search(
            self.architecture,
            self.engine,
            needs or self.needs,
            self.gpus if gpus is None else gpus,
            precisions or self.precisions,
            most=self.most,
            node=self.node,
            prices={gpu: price for gpu, price in self.prices.items() if price is not None},
            edited=self.edited,
            weighed=None if precisions else self.shards,
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
        free, sure = self.room.free(shard, layout)
        each = np.broadcast_to(self.room.each(shard), free.shape)
        room = np.floor(np.maximum((free / each).min(axis=2), 0)) * layout.dp
        room = np.where((sure / each).min(axis=2) > 1, room, 0)
        if layout.dcp > 1:
            room = np.where(self.room.starts(shard), room, 0)
        kinds = tuple(int(kind) for kind in np.flatnonzero(room.max(axis=0) >= 1))
        if not kinds:
            return None
        room, free, each = room[:, kinds], free[:, kinds], each[:, kinds]
        speed = self.speed(shard, layout, formats, kinds)
        replicas, batch = self.replicas(speed, self.largest_batch(speed, layout, room, kinds))
        binding, tpot = self.bound_step(speed, batch)
        ttft = self.first_token(speed, kinds)
        meets = (replicas * layout.gpus <= self.most) & (batch >= 1)
        meets &= (ttft <= (self.needs.ttft_ms or np.inf)) & (tpot <= (self.needs.tpot_ms or np.inf))
        headroom = (free - np.ceil(batch / layout.dp)[..., None] * each).min(axis=2)
        return Found(layout, formats, kinds, batch, room, headroom, ttft, tpot, replicas, binding, meets)

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
                if (binding := part.is_bound_by(bound)) is not False:
                    by_bound[index] += part.seconds * binding
        return by_bound.argmax(axis=0)[..., 0], 1000 * by_bound.sum(axis=0)[..., 0]

    def batches(self, layout: Layout, room: Array, kinds: Sequence[int], users: int | None = None) -> Array:
        """Sequences of a replica that are tried, [formats, GPUs, batches]: at most what there is room for, and no more
        than there are users."""
        tried = [b * layout.dp * layout.pp for b in BATCHES]
        if users is not None:
            tried = [b for b in tried if b < users] + [users]
        sequences = np.array([self.limits[kind].sequences for kind in kinds], dtype=np.float64)
        most = np.maximum(np.minimum(room, sequences * layout.dp), 1)
        return np.minimum(np.array(tried, dtype=np.float64), most[..., None])

    def largest_batch(self, speed: Speed, layout: Layout, room: Array, kinds: Sequence[int]) -> Array:
        """The most sequences of a replica that its cache holds and that get their tokens in time, of those tried and
        of all that there is room for; at least one where there is room."""
        needs = self.needs
        users = (needs.users or 1) if needs.requests_per_s is None else None
        batches = self.batches(layout, room, kinds, users)
        if needs.tpot_ms is None:
            return np.where(room >= 1, batches[..., -1], 0)
        allowed = self.step(speed, batches) <= needs.tpot_ms
        index = np.where(allowed.any(axis=2), allowed.shape[2] - 1 - allowed[..., ::-1].argmax(axis=2), 0)[..., None]
        return np.where(room >= 1, np.take_along_axis(batches, index, axis=2)[..., 0], 0)

    def replicas(self, speed: Speed, batch: Array) -> tuple[Array, Array]:
        """How many replicas of at most so many sequences the load takes, and the sequences of each: of requests a
        second as many as arrive while one is answered (Little's law)."""
        needs, most = self.needs, np.maximum(batch, 1)
        if needs.requests_per_s is None:
            users = needs.users or 1
            replicas = np.ceil(users / most)
            return replicas, np.minimum(batch, np.ceil(users / replicas))
        running, tpot = batch, self.step(speed, most[..., None])[..., 0]
        replicas = np.ceil(needs.requests_per_s * needs.output * tpot / 1000 / most)
        for _ in range(4):
            arrived = np.ceil(needs.requests_per_s / replicas * needs.output * tpot / 1000)
            running = np.minimum(batch, np.maximum(arrived, 1))
            tpot = self.step(speed, running[..., None])[..., 0]
        return replicas, running

    def first_token(self, speed: Speed, kinds: Sequence[int]) -> Array:
        """Milliseconds until the first token of one prompt, in chunks as the engine has them on each GPU."""
        tokens = self.needs.prompt - self.needs.cached
        chunks = [min(self.limits[kind].step_tokens, tokens) for kind in kinds]
        found = {chunk: self.prompt_ms(speed, chunk, "expected") for chunk in set(chunks)}
        return np.stack([found[chunk][:, at] for at, chunk in enumerate(chunks)], axis=1)

    def prompt_ms(self, speed: Speed, chunk: int, end: End) -> Array:
        """The same in chunks of so many tokens, [formats, GPUs]."""
        needs = self.needs
        seconds = speed.one_prompt(needs.prompt - needs.cached, end, chunk, needs.cached)
        return np.asarray(1000 * seconds, dtype=np.float64)

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
