"""Ranges of plans, for a search works with expected figures alone; and their trade of tokens a second for each user
against tokens a second of each GPU."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from calc.errors import Frozen, Message
from calc.formats import CacheFormat, WeightFormat
from calc.hardware.custom_gpu import find_gpu
from calc.hardware.parallel import Layout
from calc.time.arrays import Array, Indices, number
from calc.time.arrivals import UTILIZATION, closed_loop_spread
from calc.time.disaggregated import Disaggregated, between, disaggregated, link_of
from calc.time.efficiency import EfficiencyRow, deciding_rows
from calc.time.estimate import End, Estimate
from calc.time.plan import HOUR, Plan, Search
from calc.time.roofline import Timed, kind_of, sharing
from calc.time.serving_time import FullServer
from calc.time.time_report import OperationTime, by_operation


class PlanRange(Frozen):
    """Figures of a plan, from its low to its high end; the expected ones are the plan's own."""

    ttft_ms: Estimate
    ttft_p95_ms: float | None
    """Expected wait of 95 of 100 requests for their first token; None for workers that prefill alone."""
    tpot_ms: Estimate
    tokens_per_s_per_user: Estimate
    tokens_per_s: Estimate
    usd_per_million_tokens: Estimate | None  # output


class PlanTimes(NamedTuple):
    """Seconds that users of a plan wait, and tokens a second of them all, at an end of the ranges."""

    first_token: float
    token: float
    tokens_per_s: float


def plan_range(search: Search, plan: Plan) -> PlanRange:
    over: Callable[[Callable[..., float]], Estimate]
    server = server_of(search, plan) if plan.prefill is None else None
    if server is not None:
        times, over = cache(partial(times_of, plan, server)), Estimate.over
    else:
        times, over = cache(partial(separate_times, search, plan, disaggregated(search, plan))), between

    def cost(hourly: float) -> Callable[..., float]:
        return lambda *ends: hourly / (times(*ends).tokens_per_s * HOUR) * 1e6

    return PlanRange(
        ttft_ms=over(lambda *ends: 1000 * times(*ends).first_token),
        ttft_p95_ms=first_token_p95(search, plan, server),
        tpot_ms=over(lambda *ends: 1000 * times(*ends).token),
        tokens_per_s_per_user=over(lambda *ends: 1 / times(*ends).token),
        tokens_per_s=over(lambda *ends: times(*ends).tokens_per_s),
        usd_per_million_tokens=None if plan.usd_per_hour is None else over(cost(plan.usd_per_hour)),
    )


def first_token_p95(search: Search, plan: Plan, server: FullServer | None = None) -> float | None:
    """Milliseconds within which 95 of 100 requests get their first token, as expected; None where users never think and
    workers prefill alone, whose line is not reckoned. `server` is one replica where it is known."""
    if plan.waits is not None:
        return plan.waits.ttft_ms.p95
    if plan.prefill is not None:
        return None
    return plan.ttft_ms * closed_loop_spread(server or server_of(search, plan), plan.batch)


def times_of(plan: Plan, server: FullServer, end: End) -> PlanTimes:
    """Times where prefill and decode share GPUs."""
    server, running = replace(server, end=end), plan.replicas * plan.batch
    seconds = (server.first_token(plan.batch), server.token(plan.batch), server.step(plan.batch))
    first, token, step = map(number, seconds)
    return PlanTimes(first, token, running / step)


def separate_times(search: Search, plan: Plan, expected: Disaggregated, prefill: End, decode: End) -> PlanTimes:
    """Times of separate prefill and decode, each at its own end."""
    sides = {"prefill": replace(expected.prefill, end=prefill), "decode": replace(expected.decode, end=decode)}
    both, users = replace(expected, **sides, link=link_of(search, plan, prefill)), search.needs.at_once or 1
    if search.needs.by_chance:
        first = both.first_token_by_chance(plan.tokens_per_s / search.needs.output, plan.batch)
        return PlanTimes(number(first), number(both.token(plan.batch)), plan.tokens_per_s)
    token = both.token(both.running(users))
    return PlanTimes(*map(number, (both.first_token(users), token, both.tokens_per_s(users))))


