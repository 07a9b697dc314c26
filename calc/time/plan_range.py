"""The ranges of a plan: a search works with expected figures alone."""

from collections.abc import Callable, Mapping

import numpy as np

from calc.errors import Frozen, Message
from calc.hardware.custom_gpu import find_gpu
from calc.time.arrivals import UTILIZATION, number
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
    tpot_ms: Estimate
    tokens_per_s_per_user: Estimate
    tokens_per_s: Estimate
    usd_per_million_tokens: Estimate | None  # output


def plan_range(search: Search, plan: Plan) -> PlanRange:
    """The range of a plan of this search."""
    running = plan.replicas * plan.batch

    def server(end: End) -> FullServer:
        return full_server(search, plan, end)

    def step(end: End) -> float:
        """Seconds, every prompt included."""
        return number(server(end).step(plan.batch))

    def token(end: End) -> float:
        """Seconds."""
        return number(server(end).token(plan.batch))

    def first(end: End) -> float:
        """Seconds."""
        return number(server(end).first_token(plan.batch))

    def cost(hourly: float) -> Callable[[End], float]:
        return lambda end: hourly * step(end) / (running * HOUR) * 1e6

    return PlanRange(
        ttft_ms=Estimate.over(lambda end: 1000 * first(end)),
        tpot_ms=Estimate.over(lambda end: 1000 * token(end)),
        tokens_per_s_per_user=Estimate.over(lambda end: 1 / token(end)),
        tokens_per_s=Estimate.over(lambda end: running / step(end)),
        usd_per_million_tokens=None if plan.usd_per_hour is None else Estimate.over(cost(plan.usd_per_hour)),
    )


def plan_operations(search: Search, plan: Plan) -> tuple[OperationTime, ...]:
    """Where the time of a step goes, the prompts of others that are prefilled beside included."""
    parts = full_server(search, plan, "expected").parts(plan.batch, own=1)
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
    """A sentence where requests come faster than as many GPUs as there may be answer them."""
    replicas = search.most // plan.layout.gpus
    if plan.waits is None or plan.gpus <= search.most or not replicas:
        return None
    most = UTILIZATION * plan.waits.most_requests_per_s * replicas / plan.replicas
    return Message(
        "{n:,} × {gpu} cannot keep up: most is {most:.3g} requests/s",
        n=replicas * plan.layout.gpus,
        gpu=find_gpu(plan.gpu).name,
        most=most,
    )
