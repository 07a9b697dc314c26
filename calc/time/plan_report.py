"""Everything about one planning question, in one object: what the page draws and the command line prints."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from calc.budget import SECONDS_OF_PLANS, budget
from calc.errors import Frozen, Message
from calc.formats import Precision, native
from calc.hardware.custom_gpu import find_gpu
from calc.hardware.gpu import GPU
from calc.hardware.gpus import gpus as all_gpus
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines import ENGINES
from calc.serving.engines.engine import Engine
from calc.serving.engines.launch import Launch, Separate, ServerRole
from calc.time.arrivals import UTILIZATION
from calc.time.disaggregated import ranked_plans
from calc.time.efficiency import Edits
from calc.time.plan import Needs, Plan, Search
from calc.time.plan_range import Point, cannot_keep_up, first_token_p95, frontier
from calc.time.prices import Price, prices


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
    separate: Separate | None  # of its workers, where they prefill and decode on separate GPUs
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
    node: int = 8,
    prices_stated: Mapping[str, float] | None = None,
    edits: Edits | None = None,
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
        node=node,
        prices=prices_stated or {},
        edited=edits or {},
    )
    model = model or architecture.model_type
    return report_of(search, ranked_plans(search, limit), model, served or model, prices_stated or {})


def report_of(
    search: Search, plans: Sequence[Plan], model: str, served: str, prices_stated: Mapping[str, float]
) -> PlanReport:
    """Plans of a search, best first, and what goes with the first of them; `served` is what its command names."""
    named = {plan.gpu for plan in plans} - prices_stated.keys()
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
    sparse, length = bool(search.architecture.experts), search.needs.context
    return search.engine.launch(model, precision, layout or plan.layout, length, sparse=sparse)


def separate_launch(search: Search, plan: Plan, model: str) -> Separate | None:
    """Commands of a prefill worker, a decode worker, and the router between them."""
    if plan.prefill is None or search.engine.separation is None:
        return None
    prefill, decode = launch(search, plan, model, plan.prefill.layout), launch(search, plan, model)
    if prefill is None or decode is None:
        return None
    workers: dict[ServerRole, int] = {"prefill": plan.prefill.workers, "decode": plan.replicas}
    return search.engine.separation.launched({"prefill": prefill, "decode": decode}, workers)


def assumptions(search: Search) -> Iterable[Message]:
    needs = search.needs
    yield Message(
        "A server is always full: sequences are on average half way through their {n:,} output tokens, and where one "
        "ends a prompt comes. The time per output token holds the prompts of the others, tokens per second all of "
        "them.",
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
        node=search.node,
    )
    mixers = (mixer for block in search.architecture.all_blocks for mixer in block.attentions)
    heads = min((mixer.cached_heads for mixer in mixers), default=None)
    if heads is not None and heads < min(search.node, search.most):
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
        "Time to first token is a mean: with others at work a request waits until the engine looks for requests and "
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
            "Requests come at random: answers share a server (generalized processor sharing, Cohen 1979), prompts that "
            "come during a step are computed in the next. Servers are planned for at most {share:.0%} of what they can "
            "do.",
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
    for what, other in others(search):
        best = None if other is None else next(iter(ranked_plans(other, 1)), None)
        met = best if best is not None and best.meets else None
        figures = {name: met and getattr(met, name) for name in ("gpu", "gpus", "usd_per_hour")}
        rows.append(Sensitivity(what=what, **figures, sentence=sentence(what, now, met)))
    return rows


def others(search: Search) -> Iterator[tuple[Message, Search | None]]:
    """Changes, and the search with each; None where the model has no positions for so many tokens."""
    most = search.architecture.learned_positions or inf
    for what, change in changes(search):
        needs = search.needs.model_copy(update=change)
        yield what, None if needs.context > most else search.varied(needs=needs)
    for what, precision in formats(search):
        yield what, search.varied(precisions=[*search.precisions, precision])


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


def formats(search: Search) -> Iterator[tuple[Message, Precision]]:
    """The largest formats that save memory and may not be used yet."""
    first, engine = search.precisions[0], search.engine
    weights, caches = {p.weights for p in search.precisions}, {p.kv for p in search.precisions}
    if first.weights in ("bf16", "fp16", "fp32") and (new := next(iter(engine.weight_formats), None)) not in weights:
        yield Message("Weights in {format} too", format=new), Precision(weights=new or "bf16", kv=first.kv)
    if caches == {"bf16"} and (kv := next(iter(engine.cache_formats), None)) is not None:
        yield Message("A KV cache in {format} too", format=kv), first.model_copy(update={"kv": kv})


def sentence(what: Message, now: Plan, best: Plan | None) -> Message:
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
