"""Hardware and layouts for a load: every GPU, format and layout that the engine accepts, weighed and timed at once.

Memory and time are sums of a few terms linear in batch, context and their product, so that all layouts, with the
formats and GPUs that they fit, are one array: [rows, batches]. Nothing of a report is built, and what is known to take
more GPUs than another layout is not timed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache, cached_property, partial
from math import inf
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from calc.errors import ConfigError, Frozen, Message
from calc.formats import CacheFormat, Precision, WeightFormat
from calc.hardware.engine_rules import runs
from calc.hardware.gpu import GPU
from calc.hardware.overhead import Overhead
from calc.hardware.parallel import Layout
from calc.hardware.solver import least
from calc.model.architecture import Architecture
from calc.serving.engines import ENGINES
from calc.serving.engines.engine import Engine
from calc.serving.engines.rules import Question
from calc.serving.memory import Allocation, Serving
from calc.serving.verdict import MOST_BATCH, max_batch
from calc.serving.workload import Workload
from calc.time.arrays import Array, Flags, Indices
from calc.time.arrivals import UTILIZATION, Arrivals, Waits
from calc.time.cluster import USUAL, Cluster
from calc.time.origin import Origin, origin
from calc.time.prices import usd_per_million
from calc.time.roofline import BOUNDS, Bound, Cards, seconds_by_bound, sharing
from calc.time.room import FittingRows, KVRoom, Shards, accepted_formats, layouts_by_format
from calc.time.serving import FullServer, Speed
from calc.units import GIB

BATCHES = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Sequences of a replica that are tried."""
USUAL_SEQUENCES = 256
"""Sequences at once of a server whose load is requests a second."""
MOST_NAMED = 6
"""GPUs in a sentence."""
PLANNED = tuple(name for name, engine in ENGINES.items() if engine.share_option is not None)
"""Engines that batch requests in memory set aside at start: those that a search knows."""


class Needs(Frozen):
    """Requirements of a server."""

    users: int | None = Field(default=None, ge=1, le=2**24, description="Concurrent users, each with one request.")
    requests_per_s: float | None = Field(default=None, gt=0, le=1e6, description="Requests a second, if not users.")
    think_s: float = Field(default=0.0, ge=0, le=1e6, description="Seconds that a user thinks between two requests.")
    prompt: int = Field(default=2048, ge=1, le=2**30, description="Tokens of a prompt.")
    output: int = Field(default=512, ge=1, le=2**30, description="Tokens of an answer.")
    prefix_share: float = Field(default=0.0, ge=0, lt=1, description="Share of the prompt that is cached already.")
    ttft_ms: float | None = Field(default=None, gt=0, description="Longest time to first token (TTFT).")
    tpot_ms: float | None = Field(default=None, gt=0, description="Longest time per output token (TPOT).")
    prefill_decode: Literal["together", "apart", "either"] = Field(
        default="together",
        description="Prefill and decode: on the same GPUs, on separate ones, or whichever is better.",
    )

    @model_validator(mode="after")
    def _single_load(self) -> "Needs":
        if self.users is not None and self.requests_per_s is not None:
            raise ValueError("users and requests a second are two ways to say the same; give one of them")
        if self.think_s and self.users is None:
            raise ValueError("think_s is the time that users think: say how many there are")
        return self

    @property
    def at_once(self) -> int | None:
        """Requests that are answered at once, where users are what is known who always wait for one; of one user where
        nothing is."""
        return None if self.by_chance else self.users or 1

    @property
    def by_chance(self) -> bool:
        """Whether requests come at random: a stream of them, or from users who think."""
        return self.requests_per_s is not None or self.think_s > 0

    def arrival_rate(self, answer_s: Any) -> Any:
        """Requests a second that come by chance, where an answer takes so many seconds."""
        return (self.users or 1) / (self.think_s + answer_s) if self.requests_per_s is None else self.requests_per_s

    def in_time(self, ttft_ms: Any, tpot_ms: Any) -> Any:
        """Whether such times meet the targets."""
        return (ttft_ms <= (self.ttft_ms or np.inf)) & (tpot_ms <= (self.tpot_ms or np.inf))

    def tokens_by_chance(self, step_s: Any) -> Any:
        """Output tokens a second of requests that come by chance, where a step takes so many seconds: what is asked
        for, and no more."""
        return self.output * self.arrival_rate(self.output * step_s)

    @property
    def cached(self) -> int:
        """Tokens of a prompt that are cached already."""
        return min(self.prompt - 1, int(self.prompt * self.prefix_share))

    @property
    def context(self) -> int:
        return self.prompt + self.output

    def within_positions(self, architecture: Architecture) -> "Needs":
        """These with a prompt, or an answer, that nobody asked for as long as the model's learned positions allow."""
        most = architecture.learned_positions
        if most is None or self.context <= most:
            return self
        for name, other in (("prompt", self.output), ("output", self.prompt)):
            if getattr(self, name) == type(self).model_fields[name].default and other < most:
                return self.model_copy(update={name: most - other})
        return self


