"""Plans: the best in one sentence, all in a table, the chosen one explained, its commands, where the time of a step
goes, and what it trades."""

from collections.abc import Iterable, Sequence
from typing import Any

import streamlit as st

from calc.errors import Message
from calc.hardware import find_gpu
from calc.time import Plan, Point, cannot_keep_up, launch, plan_operations, prices, separate_launch
from pages.parts import words
from pages.parts.inputs import efficiencies, planning
from pages.parts.inputs.control import drawer, several, vendor_and_form
from pages.parts.labels import ORIGINS
from pages.parts.outputs import charts, frame, from_other_pages, paper, plot, share, tables
from pages.parts.outputs.charts import KEY_ABOVE, Figure, figure, hover, small
from pages.parts.outputs.tables import Column, identifier
from pages.parts.screen import alert, caption, heading, leading_button, paragraph, small_table
from pages.parts.state.planned import SHOWN, Planned, Ranked, planned, weigh
from pages.parts.state.query import PLAN, WEIGH
from pages.parts.state.url import change
from pages.parts.words import say

DECISIVE = 9  # columns of the table in sight without a click
AXIS = {"type": "log", "dtick": "D2", "tickformat": charts.TICKS}


def best(answer: Planned) -> None:
    """Details of the best plan that the title leaves out, its bottleneck, and one click to it; or why there is none."""
    answers = answer.plans
    if not answers.plans:
        alert("error", "cancel", why_none(answers.beyond))
        return
    take(answer, answers.best, "best")


def why_none(beyond: Sequence[Plan]) -> Message:
    """Cause of there being no plan: room, or the budget, with the price that would do; the best of those beyond it
    comes first."""
    if not beyond:
        return Message(
            "**Nothing that may be used has room for this model and one request.** Allow more GPUs, other GPU models, "
            "or smaller formats."
        )
    first = beyond[0]
    if first.usd_per_hour is None:
        return Message("**Nothing within the budget.** Plans whose price is not known: {n:,}.", n=len(beyond))
    values = {"usd": words.dollars(first.usd_per_hour), "gpus": words.on_gpus(first.gpu, first.gpus)}
    if first.meets:
        return Message("**Nothing within the budget.** The cheapest plan costs {usd} per hour: {gpus}.", **values)
    return Message(
        "**Nothing within the budget.** What comes closest to the targets costs {usd} per hour: {gpus}.", **values
    )


def hardware(ranked: Ranked) -> str:
    """Number and name of the GPUs, and the layout over them: 8 × H100 SXM 80GB, 2 × (TP 4)."""
    gpus = words.on_gpus(ranked.plan.gpu, ranked.plan.gpus)
    return gpus if ranked.plan.gpus == 1 else f"{gpus}, {layout(ranked.plan)}"


def layout(plan: Plan) -> str:
    """The layout of each copy, or the workers of both sides."""
    return words.copies(plan.layout, plan.replicas) if plan.prefill is None else both(plan)


def both(plan: Plan) -> str:
    """The workers of both sides: 3 × (TP 2) prefill + 2 × (TP 8) decode."""
    assert plan.prefill is not None
    sides = ((plan.prefill.workers, plan.prefill.layout), (plan.replicas, plan.layout))
    prefill, decode = (f"{n:,} × ({words.layout(of)})" if of.gpus > 1 else f"{n:,}" for n, of in sides)
    return say("{prefill} prefill + {decode} decode", prefill=prefill, decode=decode)


def misses(plan: Plan, answer: Planned) -> Iterable[str]:
    """The targets that it does not meet, each with what it does."""
    needs, most = answer.scenario.planning.needs, answer.scenario.planning.max_gpus
    if plan.gpus > most:
        if (late := cannot_keep_up(answer.plans.search, plan)) is not None:
            yield say(late)
        else:
            yield say("GPUs in all: {n:,}, at most {most:,}", n=plan.gpus, most=most)
    if needs.ttft_ms is not None and plan.ttft_ms > needs.ttft_ms:
        yield say(
            "first token after {ttft}, at most {most}",
            ttft=words.duration(plan.ttft_ms),
            most=words.duration(needs.ttft_ms),
        )
    if needs.tpot_ms is not None and plan.tpot_ms > needs.tpot_ms:
        yield say(
            "tokens/s per user: {rate}, at least {least}",
            rate=words.figure(plan.tokens_per_s_per_user),
            least=words.figure(1000 / needs.tpot_ms),
        )


