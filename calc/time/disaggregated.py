"""Plans whose prefill and decode run on separate GPUs (DistServe, arXiv:2401.09670): the cache of a prompt is sent from
a prefill worker to a decode worker, whose steps hold no prompts. For each GPU and format the best pair of layouts: a
decode worker takes as many sequences as get their tokens in time; prefill workers are as many as keep up with the
answers, and bring the first token in time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from math import ceil, exp, log, sqrt
from typing import Any

import numpy as np

from calc.errors import ConfigError, Message
from calc.serving.engines import ENGINES
from calc.time.arrays import Array, number
from calc.time.arrivals import UTILIZATION, Latency, Waits
from calc.time.estimate import ENDS, End, Estimate
from calc.time.operations import PassPart
from calc.time.plan import Candidates, Needs, Plan, Search, last_in_time, littles_law
from calc.time.roofline import seconds_by_bound
from calc.time.room import FittingRows
from calc.time.serving import FullServer, Speed

NEWTON_STEPS = 30
"""Steps in which a root is exact."""
MOST_BUSY = 0.99
"""Share of its time that a prefill worker works at most: beyond, waits grow without bound."""
MANY_GPUS = 2**20
"""GPUs, more than any links reach."""

# How long requests take


@dataclass(frozen=True)
class Disaggregated:
    """Equal prefill workers and equal decode workers, all of them full: where an answer ends a prompt comes. Figures
    may be numbers or arrays."""

    prefill: FullServer  # one worker
    decode: FullServer
    prefill_workers: Any
    decode_workers: Any
    link: Any  # bytes/s from a GPU that prefills to one that decodes

    @property
    def prompt(self) -> Any:
        """Seconds from one prompt to the next on a data-parallel copy that is never idle."""
        return self.prefill.launched

    @property
    def copies(self) -> Any:
        """Prompts that are prefilled at once."""
        layout = self.prefill.speed.layout
        return self.prefill_workers * layout.dp * layout.pp

    @property
    def prompts_per_s(self) -> Any:
        """The most that all prefill workers take."""
        return self.copies / self.prompt

    @cached_property
    def transfer(self) -> Any:
        """Seconds in which a prompt's cache reaches a decode worker, each GPU over its own link."""
        return cached_bytes(self.decode.speed, self.decode.prompt) / self.link

    def token(self, batch: Any) -> Any:
        """Seconds of a step of a decode worker with so many sequences (TPOT)."""
        return self.decode.decode_step(batch)

    def running(self, users: Any) -> Any:
        """Sequences of one decode worker: its share of the users, of each of whom a request is decoded for this part of
        its time (Little's law); where prefill limits, as many as are sent."""
        running = np.ceil(np.asarray(users / self.decode_workers))
        while True:
            answer = self.decode.output * self.token(running)
            decoded = answer / (self.before_decode(users, self.token(running)) + answer)
            fewer = np.maximum(np.ceil(users / self.decode_workers * decoded), 1)
            if (fewer >= running).all():
                return running
            running = np.minimum(fewer, running)

    def first_token(self, users: Any) -> Any:
        """Seconds until a prompt's first token (TTFT), which a decode step brings."""
        token = self.token(self.running(users))
        return self.before_decode(users, token) + token

    def before_decode(self, users: Any, token: Any) -> Any:
        """Seconds until a request is decoded: both servers receive it, and admit it where there are others; its prompt
        waits for those of others and is prefilled, and its cache is sent."""
        others = np.maximum(users / self.copies - 1, 0)
        return self.unqueued_prefill + np.where(others > 0, self.admission + self.queueing_s(users, others, token), 0.0)

    @cached_property
    def unqueued_prefill(self) -> Any:
        """Seconds until a request that meets no other is decoded."""
        received = sum(side.speed.machines(side.end).request for side in (self.prefill, self.decode))
        return received + sum(part.seconds for part in self.prefill.prompt_parts) + self.transfer

    @property
    def admission(self) -> Any:
        """Seconds until both servers, busy, admit a request."""
        return sum(side.speed.machines(side.end).admission for side in (self.prefill, self.decode))

    def tokens_per_s(self, users: Any) -> Any:
        """Output tokens a second of all users."""
        token, output = self.token(self.running(users)), self.decode.output
        return users * output / (self.before_decode(users, token) + output * token)

    def queueing_s(self, users: Any, others: Any, token: Any) -> Any:
        """Seconds behind the prompts of others: a share of them, as on a server that does both; where prefill limits,
        all that answers leave of a cycle in which each user gets one."""
        queue = self.prefill.speed.machines(self.prefill.end).queue
        cycle = users / self.prompts_per_s
        return np.maximum(queue * others / 2 * self.prompt, cycle - self.decode.output * token - self.prompt)

    def busy(self, per_s: Any) -> Any:
        """Share of the time in which a prefill worker works, where so many requests come in a second."""
        return np.minimum(per_s / self.prompts_per_s, MOST_BUSY)

    def mean_queueing_s(self, per_s: Any) -> Any:
        """Mean seconds behind the prompts of others, where requests come at random: each copy is a queue with equal
        times of service (M/D/1, Pollaczek and Khinchine)."""
        busy = self.busy(per_s)
        return busy / (1 - busy) * self.prompt / 2

    def first_token_by_chance(self, per_s: Any, batch: Any) -> Any:
        """Mean seconds until the first token of requests that come at random, with so many on each decode worker."""
        return self.unqueued_prefill + self.admission + self.mean_queueing_s(per_s) + self.token(batch)

    def waits(self, per_s: float, batch: int, most: int) -> Waits:
        """Latencies and load. The number on a decode worker is Poisson, about `batch` and at most `most`."""
        busy, output, prompt = number(self.busy(per_s)), self.decode.output, number(self.prompt)
        mean, queueing = number(self.first_token_by_chance(per_s, batch)), number(self.mean_queueing_s(per_s))
        least = mean - queueing
        p50, p95 = (1000 * (least + prompt * wait_quantile(busy, share)) for share in (0.5, 0.95))
        many = min(most, batch + ceil(1.645 * sqrt(batch)))  # 95 of 100 times fewer
        token, token_late = (1000 * number(self.token(n)) for n in (batch, many))
        at_most = min(number(self.prompts_per_s), self.decode_workers * most / (output * number(self.token(most))))
        return Waits(
            ttft_ms=Latency(mean=1000 * mean, p50=p50, p95=p95),
            tpot_ms=Latency(mean=token, p50=token, p95=token_late),
            utilization=per_s / at_most,
            most_requests_per_s=at_most,
        )