def plan_operations(search: Search, plan: Plan) -> tuple[OperationTime, ...]:
    """Times of a step's operations, with the prompts of others that are prefilled next to it; of decode workers, which
    have none, decoding alone."""
    server = server_of(search, plan)
    parts = server.parts(plan.batch, own=1) if plan.prefill is None else server.decode_parts(plan.batch)
    return by_operation(Timed(part.what, *map(number, part.figures)) for part in parts)


def server_of(search: Search, plan: Plan) -> FullServer:
    """One replica of a plan, or decode worker, under its load, as expected."""
    return search.server(search.row_of(plan, plan.layout))


def rows_of_plan(search: Search, plan: Plan) -> Mapping[str, EfficiencyRow]:
    """The usual efficiencies of its GPU, each with its source."""
    gpu = next(gpu for gpu in search.gpus if gpu.id == plan.gpu)
    ranks = sharing(plan.layout, experts=bool(search.architecture.experts))
    return deciding_rows(*kind_of(gpu, search.engine.name, plan.weights, ranks, search.node))


def cannot_keep_up(search: Search, plan: Plan) -> Message | None:
    """A sentence where requests come faster than as many GPUs as there may be, each a part of equal replicas, answer
    them."""
    replicas = search.most // plan.layout.gpus
    if plan.waits is None or plan.prefill is not None or plan.gpus <= search.most or not replicas:
        return None
    most = UTILIZATION * plan.waits.most_requests_per_s * replicas / plan.replicas
    return Message(
        "{n:,} × {gpu} cannot keep up: most is {most:.3g} requests/s",
        n=replicas * plan.layout.gpus,
        gpu=find_gpu(plan.gpu).name,
        most=most,
    )


class Point(Frozen):
    """A layout with so many sequences on each replica: what one user gets, and what a GPU yields."""

    gpu: str
    layout: Layout
    weights: WeightFormat
    kv: CacheFormat
    batch: int
    tokens_per_s_per_user: float
    tokens_per_s_per_gpu: float


def frontier(search: Search) -> list[Point]:
    """The points than which none of those tried is better in both, the most for a user first. Targets do not count."""
    rows = search.rows
    if not rows.shard.size:
        return []
    batches, server = search.batches(rows), search.server(rows)
    token, step = (
        np.concatenate([of(batch[:, None]) for batch in batches.T], axis=1) for of in (server.token, server.step)
    )
    users, yields = (1 / token).ravel(), (batches / step / rows.gpus[:, None]).ravel()
    tried = np.arange(users.size)
    while True:
        best = tried[best_in_both(users[tried], yields[tried])]
        chosen = [(index // batches.shape[1], int(batches.flat[index])) for index in best.tolist()]
        fitting = np.array([search.allocation(rows, *row).surely_fits for row in chosen])
        if fitting.all():
            break
        tried = np.setdiff1d(tried, best[~fitting])
    return [point(search, *row, users[index], yields[index]) for row, index in zip(chosen, best.tolist(), strict=True)]


def best_in_both(users: Array, yields: Array) -> Indices:
    """Places of those than which none is better in both, the most for a user first."""
    order = np.lexsort((-yields, -users))
    best = np.maximum.accumulate(yields[order])
    return np.asarray(order[np.concatenate([[True], best[1:] > best[:-1]])[: order.size]])


def point(search: Search, row: int, batch: int, user: float, of_gpu: float) -> Point:
    rows = search.rows
    precision = search.precisions[rows.form[row]]
    return Point(
        gpu=search.gpus[rows.kind[row]].id,
        layout=rows.layout_of(row),
        weights=precision.weights,
        kv=precision.kv,
        batch=batch,
        tokens_per_s_per_user=float(user),
        tokens_per_s_per_gpu=float(of_gpu),
    )
