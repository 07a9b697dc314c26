"""The ranges of a plan: a search works with expected figures alone."""

from collections.abc import Callable
from typing import Any

import numpy as np

from calc.errors import Frozen
from calc.time.estimate import End, Estimate
from calc.time.plan import HOUR, Plan, Search
from calc.time.roofline import machine, sharing
from calc.time.serving import Speed


class PlanRange(Frozen):
    """What a plan does, from its low to its high end; the expected figures are the plan's own."""

    ttft_ms: Estimate
    tpot_ms: Estimate
    tokens_per_s_per_user: Estimate
    tokens_per_s: Estimate
    usd_per_million_tokens: Estimate | None  # output


def plan_range(search: Search, plan: Plan) -> PlanRange:
    """Of a plan of this search."""
    needs, running = search.needs, plan.replicas * plan.batch
    speed = speed_of_plan(search, plan)
    kinds = next(found.kinds for found in search.found if found.layout == plan.layout)
    chunk = min(search.limits[kind].step_tokens for kind in kinds)  # as in the search

    def step(end: End) -> float:
        """Seconds."""
        return number(speed.continuous(plan.batch, needs.prompt, needs.output, end, needs.cached))

    def first(end: End) -> float:
        """Seconds."""
        return number(speed.prompt(1, needs.prompt - needs.cached, end, chunk, needs.cached))

    def cost(hourly: float) -> Callable[[End], float]:
        return lambda end: hourly * step(end) / (running * HOUR) * 1e6

    return PlanRange(
        ttft_ms=Estimate.over(lambda end: 1000 * first(end)),
        tpot_ms=Estimate.over(lambda end: 1000 * step(end)),
        tokens_per_s_per_user=Estimate.over(lambda end: 1 / step(end)),
        tokens_per_s=Estimate.over(lambda end: running / step(end)),
        usd_per_million_tokens=None if plan.usd_per_hour is None else Estimate.over(cost(plan.usd_per_hour)),
    )


def speed_of_plan(search: Search, plan: Plan) -> Speed:
    """One replica of it."""
    (gpu,) = (gpu for gpu in search.gpus if gpu.id == plan.gpu)
    stored = [(precision.weights, precision.kv) for precision in search.precisions]
    shard = search.shards(plan.layout, (stored.index((plan.weights, plan.kv)),))
    ranks = sharing(plan.layout, experts=shard.demand.routing is not None)
    return Speed(
        (shard.demand,),
        plan.layout,
        lambda end: machine(gpu, search.engine.name, plan.weights, ranks, end, None, search.node),
    )


def number(seconds: Any) -> float:
    """A demand in one format is an array of one figure."""
    return float(np.ravel(seconds)[0])
