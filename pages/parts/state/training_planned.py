"""Training plans for one scenario: searched once, and remembered by the session while what they depend on stays."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import streamlit as st

from calc.hardware.custom_gpu import find_gpu
from calc.hardware.gpu import GPU
from calc.hardware.gpus import usual_gpus
from calc.options import checked
from calc.time.training_plan import TrainingPlan, TrainingPlanReport, training_plan_report
from calc.time.training_time import TrainingSpeed, training_speed
from calc.training.recipe import RECIPES
from calc.training.workload import TrainingWorkload
from pages.parts.state.planned import own_gpus
from pages.parts.state.scenario import Scenario, TrainingChoice
from pages.parts.state.weighed import Answer, looked


@dataclass(frozen=True)
class TrainingPlanned(Answer):
    """What the page of training plans draws."""

    @cached_property
    def report(self) -> TrainingPlanReport:
        """Raises ConfigError where no layout divides what is asked for."""
        planning = self.scenario.planning
        key = (self.scenario.source, self.scenario.overrides, self.scenario.gpu, planning, self.scenario.efficiencies)
        last: tuple[Any, TrainingPlanReport] | None = st.session_state.get("training_plans")
        if last is not None and last[0] == key:
            return last[1]
        plan_report = training_plan_report(
            self.model.config or {},
            checked(planning.run),
            gpus=candidates(self.scenario),
            work=TrainingWorkload(sequence=planning.sequence, optimizer=planning.optimizer),
            recipe=RECIPES[planning.recipe],
            node=planning.node,
            prices=planning.prices,
            edits=self.scenario.efficiencies.edits,
        )
        st.session_state.training_plans = key, plan_report
        return plan_report

    def speed(self, plan: TrainingPlan) -> TrainingSpeed:
        """What a plan was read off."""
        planning = self.scenario.planning
        return training_speed(
            self.architecture,
            workload(self.scenario, plan),
            RECIPES[planning.recipe],
            plan.layout,
            find_gpu(plan.gpu),
            edits=self.scenario.efficiencies.edits,
            node=planning.node,
        )


def training_planned(scenario: Scenario) -> TrainingPlanned:
    """The model alone; plans are searched when they are drawn."""
    answer = looked(scenario)
    return TrainingPlanned(scenario, answer.model, answer.error)


def candidates(scenario: Scenario) -> list[GPU]:
    """The GPUs that may be used: those chosen, or the usual ones and the reader's own."""
    chosen = scenario.planning.plan_gpus
    usual = (*own_gpus(scenario), *(gpu.id for gpu in usual_gpus()))
    return [find_gpu(name) for name in chosen or dict.fromkeys(usual)]


def trained(scenario: Scenario, plan: TrainingPlan) -> Scenario:
    """A plan as Train has it."""
    work, recipe = workload(scenario, plan), scenario.planning.recipe
    training = TrainingChoice(workload=work, recipe=recipe, layout=plan.layout)
    return scenario.model_copy(update={"gpu": (plan.gpu,), "training": training})


def workload(scenario: Scenario, plan: TrainingPlan) -> TrainingWorkload:
    """The step of a plan."""
    planning = scenario.planning
    return TrainingWorkload(
        micro_batch=plan.micro_batch,
        sequence=planning.sequence,
        accumulation=plan.accumulation,
        optimizer=planning.optimizer,
        recompute=plan.recompute,
    )