class PrefillWorkers(Frozen):
    """Servers of a plan that prefill alone."""

    workers: int
    layout: Layout
    headroom_gib: float  # of the most loaded GPU, with a request on each data-parallel copy


class Plan(Frozen):
    """One way to serve it: replicas of a layout on GPUs of one kind; figures are the expected ones."""

    gpu: str
    gpus: int
    replicas: int
    layout: Layout
    weights: WeightFormat
    kv: CacheFormat
    flags: tuple[str, ...]  # that the engine is started with besides these
    batch: int  # sequences of a replica
    capacity: int  # that its cache has room for
    headroom_gib: float  # of the most loaded GPU, once these sequences run
    ttft_ms: float
    tpot_ms: float
    tokens_per_s_per_user: float
    tokens_per_s: float  # of all sequences, their prompts included
    tokens_per_s_per_gpu: float
    usd_per_hour: float | None
    usd_per_million_tokens: float | None  # output
    bound: Bound
    meets: bool  # the targets
    origin: Origin  # of its times
    waits: Waits | None  # where requests come by chance
    prefill: PrefillWorkers | None = None  # where they run apart; the replicas then decode alone

    def with_waits(self, waits: Waits) -> Self:
        """The plan with the latencies of requests that come by chance, which wait for others and for a place."""
        token = waits.tpot_ms.mean
        means = {"ttft_ms": waits.ttft_ms.mean, "tpot_ms": token, "tokens_per_s_per_user": 1000 / token}
        return self.model_copy(update={"waits": waits, **means})


@dataclass(frozen=True)
class Candidates:
    """Replicas of such rows and what they do for the load: arrays [rows]."""

    rows: FittingRows
    batch: Array
    most: Array  # sequences that a replica runs at once, in time
    ttft: Array
    tpot: Array
    rate: Array  # output tokens a second
    replicas: Array
    gpus: Array  # in all
    binds: Array  # number of what takes most of a step, in BOUNDS
    meets: Flags
    prefill: FittingRows | None = None  # the rows of workers that prefill alone; the replicas then decode alone
    workers: Array | None = None  # of these


def check_engine(engine: Engine) -> None:
    """Raise ConfigError where no search knows an engine."""
    if engine.share_option is None:
        sentence = Message(
            "No plan for {engine}: it sets no memory aside, so the number of requests that fit depends on how "
            "they arrive.",
            engine=engine.title,
        )
        raise ConfigError(sentence, "engine", PLANNED)