def cached_bytes(speed: Speed, tokens: int) -> Any:
    """Bytes of cache and state of a sequence that one rank holds on its stage."""
    nbytes = sum(
        stage.bits_read(PassPart(1, 1, tokens - 1)) / 8 / stage.dcp + stage.state_bytes / 2 for stage in speed.demands
    )
    return nbytes / speed.layout.pp


def wait_quantile(busy: float, share: float) -> float:
    """Times of service that a share of the requests wait at most in an M/D/1 queue: its tail is
    (1 - r) / (r e^x - 1) e^(-x t), where r (e^x - 1) = x (Cramér and Lundberg)."""
    if busy <= 1 - share:
        return 0.0
    rate = min(2 * (1 - busy) / busy, 2 - 2 * log(busy))  # above the root
    for _ in range(NEWTON_STEPS):
        rate -= (busy * (exp(rate) - 1) - rate) / (busy * exp(rate) - 1)
    late = (1 - busy) / (busy * exp(rate) - 1)
    return max(0.0, log(late / (1 - share)) / rate)


def both_ends(figure: Callable[[End, End], float]) -> Estimate:
    """The range of a figure, given an end for either side: it is at its ends where one side is fast and the other
    slow, for requests wait longest for slow prefill workers before fast decode workers."""
    figures = [figure(*ends) for ends in product(ENDS, repeat=2)]
    return Estimate(low=min(figures), expected=figure("expected", "expected"), high=max(figures))


def disaggregated(search: Search, plan: Plan) -> Disaggregated:
    """The workers of a plan under the load, as expected."""
    assert plan.prefill is not None
    prefill, decode = (search.server(search.row_of(plan, layout)) for layout in (plan.prefill.layout, plan.layout))
    return Disaggregated(prefill, decode, plan.prefill.workers, plan.replicas, link_bandwidth(search, plan, "expected"))


def link_bandwidth(search: Search, plan: Plan, end: End) -> Any:
    """Bytes/s from a GPU of a plan that prefills to one that decodes."""
    row = search.row_of(plan, plan.layout)
    return search.cards.of(plan.gpus, row.form, row.kind, end).link


