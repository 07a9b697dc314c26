"""The ranges of a plan: a search works with expected figures alone."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from calc.errors import Frozen, Message
from calc.hardware.custom_gpu import find_gpu
from calc.time.arrivals import UTILIZATION, closed_loop_spread, number
from calc.time.disaggregated import Disaggregated, between
from calc.time.efficiency import EfficiencyRow
from calc.time.estimate import End, Estimate
from calc.time.plan import HOUR, Plan, Search
from calc.time.roofline import Timed, machine, sharing, usual_rows, usual_shares
from calc.time.serving_time import FullServer, Speed
from calc.time.time_operations import routing
from calc.time.time_report import OperationTime, by_operation
from calc.time.time_shards import of_rows


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
    times = cache(partial(times_of, search, plan) if plan.prefill is None else partial(separate_times, search, plan))
    over: Callable[[Callable[..., float]], Estimate] = Estimate.over if plan.prefill is None else between

    def cost(hourly: float) -> Callable[..., float]:
        return lambda *ends: hourly / (times(*ends).tokens_per_s * HOUR) * 1e6

    return PlanRange(
        ttft_ms=over(lambda *ends: 1000 * times(*ends).first_token),
        ttft_p95_ms=first_token_p95(search, plan),
        tpot_ms=over(lambda *ends: 1000 * times(*ends).token),
        tokens_per_s_per_user=over(lambda *ends: 1 / times(*ends).token),
        tokens_per_s=over(lambda *ends: times(*ends).tokens_per_s),
        usd_per_million_tokens=None if plan.usd_per_hour is None else over(cost(plan.usd_per_hour)),
    )


def first_token_p95(search: Search, plan: Plan) -> float | None:
    """Milliseconds within which 95 of 100 requests get their first token, as expected; None where users never think and
    workers prefill alone, whose line is not reckoned."""
    if plan.waits is not None:
        return plan.waits.ttft_ms.p95
    if plan.prefill is not None:
        return None
    server = full_server(search, plan, "expected")
    return plan.ttft_ms * closed_loop_spread(server, plan.batch)


def times_of(search: Search, plan: Plan, end: End) -> PlanTimes:
    """Where prefill and decode share GPUs."""
    server, running = full_server(search, plan, end), plan.replicas * plan.batch
    seconds = (server.first_token(plan.batch), server.token(plan.batch), server.step(plan.batch))
    first, token, step = map(number, seconds)
    return PlanTimes(first, token, running / step)


def separate_times(search: Search, plan: Plan, prefill: End, decode: End) -> PlanTimes:
    """Where they do not, with either side at an end of its own."""
    both, users = disaggregated(search, plan, prefill, decode), search.needs.at_once or 1
    if search.needs.by_chance:
        first = both.first_token_by_chance(plan.tokens_per_s / search.needs.output, plan.batch)
        return PlanTimes(number(first), number(both.token(plan.batch)), plan.tokens_per_s)
    token = both.token(both.running(users))
    return PlanTimes(*map(number, (both.first_token(users), token, both.tokens_per_s(users))))


def disaggregated(search: Search, plan: Plan, prefill: End, decode: End) -> Disaggregated:
    """Its workers under the load."""
    assert plan.prefill is not None
    (gpu,) = (gpu for gpu in search.gpus if gpu.id == plan.gpu)
    engine, node = search.engine.name, search.node
    shares = usual_shares(gpu, engine, plan.weights, plan.gpus, node).edited(search.edited)
    return Disaggregated(
        full_server(search, plan.model_copy(update={"layout": plan.prefill.layout}), prefill),
        full_server(search, plan, decode),
        plan.prefill.workers,
        plan.replicas,
        machine(gpu, engine, plan.weights, plan.gpus, prefill, shares, node).link,
    )


def plan_operations(search: Search, plan: Plan) -> tuple[OperationTime, ...]:
    """Where the time of a step goes, the prompts of others that are prefilled next to it included; of decode workers,
    which have none, of decoding alone."""
    server = full_server(search, plan, "expected")
    parts = server.parts(plan.batch, own=1) if plan.prefill is None else server.decode_parts(plan.batch)
    return by_operation(Timed(part.what, *map(number, part.figures)) for part in parts)


def full_server(search: Search, plan: Plan, end: End) -> FullServer:
    """One replica of it under its load."""
    needs = search.needs
    (limits,) = (limits for gpu, limits in zip(search.gpus, search.limits, strict=True) if gpu.id == plan.gpu)
    chunk = min(limits.step_tokens, needs.prompt - needs.cached)
    return FullServer(
        speed_of_plan(search, plan), needs.prompt, needs.output, chunk, needs.cached, end, limits.poll, needs.by_chance
    )


def rows_of_plan(search: Search, plan: Plan) -> Mapping[str, EfficiencyRow]:
    """The usual efficiencies of its GPU, each with its source."""
    (gpu,) = (gpu for gpu in search.gpus if gpu.id == plan.gpu)
    ranks = sharing(plan.layout, experts=routing(search.architecture, plan.layout) is not None)
    return usual_rows(gpu, search.engine.name, plan.weights, ranks, search.node)


def speed_of_plan(search: Search, plan: Plan) -> Speed:
    """One replica of it."""
    (gpu,) = (gpu for gpu in search.gpus if gpu.id == plan.gpu)
    stored = [(precision.weights, precision.kv) for precision in search.precisions]
    form = stored.index((plan.weights, plan.kv))
    demand = of_rows([search.shards(plan.layout, (form,)).demand], np.array([0]), np.array([form]))
    ranks = sharing(plan.layout, experts=demand.routing is not None)
    shares = usual_shares(gpu, search.engine.name, plan.weights, ranks, search.node).edited(search.edited)
    return Speed(
        (demand,),
        plan.layout,
        lambda end: machine(gpu, search.engine.name, plan.weights, ranks, end, shares, search.node),
    )


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
