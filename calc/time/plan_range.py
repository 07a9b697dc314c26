"""The ranges of a plan: a search works with expected figures alone."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from calc.errors import Frozen, Message
from calc.hardware.custom_gpu import find_gpu
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.time.arrivals import UTILIZATION, closed_loop_spread, number
from calc.time.disaggregated import Disaggregated, between
from calc.time.efficiency import EfficiencyRow, deciding_rows, efficiency
from calc.time.estimate import End, Estimate
from calc.time.plan import HOUR, Plan, Search
from calc.time.roofline import Machine, Timed, kind_of, machine, sharing
from calc.time.serving_time import FullServer, Speed
from calc.time.time_operations import routing
from calc.time.time_report import OperationTime, by_operation
from calc.time.time_shards import combined, of_rows, stacked


class PlanRange(Frozen):
    """What a plan does, from its low to its high end; the expected figures are the plan's own."""

    ttft_ms: Estimate
    ttft_p95_ms: float | None
    """Within which 95 of 100 requests get their first token, as expected; None for workers that prefill alone."""
    tpot_ms: Estimate
    tokens_per_s_per_user: Estimate
    tokens_per_s: Estimate
    usd_per_million_tokens: Estimate | None  # output


class PlanTimes(NamedTuple):
    """What users of a plan see, at some end of the ranges: seconds, and tokens a second of them all."""

    first_token: float
    token: float
    tokens_per_s: float


def plan_range(search: Search, plan: Plan) -> PlanRange:
    """The range of a plan of this search."""
    over: Callable[[Callable[..., float]], Estimate]
    server = full_server(search, plan, plan.layout) if plan.prefill is None else None
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
    return plan.ttft_ms * closed_loop_spread(server or full_server(search, plan, plan.layout), plan.batch)


def times_of(plan: Plan, server: FullServer, end: End) -> PlanTimes:
    """Where prefill and decode share GPUs."""
    server, running = replace(server, end=end), plan.replicas * plan.batch
    seconds = (server.first_token(plan.batch), server.token(plan.batch), server.step(plan.batch))
    first, token, step = map(number, seconds)
    return PlanTimes(first, token, running / step)


def separate_times(search: Search, plan: Plan, expected: Disaggregated, prefill: End, decode: End) -> PlanTimes:
    """Where they do not, with either side at an end of its own."""
    sides = {"prefill": replace(expected.prefill, end=prefill), "decode": replace(expected.decode, end=decode)}
    both, users = replace(expected, **sides, link=link(search, plan, prefill)), search.needs.at_once or 1
    if search.needs.by_chance:
        first = both.first_token_by_chance(plan.tokens_per_s / search.needs.output, plan.batch)
        return PlanTimes(number(first), number(both.token(plan.batch)), plan.tokens_per_s)
    token = both.token(both.running(users))
    return PlanTimes(*map(number, (both.first_token(users), token, both.tokens_per_s(users))))


def disaggregated(search: Search, plan: Plan) -> Disaggregated:
    """Its workers under the load, as expected."""
    assert plan.prefill is not None
    prefill, decode = (full_server(search, plan, layout) for layout in (plan.prefill.layout, plan.layout))
    return Disaggregated(prefill, decode, plan.prefill.workers, plan.replicas, link(search, plan, "expected"))


def link(search: Search, plan: Plan, end: End) -> float:
    """Bytes/s from a GPU that prefills to one that decodes."""
    bandwidth: float = machine_of(search, plan, plan.gpus)(end).link
    return bandwidth


def plan_operations(search: Search, plan: Plan) -> tuple[OperationTime, ...]:
    """Where the time of a step goes, the prompts of others that are prefilled next to it included; of decode workers,
    which have none, of decoding alone."""
    server = full_server(search, plan, plan.layout)
    parts = server.parts(plan.batch, own=1) if plan.prefill is None else server.decode_parts(plan.batch)
    return by_operation(Timed(part.what, *map(number, part.figures)) for part in parts)


def full_server(search: Search, plan: Plan, layout: Layout) -> FullServer:
    """One replica of it, or one of its workers, in its layout under its load, as expected."""
    needs, number_of_gpu = search.needs, search.gpus.index(gpu_of(search, plan))
    limits = search.limits[number_of_gpu]
    chunk = min(limits.step_tokens, needs.prompt - needs.cached)
    lengths = needs.prompt, needs.output, chunk, needs.cached
    return FullServer(speed_of_plan(search, plan, layout), *lengths, "expected", limits.poll, needs.by_chance)


def gpu_of(search: Search, plan: Plan) -> GPU:
    """The GPU of a plan."""
    return next(gpu for gpu in search.gpus if gpu.id == plan.gpu)


def rows_of_plan(search: Search, plan: Plan) -> Mapping[str, EfficiencyRow]:
    """The usual efficiencies of its GPU, each with its source."""
    ranks = sharing(plan.layout, experts=routing(search.architecture, plan.layout) is not None)
    return deciding_rows(*kind_of(gpu_of(search, plan), search.engine.name, plan.weights, ranks, search.node))


def speed_of_plan(search: Search, plan: Plan, layout: Layout) -> Speed:
    """One replica of it, or one of its workers."""
    stored = [(precision.weights, precision.kv) for precision in search.precisions]
    form = stored.index((plan.weights, plan.kv))
    demand = of_rows(combined([search.shards(layout, (form,)).demand], stacked), np.array([0]), np.array([form]))
    ranks = sharing(layout, experts=demand.routing is not None)
    return Speed((demand,), layout, machine_of(search, plan, ranks))


def machine_of(search: Search, plan: Plan, ranks: int) -> Callable[[End], Machine]:
    """Its GPU, of which so many share a layer, at an end of the ranges."""
    gpu, engine, node = gpu_of(search, plan), search.engine.name, search.node
    shares = efficiency(*kind_of(gpu, engine, plan.weights, ranks, node)).edited(search.edited)
    return lambda end: machine(gpu, engine, plan.weights, ranks, end, shares, node)


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