# The plans


def ranked_plans(search: Search, limit: int = 100) -> list[Plan]:
    """Best first, with prefill and decode together, apart, or whichever is better, as the needs say."""
    wanted = search.needs.prefill_decode
    together = [] if wanted == "apart" else search.plans(limit)
    if wanted == "together":
        return together
    check_separation(search)
    price = dict(zip((gpu.id for gpu in search.gpus), search.price, strict=True))
    return sorted(
        [*together, *separate_plans(search, limit)],
        key=lambda plan: tuple(search.order(price[plan.gpu], plan.gpus, plan.tpot_ms, plan.meets).ravel()),
    )[:limit]


def check_separation(search: Search) -> None:
    """Raise ConfigError where prefill and decode can't be on separate GPUs."""
    disaggregation, options = search.engine.disaggregation, search.engine.options
    if disaggregation is None:
        able = [name for name, engine in ENGINES.items() if engine.disaggregation is not None]
        sentence = Message(
            "{engine} does not run prefill and decode on separate GPUs here.", engine=search.engine.title
        )
        raise ConfigError(sentence, "engine", able)
    for name in disaggregation.without:
        if getattr(options, name):
            sentence = Message(
                "{engine} has no servers that prefill or decode alone with {option}.",
                engine=search.engine.title,
                option=name,
            )
            raise ConfigError(sentence, name, ["false"])
    if search.most < 2:
        raise ConfigError(Message("Prefill and decode on separate GPUs take at least two."), "max_gpus", [2])


def separate_plans(search: Search, limit: int) -> list[Plan]:
    """Best first, of layouts without pipeline stages and shares of cached tokens."""
    every = search.rows
    rows = every.selected(np.ravel((every.layout.pp == 1) & (every.layout.dcp == 1)))
    return search.best_first(rows, partial(best_pairs, search), partial(separate_waits, search), limit)


def separate_waits(search: Search, pairs: Candidates, row: int, plan: Plan) -> Waits:
    """Latencies and load on the workers of a plan, of requests that come at random."""
    per_s = plan.tokens_per_s / search.needs.output
    return disaggregated(search, plan).waits(per_s, plan.batch, int(pairs.most[row]))