def take(answer: Planned, ranked: Ranked, name: str) -> None:
    """GPUs, targets that it misses, bottleneck, the ranges of the other figures, the way to Weigh, and drawers that are
    computed when opened."""
    plan, spans = ranked.plan, ranked.range
    paragraph("**{hardware}**, weights in {weights}.", hardware=hardware(ranked), weights=plan.weights)
    if not plan.meets:
        missed = words.listed(misses(plan, answer))
        paragraph(":red[**It misses a target**]: {missed}.", missed=missed)
    figures = say(
        "Limited by {bound}. {rate} tokens/s in all; first token after {ttft} on average; requests at once on each "
        "copy: {batch:,} of at most {capacity:,}; headroom per GPU: {headroom} GiB.",
        bound=words.BOUNDS[plan.bound],
        rate=words.ranged(spans.tokens_per_s),
        ttft=words.durations(spans.ttft_ms),
        batch=plan.batch,
        capacity=plan.capacity,
        headroom=words.figure(max(0.0, plan.headroom_gib)),
    )
    evidence = words.evidence(ORIGINS[plan.origin.basis], plan.origin.rows)
    st.caption(words.together([figures, evidence]), help=say(plan.origin.sentence))
    if plan.waits is None and spans.ttft_p95_ms is not None:
        late = words.duration(spans.ttft_p95_ms)
        st.caption(
            say("95% of requests get their first token within {late}.", late=late),
            help=say(
                "A request arrives as an answer ends, and its prompt shares a step with those of the others that "
                "ended in the same one: a binomial number."
            ),
        )
    if plan.waits is not None:
        first, token = plan.waits.ttft_ms, plan.waits.tpot_ms
        caption(
            "First token: half of the requests within {ttft}, 95% within {ttft_late}; a token: {tpot} and "
            "{tpot_late} ms. These servers can answer {most} requests/s; {share:.0%} of that is asked.",
            ttft=words.duration(first.p50),
            ttft_late=words.duration(first.p95),
            tpot=words.figure(token.p50),
            tpot_late=words.figure(token.p95),
            most=words.figure(plan.waits.most_requests_per_s),
            share=plan.waits.utilization,
        )
    help_text = say("Weigh one copy with these settings: GPU, layout, formats, batch and context.")
    leading_button(WEIGH, say("Use this"), f"use_{name}", use, answer, plan, help=help_text)
    with drawer(say("Launch command"), f"launch_{name}", icon=":material/terminal:") as is_open:
        if is_open:
            command(answer, ranked)
    with drawer(say("Where the time goes"), f"operations_{name}", icon=":material/timer:") as is_open:
        if is_open:
            operations(answer, ranked)


def use(answer: Planned, plan: Plan) -> None:
    taken = weigh(answer, plan)
    change(gpu=taken.gpu, serving=taken.serving, overhead=taken.overhead)


def table(answer: Planned) -> Ranked | None:
    """All plans that pass the filters, best first; a click on a row opens it. Returns the plan that is opened, else the
    best."""
    plans = answer.plans
    if not plans.plans:
        return None
    heading("Plans")
    caption(
        "The best layout of each GPU and format: those that meet every target first, by price. Click a row to open "
        "it. Figures are the expected ones; from–to is the range in which most of what was measured lies."
    )
    passing = filtered(plans.plans)
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        most = tables.in_sight("plan_columns", DECISIVE)
        if st.toggle(say("Only those that meet every target"), key="plan_meeting"):
            passing = [index for index in passing if plans.plans[index].meets]

    def named(ranked: Ranked) -> str:
        """Id of a plan's row: its GPU and formats."""
        return identifier(f"{ranked.plan.gpu}_{ranked.plan.weights}_{ranked.plan.kv}")

    shown = (plans.ranked[index] for index in passing[:SHOWN])
    chosen = tables.pick("plans_table", say("Plans"), columns(), shown, id=named, most=most)
    if len(passing) > SHOWN:
        caption("The first {shown:,} of {n:,} plans.", shown=SHOWN, n=len(passing))
    if plans.beyond:
        caption("Left out, for costing more than the budget or having no price: {n:,}.", n=len(plans.beyond))
    for name, opened in chosen.items():
        with st.container(border=True, key=f"card_{name}"):
            take(answer, opened, "chosen")
        return opened
    return plans.best


def filtered(plans: Sequence[Plan]) -> list[int]:
    """The numbers of the plans that pass the filters above the table."""
    gpus = {plan.gpu: find_gpu(plan.gpu) for plan in plans}
    with st.grid(4, min_column_width=150, gap="small", key="plan_filters"):
        passes = vendor_and_form(gpus.values(), "plan_")
        bounds = several(
            say("Limited by"),
            "plan_bounds",
            sorted({plan.bound for plan in plans}),
            lambda bound: say(words.BOUNDS[bound]),
        )
        most = st.number_input(
            say("GPUs, at most"), min_value=1, value=None, step=1, key="plan_most", placeholder=say("any")
        )
    return [
        index
        for index, plan in enumerate(plans)
        if passes(gpus[plan.gpu]) and (not bounds or plan.bound in bounds) and (most is None or plan.gpus <= most)
    ]


