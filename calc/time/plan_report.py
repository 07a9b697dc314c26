"""Everything about one planning question, in one object: what the page draws and the command line prints. A search
works with expected figures alone: here are the ranges of its plans, and their trade of tokens a second for each user
against tokens a second of each GPU."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from calc.budget import SECONDS_OF_PLANS, budget
from calc.errors import Frozen, Message
from calc.formats import CacheFormat, Precision, WeightFormat, native
from calc.hardware.custom_gpu import find_gpu
from calc.hardware.gpu import GPU
from calc.hardware.gpus import gpus as all_gpus
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines import ENGINES
from calc.serving.engines.engine import Engine
from calc.serving.engines.launch import DisaggregatedLaunch, Launch, ServerRole, ServerStart
from calc.time.arrays import Array, Indices, number
from calc.time.arrivals import UTILIZATION, closed_loop_spread
from calc.time.cluster import USUAL, Cluster
from calc.time.disaggregated import Disaggregated, both_ends, disaggregated, link_bandwidth, ranked_plans
from calc.time.efficiency import EfficiencyRow, deciding_rows
from calc.time.estimate import End, Estimate
from calc.time.plan import Needs, Plan, Search
from calc.time.prices import Price, prices, usd_per_million
from calc.time.report import OperationTime, by_operation
from calc.time.roofline import Timed, kind_of, sharing
from calc.time.serving import FullServer

# Ranges, and the frontier


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
        times, over = cache(partial(times_of, search.needs, plan, server)), Estimate.over
        usual = times("expected")
    else:
        times, over = cache(partial(separate_times, search, plan, disaggregated(search, plan))), both_ends
        usual = times("expected", "expected")

    def cost(hourly: float) -> Callable[..., float]:
        return lambda *ends: usd_per_million(times(*ends).tokens_per_s, 1, hourly)

    # the plan's own times over those of a server with as many requests as there are on average: 1000 but by chance
    first, token = plan.ttft_ms / usual.first_token, plan.tpot_ms / usual.token
    return PlanRange(
        ttft_ms=over(lambda *ends: first * times(*ends).first_token),
        ttft_p95_ms=first_token_p95(search, plan, server),
        tpot_ms=over(lambda *ends: token * times(*ends).token),
        tokens_per_s_per_user=over(lambda *ends: 1000 / (token * times(*ends).token)),
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


def times_of(needs: Needs, plan: Plan, server: FullServer, end: End) -> PlanTimes:
    """Times where prefill and decode share GPUs."""
    server, running = replace(server, end=end), plan.replicas * plan.batch
    seconds = (server.first_token(plan.batch), server.token(plan.batch), server.step(plan.batch))
    first, token, step = map(number, seconds)
    return PlanTimes(first, token, needs.tokens_by_chance(step) if needs.by_chance else running / step)


def separate_times(search: Search, plan: Plan, expected: Disaggregated, prefill: End, decode: End) -> PlanTimes:
    """Times of separate prefill and decode, each at its own end."""
    sides = {"prefill": replace(expected.prefill, end=prefill), "decode": replace(expected.decode, end=decode)}
    both, users = replace(expected, **sides, link=link_bandwidth(search, plan, prefill)), search.needs.at_once or 1
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
    return deciding_rows(*kind_of(gpu, search.engine.name, plan.weights, ranks, search.cluster))


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
    """Pareto front of tokens a second for a user and for a GPU, the most for a user first. Targets do not count."""
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
    """Pareto front: places of the points that none beats in both, the most tokens for a user first."""
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


# The report


class Sensitivity(Frozen):
    """Best plan for another need."""

    what: Message
    gpu: str | None  # of the best plan; None: no plan meets it
    gpus: int | None
    usd_per_hour: float | None
    sentence: Message


class PlanReport(Frozen):
    """The best plans first; those that miss a target last."""

    model: str
    needs: Needs
    plans: tuple[Plan, ...]
    frontier: tuple[Point, ...]
    sensitivity: tuple[Sensitivity, ...]
    launch: Launch | None  # of one replica of the first plan
    ttft_p95_ms: float | None  # of the first plan: 95 of 100 requests get their first token within this time
    separate: DisaggregatedLaunch | None  # of its workers, where they prefill and decode on separate GPUs
    prices: tuple[Price, ...]  # list prices of the GPUs in the plans, unless stated
    assumptions: tuple[Message, ...]


@budget(SECONDS_OF_PLANS)
def plan_report(
    config: Mapping[str, Any],
    needs: Needs,
    *,
    model: str | None = None,
    served: str | None = None,
    engine: Engine | None = None,
    gpus: Sequence[GPU] | None = None,
    precisions: Sequence[Precision] | None = None,
    most: int = 64,
    cluster: Cluster = USUAL,
    limit: int = 50,
) -> PlanReport:
    """Plans for a config: all GPUs of the catalogue, the checkpoint's own format and vLLM unless said otherwise;
    `served` is the model in the command. Raises ConfigError with a sentence for people."""
    architecture = Architecture.from_config(config)
    engine = engine or ENGINES["vllm"]()
    kinds = list(all_gpus().values()) if gpus is None else list(gpus)
    search = Search(
        architecture,
        engine,
        needs,
        kinds,
        precisions or [engine.precision(native(config))],
        most=most,
        cluster=cluster,
    )
    model = model or architecture.model_type
    return report_of(search, ranked_plans(search, limit), model, served or model)


def report_of(search: Search, plans: Sequence[Plan], model: str, served: str) -> PlanReport:
    """Plans of a search, best first, and what goes with the first of them; `served` is what its command names."""
    named = {plan.gpu for plan in plans} - search.cluster.prices.keys()
    return PlanReport(
        model=model,
        needs=search.needs,
        plans=tuple(plans),
        frontier=tuple(frontier(search)),
        sensitivity=tuple(sensitivity(search)),
        launch=launch(search, plans[0], served) if plans else None,
        ttft_p95_ms=first_token_p95(search, plans[0]) if plans else None,
        separate=separate_launch(search, plans[0], served) if plans else None,
        prices=tuple(price for price in prices() if price.gpu in named),
        assumptions=(*filter(None, (cannot_keep_up(search, plan) for plan in plans[:1])), *assumptions(search)),
    )


def launch(search: Search, plan: Plan, model: str, layout: Layout | None = None) -> Launch | None:
    """Command of one replica of a plan, or of one server in another layout."""
    (precision,) = {p for p in search.precisions if (p.weights, p.kv) == (plan.weights, plan.kv)}
    start = ServerStart.of(model, search.architecture, precision, layout or plan.layout, search.needs.context)
    return search.engine.launch(start)


def separate_launch(search: Search, plan: Plan, model: str) -> DisaggregatedLaunch | None:
    """Commands of a prefill worker, a decode worker, and the router between them."""
    if plan.prefill is None or search.engine.disaggregation is None:
        return None
    prefill, decode = launch(search, plan, model, plan.prefill.layout), launch(search, plan, model)
    if prefill is None or decode is None:
        return None
    workers: dict[ServerRole, int] = {"prefill": plan.prefill.workers, "decode": plan.replicas}
    return search.engine.disaggregation.launched({"prefill": prefill, "decode": decode}, workers)


def assumptions(search: Search) -> Iterable[Message]:
    needs = search.needs
    yield Message(
        "A server is always full: sequences are on average half way through their {n:,} output tokens, and where one "
        "ends a new prompt starts. The time per output token includes the prompts of the others, tokens per second "
        "those of all.",
        n=needs.output,
    )
    if (most := search.architecture.learned_positions) is not None:
        yield Message(
            "Prompts of {prompt:,} tokens and answers of {output:,}: the model has learned positions for {most:,} "
            "tokens and none beyond.",
            prompt=needs.prompt,
            output=needs.output,
            most=most,
        )
    yield Message(
        "GPUs in all: at most {n:,}; nodes have {node:,}, and tensor parallelism stays inside one.",
        n=search.most,
        node=search.cluster.gpus_per_node,
    )
    mixers = (mixer for block in search.architecture.all_blocks for mixer in block.attentions)
    heads = min((mixer.cached_heads for mixer in mixers), default=None)
    if heads is not None and heads < min(search.cluster.gpus_per_node, search.most):
        yield Message(
            "Where tensor parallelism has more ranks than the model has KV heads ({heads:,}), ranks hold copies of the "
            "cache, or share its tokens (decode context parallel, DCP) where the engine does. Prefill context "
            "parallel, which spreads a prompt over further GPUs, is not counted: vLLM calls it under development.",
            heads=heads,
        )
    yield Message(
        "Micro-batches of a pipeline wait for its longest stage, and for a prompt in any of them. No measured server "
        "had more than one stage."
    )
    yield Message(
        "Time to first token is a mean: on a busy server a request waits until the engine looks for requests and "
        "admits it, for the decode step that its prompt is part of, and for a share of the prompts ahead of it."
    )
    if needs.prefill_decode != "together":
        yield Message(
            "Prefill and decode on separate GPUs: decode steps hold no prompts, prefill workers keep up with the "
            "answers, and a prompt's cache crosses the slowest link between them. Both sides have the same GPU and "
            "formats, and neither has pipeline stages. Requests that come at random wait for a prefill worker as in an "
            "M/D/1 queue. Against 182 measured deployments the time per output token is "
            "off by 10 % at the median, that to the first token by 36 %."
        )
    if needs.by_chance:
        yield Message(
            "Requests arrive at random: answers share a server (generalized processor sharing, Cohen 1979), prompts "
            "that arrive during a step are computed in the next, and what the cache has no room for waits in line. "
            "Servers are planned for at most {share:.0%} of their capacity, and for less where a target asks for it.",
            share=UTILIZATION,
        )
    yield Message(
        "Prices are the median of a dated sample of list prices unless stated; those of one GPU span a factor of 4."
    )
    if any(gpu.slice is not None for gpu in search.gpus):
        yield Message("A MIG slice costs its share of the GPU's price: the larger of its shares of compute and memory.")


def sensitivity(search: Search) -> list[Sensitivity]:
    """The best plan, and what it becomes with half and twice the prompt, half and twice the load, targets half as
    strict, and weights or a cache in fewer bits."""
    now = next(iter(ranked_plans(search, 1)), None)
    if now is None:
        return []
    rows = []
    for what, other in changed_searches(search):
        best = None if other is None else next(iter(ranked_plans(other, 1)), None)
        met = best if best is not None and best.meets else None
        figures = {name: met and getattr(met, name) for name in ("gpu", "gpus", "usd_per_hour")}
        rows.append(Sensitivity(what=what, **figures, sentence=sensitivity_sentence(what, now, met)))
    return rows


def changed_searches(search: Search) -> Iterator[tuple[Message, Search | None]]:
    """Changes and the search with each; None where the model has no positions for so many tokens."""
    most = search.architecture.learned_positions or inf
    for what, change in changes(search):
        needs = search.needs.model_copy(update=change)
        yield what, None if needs.context > most else search.with_changes(needs=needs)
    for what, precision in smaller_formats(search):
        yield what, search.with_changes(precisions=[*search.precisions, precision])


def changes(search: Search) -> Iterator[tuple[Message, dict[str, Any]]]:
    needs = search.needs
    for prompt in (needs.prompt // 2 or 1, needs.prompt * 2):
        yield Message("Prompts of {n:,} instead of {now:,} tokens", n=prompt, now=needs.prompt), {"prompt": prompt}
    if needs.requests_per_s is not None:
        for rate in (needs.requests_per_s / 2, needs.requests_per_s * 2):
            what = Message("{rate:g} instead of {now:g} requests a second", rate=rate, now=needs.requests_per_s)
            yield what, {"requests_per_s": rate}
    else:
        now = needs.users or 1
        for users in (now // 2, now * 2):
            if users:
                yield Message("{n:,} instead of {now:,} concurrent users", n=users, now=now), {"users": users}
    if (most := needs.ttft_ms) is not None:
        what = Message("First token after at most {n:g} instead of {now:g} ms", n=2 * most, now=most)
        yield what, {"ttft_ms": 2 * most}
    if (most := needs.tpot_ms) is not None:
        what = Message("Time per output token of at most {n:g} instead of {now:g} ms", n=2 * most, now=most)
        yield what, {"tpot_ms": 2 * most}


def smaller_formats(search: Search) -> Iterator[tuple[Message, Precision]]:
    """Changes of the search to the largest smaller format of the weights, and of the cache."""
    first, engine = search.precisions[0], search.engine
    weights, caches = {p.weights for p in search.precisions}, {p.kv for p in search.precisions}
    if first.weights in ("bf16", "fp16", "fp32") and (new := next(iter(engine.weight_formats), None)) not in weights:
        yield Message("Weights in {format} too", format=new), Precision(weights=new or "bf16", kv=first.kv)
    if caches == {"bf16"} and (kv := next(iter(engine.cache_formats), None)) is not None:
        yield Message("A KV cache in {format} too", format=kv), first.model_copy(update={"kv": kv})


def sensitivity_sentence(what: Message, now: Plan, best: Plan | None) -> Message:
    """Prompts of 4,000 instead of 8,000 tokens: 8 × L40S instead of 16 × L40S."""
    if best is None:
        return Message("{what}: no plan.", what=what)
    values: dict[str, Any] = {"what": what, "gpus": best.gpus, "gpu": find_gpu(best.gpu).name}
    if (best.gpu, best.gpus) == (now.gpu, now.gpus):
        return Message("{what}: the same, {gpus:,} × {gpu}.", **values)
    values |= {"n": now.gpus, "other": find_gpu(now.gpu).name}
    if best.usd_per_hour is None or now.usd_per_hour is None:
        return Message("{what}: {gpus:,} × {gpu} instead of {n:,} × {other}.", **values)
    return Message(
        "{what}: {gpus:,} × {gpu} instead of {n:,} × {other}, USD {usd:,.2f} instead of {now_usd:,.2f} per hour.",
        **values,
        usd=best.usd_per_hour,
        now_usd=now.usd_per_hour,
    )