def check_lengths(engine: Engine, architecture: Architecture, needs: Needs) -> None:
    """Raise ConfigError where the model makes no tokens, or can't read a prompt with its answer, with the longest
    prompt that it can."""
    if architecture.pooled:
        sentence = "No plan for {kind}: it makes a vector or scores of a text, and a plan counts output tokens."
        raise ConfigError(Message(sentence, kind=architecture.model_type), "model")
    for refusal in engine.refusals(Question(architecture, workload=Workload(context=needs.context))):
        prompts = [int(most) - needs.output for most in refusal.nearest]
        raise ConfigError(refusal.message, "prompt", [prompt for prompt in prompts if prompt > 0])


def at_place(figures: Array, place: Indices) -> Array:
    """The figure in this place of each row."""
    return np.asarray(np.take_along_axis(figures, place[:, None], axis=1)[:, 0])


def last_in_time(batches: Array, in_time: Callable[[Array], Flags]) -> Array:
    """The last of batches in ascending order, [rows, batches], that gets its tokens in time, else the first, [rows]: by
    halving, for a larger batch takes longer."""
    first = np.zeros(len(batches), dtype=np.int_)
    last = first + batches.shape[1] - 1
    while (first < last).any():
        middle = (first + last + 1) // 2
        soon = in_time(at_place(batches, middle))
        first, last = np.where(soon, middle, first), np.where(soon, last, middle - 1)
    return at_place(batches, first)


def littles_law(needs: Needs, step: Callable[[Array], Array], most: Array, replicas: Array) -> tuple[Array, Array]:
    """Sequences that run on each replica, at most `most`, of requests that arrive at random, and arrivals a second: the
    fewest that leave as fast as others come, as many as arrive while one is answered (Little's law)."""
    bound, running = np.ones_like(most), most
    while (bound < running).any():
        fewer = np.floor((bound + running) / 2)
        answer = needs.output * step(fewer)
        leave = fewer >= needs.arrival_rate(answer) * answer / replicas
        bound, running = np.where(leave, bound, fewer + 1), np.where(leave, fewer, running)
    per_s = needs.arrival_rate(needs.output * step(running))
    return running, np.broadcast_to(per_s, running.shape)