def columns() -> list[Column]:
    """Columns of ranked plans, `DECISIVE` of them first."""
    ends = Message("From the low to the high end of the range.")

    return [
        Column("GPU", lambda ranked: ranked.gpu.name),
        Column("GPUs", lambda ranked: ranked.plan.gpus, "whole"),
        Column("Layout", lambda ranked: layout(ranked.plan)),
        Column("Weights", lambda ranked: ranked.plan.weights),
        Column("Tokens/s per user", lambda ranked: ranked.plan.tokens_per_s_per_user, "one"),
        Column("TTFT, ms", lambda ranked: ranked.plan.ttft_ms, "whole"),
        Column("Price per hour", lambda ranked: ranked.plan.usd_per_hour, "dollars"),
        Column(
            "Per M tokens",
            lambda ranked: ranked.plan.usd_per_million_tokens,
            "dollars",
            "US dollars per million output tokens.",
        ),
        Column("Meets", lambda ranked: ranked.plan.meets, "mark", "Whether it meets every target."),
        Column("from–to", lambda ranked: words.span(ranked.range.tokens_per_s_per_user), help=ends),
        Column("Tokens/s in all", lambda ranked: ranked.plan.tokens_per_s, "whole"),
        Column("Headroom, GiB per GPU", lambda ranked: ranked.plan.headroom_gib, "one"),
        Column("Limited by", lambda ranked: say(words.BOUNDS[ranked.plan.bound])),
        Column("KV cache", lambda ranked: ranked.plan.kv),
        Column("TTFT from–to, ms", lambda ranked: words.span(ranked.range.ttft_ms), help=ends),
        Column(
            "Basis of times",
            lambda ranked: say(ORIGINS[ranked.plan.origin.basis]),
            help="Fitted to runs on this GPU or of its generation, or computed.",
        ),
        Column(
            "Per M tokens, from–to",
            lambda ranked: (cost := ranked.range.usd_per_million_tokens) and words.span(cost),
            help=ends,
        ),
    ]


def frontier(answer: Planned, chosen: Ranked | None) -> None:
    """Trade-off between tokens per second of a user and of a GPU."""
    if chosen is None:
        return
    heading("Speed per user against speed per GPU")
    caption(
        "More requests at once make a GPU yield more and each user wait longer. No layout, format or number of "
        "requests that was tried is better in both than a point of the line."
    )
    plan, plans = chosen.plan, answer.plans
    if plan.prefill is not None:
        caption("The line is of servers that prefill and decode on the same GPUs.")
    here = Point(
        gpu=plan.gpu,
        layout=plan.layout,
        weights=plan.weights,
        kv=plan.kv,
        batch=plan.batch,
        tokens_per_s_per_user=plan.tokens_per_s_per_user,
        tokens_per_s_per_gpu=plan.tokens_per_s_per_gpu,
    )
    mine = plans.frontier_of(plan.gpu)
    curve = frontier_chart(plans.frontier, mine, here)
    head = [say("Plan"), say("Tokens/s per user"), say("Tokens/s per GPU")]
    rows = [
        [described(point), point.tokens_per_s_per_user, point.tokens_per_s_per_gpu]
        for point in dict.fromkeys([here, *mine, *plans.frontier])
    ]
    plot.draw("frontier", say("Speed per user against speed per GPU"), curve, rows=(head, rows))


def sensitivity(answer: Planned) -> None:
    """Plans for other needs, searched when this is opened."""
    if not answer.plans.plans:
        return
    with drawer(say("What if"), "sensitivity_drawer", icon=":material/tune:") as is_open:
        if is_open:
            st.markdown("\n".join(f"- {say(change_.sentence)}" for change_ in answer.plans.sensitivity))
            caption("The budget is left out of these.")


def listed_prices(answer: Planned) -> None:
    """The list prices of the GPUs in the plans, each with its date and source."""
    shown = {plan.gpu: find_gpu(plan.gpu).name for plan in answer.plans.plans[:SHOWN]}
    listed = [price for price in prices() if price.gpu in shown]
    if not listed:
        return
    with drawer(say("List prices"), "listed_drawer", icon=":material/payments:") as is_open:
        if is_open:
            heads = [
                Column("GPU", lambda price: shown[price.gpu]),
                Column("Provider", "provider"),
                Column("US dollars per GPU-hour", "usd_per_gpu_hour", "dollars"),
                Column("GPUs at least", "min_gpus", "whole"),
                Column("Read on", lambda price: price.read_on.isoformat()),
                Column("Source", "source", "link"),
            ]
            tables.draw("list_prices", say("List prices"), heads, listed)


