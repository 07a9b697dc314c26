"""Training plans: the fastest of each GPU, and what recomputation and ZeRO stages buy."""

from typing import Any

import streamlit as st

from calc import ConfigError
from calc.hardware.custom_gpu import find_gpu
from calc.time.training_plan import TrainingPlan
from pages.parts import words
from pages.parts.inputs import efficiencies
from pages.parts.inputs.control import explain
from pages.parts.labels import CHOICES
from pages.parts.outputs import frame, training_time
from pages.parts.state.query import TRAIN
from pages.parts.state.scenario import places
from pages.parts.state.training_planned import TrainingPlanned, trained
from pages.parts.state.url import change, lead
from pages.parts.words import say


def draw(answer: TrainingPlanned) -> None:
    """All of it."""
    try:
        report = answer.report
    except ConfigError as problem:
        place = places(("planning",)).get(problem.field or "")
        explain(problem, lambda near: change({place: near}) if place else None, "near_run")
        return
    if not report.plans:
        st.error(
            say("**On none of these GPUs any layout fits.** Allow more GPUs, or others."), icon=":material/cancel:"
        )
        frame.assumptions(report.assumptions)
        return
    first = report.plans[0]
    st.markdown(headline(first, answer))
    use(answer, first, "best")
    st.header(say("Plans"), anchor=False)
    st.caption(
        say(
            "The fastest layout, ZeRO stage and recomputation of each GPU, with the largest micro-batch that fits. "
            "Click a row to take it over. From–to is the range in which most of what was measured lies."
        )
    )
    chosen = table(answer, report.plans, "training_plans_table")
    st.header(say("What recomputation and ZeRO stages buy"), anchor=False)
    st.caption(
        say("{gpu}, the same ranks under every stage and recomputation that fits.", gpu=find_gpu(first.gpu).name)
    )
    chosen = table(answer, report.savings, "savings_table") or chosen or first
    speed = answer.speed(chosen)
    efficiencies.draw(answer, speed.gpu, speed.usual_rows(), training=True)
    frame.assumptions(report.assumptions)


def headline(plan: TrainingPlan, answer: TrainingPlanned) -> str:
    """How long, on what, at what price."""
    campaign, cost = plan.campaign, plan.campaign.cost
    values: dict[str, Any] = {
        "gpus": plan.layout.gpus,
        "gpu": find_gpu(plan.gpu).name,
        "days": words.figure(campaign.days.expected),
        "span": words.span(campaign.days),
        "tokens": words.count(int(answer.scenario.planning.run.tokens)),
        "mfu": f"{plan.time.mfu.expected:.0%}",
    }
    if cost is None:
        return say(
            "**{gpus:,} × {gpu}**: {days} days ({span}) for {tokens} tokens, at an MFU of {mfu}; the price is not "
            "known.",
            **values,
        )
    return say(
        "**{gpus:,} × {gpu}**: {days} days ({span}) for {tokens} tokens, at an MFU of {mfu}, for {price} in all.",
        price=words.dollars(cost.expected),
        **values,
    )


def layout(plan: TrainingPlan) -> str:
    """TP 2, DP 8, ZeRO-3."""
    ranks = {name: getattr(plan.layout, name) for name in ("tp", "pp", "vp", "dp", "ep")}
    parts = [f"{name.upper()} {n:,}" for name, n in ranks.items() if n > 1]
    return ", ".join([*parts, *([f"ZeRO-{plan.layout.zero}"] if plan.layout.zero else [])]) or "–"


def row(plan: TrainingPlan) -> dict[str, Any]:
    time, campaign = plan.time, plan.campaign
    return {
        "gpu": find_gpu(plan.gpu).name,
        "layout": layout(plan),
        "recompute": say(CHOICES["recompute"][plan.recompute]),
        "micro": plan.micro_batch,
        "days": campaign.days.expected,
        "days_span": words.span(campaign.days),
        "mfu": time.mfu.expected,
        "rate": time.tokens_per_s_per_gpu.expected,
        "rate_span": words.span(time.tokens_per_s_per_gpu),
        "tflops": time.tflops_per_gpu.expected,
        "cost": campaign.cost and campaign.cost.expected,
        "energy": campaign.energy_mwh and campaign.energy_mwh.expected,
        "step": time.step_s.expected,
        "headroom": plan.headroom_gib,
    }


def table(answer: TrainingPlanned, plans: tuple[TrainingPlan, ...], key: str) -> TrainingPlan | None:
    """A row a plan; the one that is clicked is opened, and returned."""
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    chosen = st.dataframe(
        [row(plan) for plan in plans],
        hide_index=True,
        key=key,
        placeholder="–",
        on_select="rerun",
        selection_mode="single-row",
        column_config={
            "gpu": text(say("GPU"), pinned=True),
            "layout": text(say("Layout"), width=230),
            "recompute": text(say("Activation checkpointing")),
            "micro": number(say("Micro-batch"), width=85),
            "days": number(say("Days"), format="%.1f", width=70),
            "days_span": text(say("from–to"), width=85),
            "mfu": number(say("MFU"), format="percent", width=75),
            "rate": number(say("Tokens/s per GPU"), format="%.0f"),
            "rate_span": text(say("from–to"), width=110),
            "tflops": number(say("TFLOP/s per GPU"), format="%.0f"),
            "cost": number(say("Cost"), format="dollar"),
            "energy": number(say("Energy, MWh"), format="%.1f"),
            "step": number(say("Step, s"), format="%.2f"),
            "headroom": number(say("Headroom, GiB per GPU"), format="%.1f"),
        },
    )
    opened = next((plans[index] for index in chosen.selection.rows if index < len(plans)), None)
    if opened is not None:
        with st.container(border=True):
            st.markdown(headline(opened, answer))
            use(answer, opened, key)
    return opened


def use(answer: TrainingPlanned, plan: TrainingPlan, name: str) -> None:
    """The way to Train, and where the time goes."""
    st.caption(
        say(
            "{layout}; micro-batches of {micro:,} sequences, {accumulation:,} in a step; {headroom} GiB headroom per "
            "GPU.",
            layout=layout(plan),
            micro=plan.micro_batch,
            accumulation=plan.accumulation,
            headroom=words.figure(plan.headroom_gib),
        )
    )
    if st.button(
        say("Use this"),
        key=f"use_{name}",
        icon=":material/arrow_forward:",
        help=say("Its memory on Train, with everything set: GPU, layout, batch and recomputation."),
        on_click=take,
        args=(answer, plan),
    ):
        lead(TRAIN)
    training_time.operations(answer.speed(plan), name)


def take(answer: TrainingPlanned, plan: TrainingPlan) -> None:
    taken = trained(answer.scenario, plan)
    change(gpu=taken.gpu, training=taken.training)
