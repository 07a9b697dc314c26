"""Training plans for one scenario: searched once, and remembered by the session while what they depend on stays."""

from dataclasses import dataclass, field, replace
from typing import Any

import streamlit as st

from calc.hardware import GPU, find_gpu, usual_gpus
from calc.options import checked
from calc.time import TrainingPlan, TrainingPlanReport, TrainingSpeed, training_plan_report, training_speed
from calc.training import RECIPES, TrainingWorkload
from pages.parts.state.planned import own_gpus
from pages.parts.state.scenario import Scenario, TrainingChoice
from pages.parts.state.weighed import Answer, Model, looked


@dataclass(frozen=True)
class TrainingPlanned(Answer):
    """The answer of the page of training plans."""

    last: list[tuple[Any, TrainingPlanReport]] = field(default_factory=list)
    """The last search, with its inputs."""

    @property
    def report(self) -> TrainingPlanReport:
        """Raises ConfigError where no layout divides what is asked for."""
        of = self.scenario
        key = (of.source, of.overrides, of.gpu, of.planning, of.efficiencies)
        if not self.last or self.last[0][0] != key:
            self.last[:] = [(key, planned_training(of, self.model))]
        return self.last[0][1]

    def speed(self, plan: TrainingPlan) -> TrainingSpeed:
        """Speed of a plan's step."""
        planning = self.scenario.planning
        return training_speed(
            self.architecture,
            workload(self.scenario, plan),
            RECIPES[planning.recipe],
            plan.layout,
            find_gpu(plan.gpu),
            edits=self.scenario.efficiencies.edits,
            node=self.scenario.efficiencies.node,
        )


def planned_training(scenario: Scenario, model: Model) -> TrainingPlanReport:
    """Plans of a training run. Raises ConfigError where no layout divides what is asked for."""
    planning = scenario.planning
    return training_plan_report(
        model.config or {},
        checked(planning.run),
        gpus=candidates(scenario),
        model=model.identifier(scenario),
        work=TrainingWorkload(sequence=planning.sequence, optimizer=planning.optimizer),
        recipe=RECIPES[planning.recipe],
        node=scenario.efficiencies.node,
        prices=planning.prices,
        edits=scenario.efficiencies.edits,
    )


def training_planned(scenario: Scenario) -> TrainingPlanned:
    """The model alone; plans are searched when they are drawn, and kept by the session."""
    return replace(training_planned_anew(scenario), last=st.session_state.setdefault("training_plans", []))


def training_planned_anew(scenario: Scenario) -> TrainingPlanned:
    """Training plans that no session keeps."""
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