@dataclass
class Search:
    """A model, what a server of it must do, and what may be used."""

    architecture: Architecture
    requested_engine: Engine
    needs: Needs
    gpus: Sequence[GPU]
    precisions: Sequence[Precision]
    _: KW_ONLY
    most: int = 64
    cluster: Cluster = USUAL
    base: "Search | None" = None
    """A search for other needs, in other formats or on other GPUs, of which what is the same is taken."""

    def __post_init__(self) -> None:
        architecture, engine, gpus = self.architecture, self.requested_engine, self.gpus
        check_engine(engine)
        self.needs = needs = self.needs.within_positions(architecture)
        check_lengths(engine, architecture, needs)
        base, engine = self.base, engine.sized_for(needs.at_once or USUAL_SEQUENCES, architecture)
        sized_alike = base is not None and base.engine.options == engine.options
        self.engine: Engine = base.engine if base and sized_alike else engine
        engine = self.engine
        self.gpus = [gpu for gpu in gpus if gpu.bandwidth_gb_s and runs(gpu, engine.support)]
        if gpus and not self.gpus:
            names = ", ".join(gpu.name for gpu in gpus[:MOST_NAMED])
            sentence = Message("{engine} runs on none of these: {names}.", engine=engine.title, names=names)
            raise ConfigError(sentence, "gpu")
        self.precisions = accepted_formats(architecture, engine, self.precisions)
        self.price = np.array([self.cluster.price(gpu.id) for gpu in self.gpus], dtype=np.float64)  # nan: not known
        self.servings = dict[tuple[Layout, int], Serving]()
        same_formats = base is not None and base.precisions == self.precisions
        self.shards: Shards = base.shards if base and same_formats else Shards(architecture, engine, self.precisions)
        self.cards = Cards(self.gpus, [p.weights for p in self.precisions], engine.name, self.cluster)
        room: KVRoom | None = base.room if base and sized_alike and base.gpus == self.gpus else None
        same_length = room is not None and room.workload.context == needs.context
        self.room: KVRoom = (
            room if room and same_length else KVRoom(engine, architecture, self.gpus, needs.context, room)
        )
        self.limits = self.room.limits(Layout())

    def with_changes(self, **changes: Any) -> "Search":
        """A search for other needs, in other formats, or on other GPUs."""
        return replace(self, base=self, **changes)

    @cached_property
    def rows(self) -> FittingRows:
        """Every layout that the engine accepts, with the formats and GPUs that it fits with."""
        base, node = self.base, self.cluster.gpus_per_node
        alike = base and (self.shards, self.room, self.most) == (base.shards, base.room, base.most)
        if base and alike and node == base.cluster.gpus_per_node:
            return base.rows
        accepted = layouts_by_format(self.architecture, self.engine, self.precisions, self.most, node)
        return self.fitting(accepted)

    def fitting(self, layouts: Iterable[tuple[Layout, tuple[int, ...]]]) -> FittingRows:
        """Layouts in some formats each, with the GPUs that they fit with."""
        shards = [self.shards.shard(layout, formats) for layout, formats in layouts]
        return FittingRows.of(shards, self.room, len(self.precisions))

    def row_of(self, plan: Plan, layout: Layout) -> FittingRows:
        """The row of a plan in its layout, or in that of its prefill workers."""
        form = [(precision.weights, precision.kv) for precision in self.precisions].index((plan.weights, plan.kv))
        kind = [gpu.id for gpu in self.gpus].index(plan.gpu)
        rows = self.fitting([(layout, (form,))])
        return rows.selected(rows.kind == kind)

    def contenders(self, rows: FittingRows) -> Candidates:
        """Candidates with the best of each GPU and format: all but layouts that take more GPUs than it takes to meet
        the targets. Those on the fewest GPUs are timed first."""
        fewest = self.fewest_gpus(rows)
        on_fewest = fewest == self.least_of_each(rows, fewest)
        leaders = self.candidates(rows.selected(on_fewest))
        met = np.full(rows.form.size, np.inf)
        met[on_fewest] = np.where(leaders.meets, leaders.gpus, np.inf)
        possible = fewest <= self.least_of_each(rows, met)
        return leaders if (possible == on_fewest).all() else self.candidates(rows.selected(possible))

    def least_of_each(self, rows: FittingRows, figures: Array) -> Array:
        """Least figure of each row's GPU and format."""
        pairs = self.gpu_and_format(rows)
        least = np.full(len(self.precisions) * len(self.gpus), np.inf)
        np.minimum.at(least, pairs, figures)
        return np.asarray(least[pairs])

    def gpu_and_format(self, rows: FittingRows) -> Indices:
        """Number of each row's pair of GPU and format [rows]."""
        return rows.form * len(self.gpus) + rows.kind

    def fewest_gpus(self, rows: FittingRows) -> Array:
        """Fewest GPUs of a layout: of as many replicas as the load fills."""
        replicas = 1.0 if self.needs.at_once is None else np.ceil(self.needs.at_once / self.room_for(rows))
        return np.asarray(replicas * rows.gpus)

    def candidates(self, rows: FittingRows) -> Candidates:
        needs, server = self.needs, self.server(rows)
        most = self.largest_batch(server, rows)
        replicas, batch = self.replicas(server, most, rows.least_replicas)
        running = batch[:, None]
        decoded = tuple(server.decode_parts(running))
        by_bound = seconds_by_bound(server.parts(running, 1, decoded), len(batch))
        tpot = 1000 * by_bound.sum(axis=0)
        step = server.step(running, decoded)[:, 0]
        rate = replicas * (batch / step)
        if needs.by_chance:
            rate = np.broadcast_to(needs.tokens_by_chance(step), step.shape)
        ttft, gpus = 1000 * server.first_token(running, decoded)[:, 0], replicas * rows.gpus
        meets = needs.in_time(ttft, tpot) & (gpus <= self.most) & np.isfinite(rows.least_replicas)
        return Candidates(rows, batch, most, ttft, tpot, rate, replicas, gpus, by_bound.argmax(axis=0), meets)

    def speed(self, rows: FittingRows) -> Speed:
        """Speed of all rows as arrays, [rows, 1]."""
        demand, layout = rows.demand, rows.layout
        ranks = sharing(layout, experts=demand.routing is not None)[:, 0]
        machines = cache(partial(self.cards.of, ranks, rows.form, rows.kind))
        return Speed((demand,), layout, machines, all_to_all=self.engine.all_to_all(layout))

    def server(self, rows: FittingRows) -> FullServer:
        """Server of each row under the requested load."""
        needs, tokens = self.needs, self.needs.prompt - self.needs.cached
        limits = np.array([(min(limits.step_tokens, tokens), limits.poll) for limits in self.limits])
        chunks, poll = limits.T[:, rows.kind, None]
        return FullServer(
            self.speed(rows), needs.prompt, needs.output, chunks, needs.cached, "expected", poll, needs.by_chance
        )

    def room_for(self, rows: FittingRows) -> Array:
        """Sequences of a replica that the engine runs at once; at least one."""
        sequences = np.array([limits.sequences for limits in self.limits], dtype=np.float64)[rows.kind]
        return np.asarray(np.maximum(np.minimum(rows.capacity, sequences * np.ravel(rows.layout.dp)), 1))

    def batches(self, rows: FittingRows, users: int | None = None) -> Array:
        """Sequences of a replica that are tried, [rows, batches]: at most what there is room for, and no more than
        there are users."""
        layout = rows.layout
        tried = np.array(BATCHES, dtype=np.float64) * layout.dp * layout.pp
        if users is not None:
            fewer = tried[:, (tried < users).any(axis=0)]
            tried = np.minimum(np.append(fewer, np.full((len(tried), 1), users), axis=1), users)
        return np.minimum(tried, self.room_for(rows)[:, None])

    def largest_batch(self, server: FullServer, rows: FittingRows) -> Array:
        """The most sequences of a replica that its cache holds and that get their tokens in time, the first and the
        others, of those tried and of all that there is room for; at least one."""
        batches = self.batches(rows, self.needs.at_once)
        largest = batches[:, -1].copy()
        if self.needs.tpot_ms is not None or self.needs.ttft_ms is not None:
            late = ~self.in_time(server, largest)
            fewer = batches[late, :-1]
            if fewer.size:
                largest[late] = last_in_time(fewer, partial(self.in_time, self.server(rows.selected(late))))
        return largest

    def in_time(self, server: FullServer, batch: Array) -> Flags:
        """Whether so many sequences get their tokens in time."""
        in_time, running = np.full(len(batch), True), batch[:, None]
        decoded = tuple(server.decode_parts(running))
        for most, seconds in ((self.needs.tpot_ms, server.token), (self.needs.ttft_ms, server.first_token)):
            if most is not None:
                in_time &= 1000 * seconds(running, decoded)[:, 0] <= most
        return in_time

    def replicas(self, server: FullServer, batch: Array, least_replicas: Array) -> tuple[Array, Array]:
        """Replicas that the load takes, of at most `batch` sequences, and the sequences of each: of requests by chance
        as many as arrive while one is answered (Little's law), on at least as many replicas as are in time."""
        needs, users = self.needs, self.needs.at_once
        if users is not None:
            replicas = np.ceil(users / batch)
            return replicas, np.minimum(batch, np.ceil(users / replicas))
        answer = needs.output * server.step(batch[:, None])[:, 0]
        replicas = np.ceil(needs.arrival_rate(answer) * answer / (UTILIZATION * batch))
        replicas = np.maximum(replicas, np.where(np.isfinite(least_replicas), least_replicas, 1))
        return replicas, littles_law(needs, lambda running: server.step(running[:, None])[:, 0], batch, replicas)[0]

    def waits(self, candidates: Candidates, row: int, plan: Plan) -> Waits:
        """Latencies and load on the replicas of a candidate, of requests by chance."""
        needs, replicas = self.needs, plan.replicas
        per_s = None if needs.requests_per_s is None else needs.requests_per_s / replicas
        server = self.server(candidates.rows.selected(np.array([row])))
        users = (needs.users or 0) / replicas
        return Arrivals(server, int(candidates.most[row]), per_s, users, needs.think_s).waits(replicas)

    def plans(self, limit: int = 100) -> list[Plan]:
        """Plans whose prefill and decode share GPUs, best first."""
        return self.best_first(self.rows, self.contenders, self.waits, limit)

    def best_first(
        self,
        rows: FittingRows,
        look: Callable[[FittingRows], Candidates | None],
        waits: Callable[[Candidates, int, Plan], Waits],
        limit: int,
    ) -> list[Plan]:
        """The best plan of each GPU and format: those that meet the targets first, by cost where prices are known, then
        by GPUs and speed. Where one holds fewer sequences than its row says, or lets requests by chance wait too long,
        the row is corrected, and all of its GPU and format are looked at anew."""
        best, plans, again = dict[int, Contender](), dict[int, Plan](), rows
        while True:
            if again.shard.size and (candidates := look(again)) is not None:
                best |= self.best_of_each(candidates)
            first = sorted(best, key=lambda pair: best[pair].key)[:limit]
            fewer, more = dict[int, int](), dict[int, float]()
            for pair in [pair for pair in first if pair not in plans]:
                contender = best[pair]
                plan, corrected = self.plan(contender.candidates, contender.row)
                late = False
                if self.needs.by_chance and not corrected:
                    waiting = plan.with_waits(waits(contender.candidates, contender.row, plan))
                    in_time = bool(self.needs.in_time(waiting.ttft_ms, waiting.tpot_ms))
                    if late := plan.meets and not in_time:
                        more[contender.number] = self.replicas_in_time(contender, waits, plan)
                    plan = waiting.model_copy(update={"meets": in_time and plan.gpus <= self.most})
                if corrected or late:
                    fewer |= corrected
                    del best[pair]
                else:
                    plans[pair] = plan
            if not fewer and not more:
                shown = [plans[pair] for pair in first]
                return sorted(shown, key=self.place) if self.needs.by_chance else shown
            changed = self.gpu_and_format(rows)[np.isin(rows.number, [*fewer, *more])]
            rows = rows.corrected(fewer, more)
            again = rows.selected(np.isin(self.gpu_and_format(rows), changed))

    def place(self, plan: Plan) -> tuple[float, ...]:
        """Sort key of a plan, by the figures that it has with the waits of requests."""
        price = np.float64(np.nan if plan.usd_per_hour is None else plan.usd_per_hour / plan.gpus)
        return tuple(self.order(price, plan.gpus, plan.tpot_ms, plan.meets).tolist())

    def replicas_in_time(
        self, contender: "Contender", waits: Callable[[Candidates, int, Plan], Waits], plan: Plan
    ) -> float:
        """Fewest replicas with which requests by chance do not wait too long, more than a plan has; infinite where no
        number within the GPUs that may be used does."""

        def in_time(replicas: int) -> bool:
            tried = plan.model_copy(update={"replicas": replicas})
            latencies = waits(contender.candidates, contender.row, tried)
            return bool(self.needs.in_time(latencies.ttft_ms.mean, latencies.tpot_ms.mean))

        return least(in_time, self.most // plan.layout.gpus, plan.replicas + 1) or inf

    def best_of_each(self, candidates: Candidates) -> dict[int, "Contender"]:
        """The best candidate of each GPU and format."""
        rows = candidates.rows
        keys = self.order(self.price[rows.kind], candidates.gpus, candidates.tpot, candidates.meets)
        order = np.lexsort(keys[::-1])
        pairs, first = np.unique(self.gpu_and_format(rows)[order], return_index=True)
        chosen = zip(pairs.tolist(), order[first].tolist(), strict=True)
        return {pair: Contender((*keys[:, row], rows.number[row]), candidates, row) for pair, row in chosen}

    def allocation(self, rows: FittingRows, row: int, batch: int) -> Allocation:
        """A replica that answers so many requests of the whole length, as Weigh weighs it."""
        key = layout, form = rows.layout_of(row), int(rows.form[row])
        if key not in self.servings:
            self.servings[key] = Serving(self.shards.weights[form], self.engine, layout, Overhead())
        needs = self.needs
        workload = Workload(batch=batch, context=needs.context, generated=needs.output)
        return self.servings[key].on(self.gpus[rows.kind[row]], workload)

    def order(self, price: Any, gpus: Any, tpot: Any, meets: Any) -> Array:
        """Sort keys of plans, the first first."""
        unknown = np.isnan(price)
        cost = np.where(unknown, 0.0, gpus * price)
        return np.array([~np.asarray(meets), np.asarray(gpus) > self.most, unknown, cost, gpus, tpot])

    def plan(self, candidates: Candidates, row: int) -> tuple[Plan, dict[int, int]]:
        """One of them, weighed as Weigh does it, what requests wait left out; and the sequences of rows, by number,
        that hold fewer than they must."""
        rows, prefill, batch = candidates.rows, None, int(candidates.batch[row])
        gpu, precision, layout = self.gpus[rows.kind[row]], self.precisions[rows.form[row]], rows.layout_of(row)
        allocation, price = self.allocation(rows, row, batch), self.cluster.price(gpu.id)
        gpus, tpot, rate = int(candidates.gpus[row]), float(candidates.tpot[row]), float(candidates.rate[row])
        sides = [(rows, batch, capacity := most_of(allocation, layout))]
        if candidates.prefill is not None and candidates.workers is not None:
            first = candidates.prefill.layout_of(row)
            weighed = self.allocation(candidates.prefill, row, first.dp)
            sides.append((candidates.prefill, first.dp, most_of(weighed, first)))
            workers = int(candidates.workers[row])
            prefill = PrefillWorkers(workers=workers, layout=first, headroom_gib=weighed.spare / GIB)
        plan = Plan(
            gpu=gpu.id,
            gpus=gpus,
            replicas=int(candidates.replicas[row]),
            layout=layout,
            weights=precision.weights,
            kv=precision.kv,
            flags=self.engine.flags(self.engine.options.model_dump(exclude_defaults=True)),
            batch=batch,
            capacity=capacity,
            headroom_gib=allocation.spare / GIB,
            ttft_ms=float(candidates.ttft[row]),
            tpot_ms=tpot,
            tokens_per_s_per_user=1000 / tpot,
            tokens_per_s=rate,
            tokens_per_s_per_gpu=rate / gpus,
            usd_per_hour=None if price is None else price * gpus,
            usd_per_million_tokens=None if price is None else usd_per_million(rate, gpus, price),
            bound=BOUNDS[int(candidates.binds[row])],
            meets=bool(candidates.meets[row]),
            origin=origin(self.architecture, gpu, self.engine.name),
            waits=None,
            prefill=prefill,
        )
        return plan, {int(side.number[row]): room for side, sequences, room in sides if room < sequences}


class Contender(NamedTuple):
    """A candidate, with its place in the order of plans."""

    key: tuple[float, ...]
    candidates: Candidates
    row: int

    @property
    def number(self) -> int:
        """Number of its row among all."""
        return int(self.candidates.rows.number[self.row])


def most_of(allocation: Allocation, layout: Layout) -> int:
    """Sequences that a replica has room for."""
    most = max_batch(allocation, layout.dp)
    return MOST_BATCH if most is None else most