def command(answer: Planned, ranked: Ranked) -> None:
    """Commands that start one copy, or a worker of each side and the router between them."""
    model = answer.model.served(answer.scenario)
    separate = separate_launch(answer.plans.search, ranked.plan, model)
    if separate is not None and ranked.plan.prefill is not None:
        caption("Each of {n:,} prefill workers:", n=ranked.plan.prefill.workers)
        share.started(share.of_changed(answer, separate.prefill))
        caption("Each of {n:,} decode workers:", n=ranked.plan.replicas)
        share.started(separate.decode)
        caption("The router that sends requests to them:")
        share.started(separate.router)
        return
    starts = launch(answer.plans.search, ranked.plan, model)
    if starts is None:
        return
    share.started(share.of_changed(answer, starts))
    if ranked.plan.replicas > 1:
        caption("{n:,} copies of it, behind a load balancer.", n=ranked.plan.replicas)


def operations(answer: Planned, ranked: Ranked) -> None:
    """A step of a full copy by its kinds of work, the longest first, and what binds each."""
    rows = plan_operations(answer.plans.search, ranked.plan)
    if ranked.plan.prefill is not None:
        caption("One step of a full decode worker, which runs no prompts.")
    else:
        caption(
            "One step of a full copy, the prompts that are prefilled beside included. Each kind of work takes the "
            "larger of its arithmetic and its memory traffic."
        )
    head = [say("Work"), say("ms"), say("Share"), say("Arithmetic, ms"), say("Memory, ms"), say("Limited by")]
    whole = sum(row.ms for row in rows)
    lines = []
    for row in rows:
        name, bound = say(words.WORK.get(row.what) or words.PARTS[row.what]), say(words.BOUNDS[row.bound])
        whole_ms, compute, memory = map(words.milliseconds, (row.ms, row.compute_ms, row.memory_ms))
        lines.append((name, whole_ms, f"{row.ms / whole:.0%}", compute, memory, bound))
    small_table(head, lines, numbers=4)


def frontier_chart(points: Sequence[Point], mine: Sequence[Point], chosen: Point) -> Figure:
    """Tokens a second of a GPU over those of one user: what all GPUs together allow, what the chosen plan's GPU allows,
    and where the plan stands."""
    name = find_gpu(chosen.gpu).name
    lines = [
        trace(say("Best of all"), points, {"color": charts.theme().text, "width": 1.5, "dash": "dot"}, 5),
        trace(name, mine, {"color": "#0072B2", "width": 2}, 6),
        trace(say("This plan"), [chosen], {"color": "#D55E00"}, 14) | {"mode": "markers"},
    ]
    lines[-1]["marker"] |= {"symbol": "star"}
    return figure(
        lines,
        height=380,
        margin={"l": 8, "r": 8, "t": 40, "b": 52},
        **KEY_ABOVE,
        hovermode="closest",
        xaxis=AXIS | {"title": small(say("Tokens/s per user"))},
        yaxis=AXIS | {"title": small(say("Tokens/s per GPU"))},
    )


def trace(name: str, points: Sequence[Point], look: dict[str, Any], size: int) -> dict[str, Any]:
    return charts.points(
        [point.tokens_per_s_per_user for point in points],
        [point.tokens_per_s_per_gpu for point in points],
        "lines+markers",
        name=name,
        text=[described(point) for point in points],
        line=look,
        marker={"size": size, "color": look["color"]},
        hovertemplate=hover(
            "<b>{what}</b><br>{user} tokens/s per user, {gpu} per GPU",
            what="%{text}",
            user="%{x:,.3~s}",
            gpu="%{y:,.3~s}",
        ),
    )


def described(point: Point) -> str:
    """H100 SXM 80GB, TP 4, fp8, 64 requests."""
    gpu, layout = find_gpu(point.gpu).name, words.layout(point.layout)
    parts = [part for part in (gpu, layout, point.weights) if part]
    return say("{what}, {n:,} requests", what=", ".join(parts), n=point.batch)


answer = frame.page(PLAN, planned, *planning.SECTIONS)
from_other_pages.on_plan(answer)
best(answer)
chosen = table(answer)
frontier(answer, chosen)
sensitivity(answer)
paper.link(answer, "time")
listed_prices(answer)
if chosen is not None:
    efficiencies.draw(answer, chosen.gpu, chosen.efficiencies, training=False)
frame.assumptions(answer.plans.assumptions)