def best_pairs(search: Search, rows: FittingRows) -> Candidates | None:
    """The best pair of layouts of each GPU and format; None where no two go together."""
    needs, server = search.needs, search.server(rows)
    in_time = (needs.tpot_ms or np.inf) / 1000
    batch = last_in_time(search.batches(rows, needs.at_once), lambda tried: decode_step(server, tried) <= in_time)
    token = decode_step(server, batch)
    on, copies = server.speed.machines("expected"), np.ravel(rows.layout.dp).astype(np.float64)
    prompt, received, queue = (np.ravel(each) for each in (server.launched, on.request + on.admission, on.queue))
    alone = received + np.ravel(sum(part.seconds for part in server.prompt_parts))
    decode_workers, per_s = np.ceil((needs.at_once or 1) / batch), token
    if needs.by_chance:
        answer = needs.output * token
        decode_workers = np.ceil(needs.arrival_rate(answer) * answer / (UTILIZATION * batch))
        per_s = littles_law(needs, partial(decode_step, server), batch, decode_workers)[1]
    link = pairwise_link(search, decode_workers * rows.gpus + 1, rows)
    begun = received + np.ravel(cached_bytes(server.speed, needs.prompt) / link) + token
    wait = np.inf if needs.ttft_ms is None else needs.ttft_ms / 1000
    of_pair, tp = search.gpu_and_format(rows), np.ravel(rows.layout.tp)
    chosen = []
    for pair in np.unique(of_pair):
        second = np.flatnonzero(of_pair == pair)
        first = second[rows.capacity[second] >= copies[second]][:, None]
        slack = wait - alone[first] - begun[second]
        load = copies[first], prompt[first], np.maximum(slack, 0)
        if needs.by_chance:
            workers = workers_for_arrivals(per_s[second], *load)
        else:
            workers = workers_to_keep_up(needs, token[second], *load, queue[first])
        workers = np.ceil(np.maximum(workers, 1))
        gpus = workers * rows.gpus[first] + decode_workers[second] * rows.gpus[second]
        if search.architecture.recurrent:  # states pass between equal ranks only (vLLM nixl_connector_compatibility.md)
            gpus = np.where(tp[first] == tp[second], gpus, np.inf)
        tokens = np.broadcast_to(token[second], gpus.shape)
        meets = (slack >= 0) & (1000 * tokens <= (needs.tpot_ms or np.inf)) & (gpus <= search.most)
        price = np.broadcast_to(search.price[rows.kind[second]], gpus.shape)
        keys = search.order(price, gpus, tokens, meets).reshape(6, -1)
        best = np.lexsort(keys[::-1])[:1]
        if best.size and np.isfinite(gpus.flat[best]).all():
            chosen.append((first[best // second.size, 0], second[best % second.size], workers.flat[best]))
    if not chosen:
        return None
    first, second, workers = (np.concatenate(figures) for figures in zip(*chosen, strict=True))
    return pairs_of(search, rows.selected(first), rows.selected(second), workers, decode_workers[second], batch[second])


def pairs_of(
    search: Search,
    prefill: FittingRows,
    decode: FittingRows,
    prefill_workers: Array,
    decode_workers: Array,
    most: Array,
) -> Candidates:
    """Figures of workers in layouts of both sides under the load of a search; `most`: sequences of a decode worker, in
    time."""
    needs, workers = search.needs, decode_workers[:, None]
    gpus = prefill_workers * prefill.gpus + decode_workers * decode.gpus
    sides, link = (search.server(prefill), search.server(decode)), pairwise_link(search, gpus, decode)
    both = Disaggregated(*sides, prefill_workers[:, None], workers, link)
    if needs.by_chance:  # as many run as come while one is answered (Little's law)
        running, per_s = littles_law(needs, both.token, most[:, None], workers)
        first, batch = both.first_token_by_chance(per_s, running), running[:, 0]
        rate = np.broadcast_to(per_s * needs.output, running.shape)
    else:
        users = needs.at_once or 1
        running, first, rate = both.running(users), both.first_token(users), both.tokens_per_s(users)
        batch = np.ceil(users / decode_workers)
    ttft, tpot = 1000 * first[:, 0], 1000 * both.token(running)[:, 0]
    bound_of = seconds_by_bound(both.decode.decode_parts(running), len(gpus)).argmax(axis=0)
    meets = (ttft <= (needs.ttft_ms or np.inf)) & (tpot <= (needs.tpot_ms or np.inf)) & (gpus <= search.most)
    figures = batch, most, ttft, tpot, rate[:, 0], decode_workers, gpus, bound_of, meets
    return Candidates(decode, *figures, prefill, prefill_workers)


def workers_to_keep_up(needs: Needs, token: Array, copies: Array, prompt: Array, slack: Array, queue: Array) -> Array:
    """Prefill workers that keep up with the answers of users who always wait, and let them wait for no longer than
    `slack`; without any, just keep up."""
    each = (needs.at_once or 1) / copies
    in_time = np.where(slack > 0, each / (1 + 2 * slack / (queue * prompt)), 0)
    return np.maximum(each * prompt / (needs.output * token + prompt), in_time)


def workers_for_arrivals(per_s: Array, copies: Array, prompt: Array, slack: Array) -> Array:
    """Prefill workers that requests which come at random keep busy for no longer than that they wait for `slack`
    (M/D/1), and for at most a share of the time."""
    ratio = 2 * slack / prompt
    busy = np.where(slack > 0, np.minimum(UTILIZATION, 1 / (1 + 1 / np.maximum(ratio, 1e-9))), UTILIZATION)
    return per_s * prompt / (copies * busy)


def pairwise_link(search: Search, gpus: Array, rows: FittingRows) -> Any:
    """Bytes a second from a GPU of one side to one of the other, where there are so many in all: within a node, within
    the reach of the GPU's links, or beyond; [rows, 1]."""
    reach = np.array([search.cluster.reach(gpu) for gpu in search.gpus])[rows.kind]
    linked = np.where(gpus <= search.cluster.gpus_per_node, gpus, np.where(gpus <= reach, reach, MANY_GPUS))
    return search.cards.of(linked, rows.form, rows.kind).link


def decode_step(server: FullServer, batch: Array) -> Array:
    """Seconds of a step that only decodes, for each row."""
    return np.asarray(np.ravel(server.decode_step(batch[:, None])))
