"""What other needs, or formats, than those asked for would take."""

from collections.abc import Iterator
from math import inf
from typing import Any

from calc.errors import Frozen, Message
from calc.formats import Precision
from calc.hardware.custom_gpu import find_gpu
from calc.time.disaggregated_plan import ranked_plans
from calc.time.plan import Plan, Search


class Sensitivity(Frozen):
    """What another need would change."""

    what: Message
    gpu: str | None  # of the best plan; None: no plan meets it
    gpus: int | None
    usd_per_hour: float | None
    sentence: Message


def sensitivity(search: Search) -> list[Sensitivity]:
    """The best plan, and what it becomes with half and twice the prompt, half and twice the load, targets half as
    strict, and weights or a cache in fewer bits."""
    now = next(iter(ranked_plans(search, 1)), None)
    if now is None:
        return []
    return [
        row(what, now, None if other is None else next(iter(ranked_plans(other, 1)), None))
        for what, other in others(search)
    ]


def others(search: Search) -> Iterator[tuple[Message, Search | None]]:
    """What is changed, and the search with it; None where the model has no positions for so many tokens."""
    most = search.architecture.learned_positions or inf
    for what, change in changes(search):
        needs = search.needs.model_copy(update=change)
        yield what, None if needs.context > most else search.varied(needs)
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


def row(what: Message, now: Plan, best: Plan | None) -> Sensitivity:
    met = best if best is not None and best.meets else None
    return Sensitivity(
        what=what,
        gpu=met and met.gpu,
        gpus=met and met.gpus,
        usd_per_hour=None if met is None else met.usd_per_hour,
        sentence=sentence(what, now, met),
    )


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
