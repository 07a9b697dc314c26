"""Training plans: the fastest of each GPU, and what recomputation and ZeRO stages buy."""

from typing import Any

import streamlit as st

from calc.hardware import find_gpu
from calc.time import TrainingPlan
from pages.parts import words
from pages.parts.inputs import efficiencies, planning
from pages.parts.labels import CHOICES
from pages.parts.outputs import frame, tables, training_time
from pages.parts.outputs.tables import Column, identifier
from pages.parts.outputs.training_answer import spelled
from pages.parts.screen import alert, caption, heading, leading_button
from pages.parts.state.planned import TrainingPlanned, as_step, training_planned
from pages.parts.state.query import TRAIN, TRAIN_PLAN
from pages.parts.state.url import change
from pages.parts.words import say

DECISIVE = 7  # columns of a table in sight without a click


def headline(plan: TrainingPlan, answer: TrainingPlanned) -> str:
    """Days, GPUs and price."""
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
        price=words.dollars(cost.expected, exact=False),
        **values,
    )


def layout(plan: TrainingPlan) -> str:
    """TP 2, DP 8, ZeRO-3."""
    return spelled(plan.layout) or "–"


def table(answer: TrainingPlanned, plans: tuple[TrainingPlan, ...], key: str, label: str) -> TrainingPlan | None:
    """A row a plan; the one that is clicked is opened, and returned."""

    def named(plan: TrainingPlan) -> str:
        return identifier(f"{plan.gpu} {layout(plan)} {plan.recompute}")

    most = tables.in_sight(f"{key}_columns", DECISIVE)
    for name, plan in tables.pick(key, label, columns(), plans, id=named, most=most).items():
        with st.container(border=True, key=f"card_{name}"):
            st.markdown(headline(plan, answer))
            use(answer, plan, key)
        return plan
    return None


def columns() -> list[Column]:
    """Columns, `DECISIVE` of them first."""
    return [
        Column("GPU", lambda plan: find_gpu(plan.gpu).name),
        Column("Layout", layout),
        Column("Activation checkpointing", lambda plan: say(CHOICES["recompute"][plan.recompute])),
        Column("Micro-batch", "micro_batch", "whole"),
        Column("Days", lambda plan: plan.campaign.days.expected, "one"),
        Column("MFU", lambda plan: plan.time.mfu.expected, "percent"),
        Column("Cost, $", lambda plan: (cost := plan.campaign.cost) and cost.expected, "rate"),
        Column("Days, from–to", lambda plan: words.span(plan.campaign.days)),
        Column("Tokens/s per GPU", lambda plan: plan.time.tokens_per_s_per_gpu.expected, "rate"),
        Column("Tokens/s per GPU, from–to", lambda plan: words.span(plan.time.tokens_per_s_per_gpu)),
        Column("TFLOP/s per GPU", lambda plan: plan.time.tflops_per_gpu.expected, "whole"),
        Column("Energy, MWh", lambda plan: (energy := plan.campaign.energy_mwh) and energy.expected, "one"),
        Column("Step, s", lambda plan: plan.time.step_s.expected, "two"),
        Column("Headroom, GiB per GPU", "headroom_gib", "one"),
    ]


def use(answer: TrainingPlanned, plan: TrainingPlan, name: str) -> None:
    """The way to Train, and where the time goes."""
    caption(
        "{layout}; micro-batches of {micro:,} sequences, {accumulation:,} in a step; {headroom} GiB headroom per GPU.",
        layout=layout(plan),
        micro=plan.micro_batch,
        accumulation=plan.accumulation,
        headroom=words.figure(plan.headroom_gib),
    )
    help_text = say("Its memory on Train with these settings: GPU, layout, batch and recomputation.")
    leading_button(TRAIN, say("Use this"), f"use_{name}", take, answer, plan, help=help_text)
    training_time.operations(answer.speed(plan), name)


def take(answer: TrainingPlanned, plan: TrainingPlan) -> None:
    taken = as_step(answer.scenario, plan)
    change(gpu=taken.gpu, training=taken.training)


with st.spinner(say("Trying every layout, ZeRO stage and recomputation …")):  # for the title says the fastest
    answer = frame.page(TRAIN_PLAN, training_planned, planning.training_run, planning.hardware, planning.prices)
report = answer.report
caption("The run trains all weights; adapters and other losses are weighed on Training step.")
if report.plans:
    first = report.plans[0]
    st.markdown(headline(first, answer))
    use(answer, first, "best")
    heading("Plans")
    caption(
        "The fastest layout, ZeRO stage and recomputation of each GPU, with the largest micro-batch that fits. "
        "Click a row to open it. From–to is the range in which most of what was measured lies."
    )
    chosen = table(answer, report.plans, "training_plans_table", say("Plans"))
    savings = say("What recomputation and ZeRO stages buy")
    st.header(savings, anchor=False)
    caption("{gpu}, the same ranks under every stage and recomputation that fits.", gpu=find_gpu(first.gpu).name)
    speed = answer.speed(table(answer, report.savings, "savings_table", savings) or chosen or first)
    efficiencies.draw(answer, speed.gpu, speed.usual_rows(), training=True)
else:
    alert("error", "cancel", "**No layout fits on any of these GPUs.** Allow more GPUs, or others.")
frame.assumptions(report.assumptions)
