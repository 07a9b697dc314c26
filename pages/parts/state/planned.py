"""Plans of servers and of training runs for one scenario: searched once, and kept for the session while nothing that
they depend on changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from calc import ConfigError, Overhead, Precision, Workload
from calc.budget import SECONDS_OF_PLANS, budget
from calc.errors import Message
from calc.formats import CacheFormat, WeightFormat
from calc.hardware import GPU, find_gpu
from calc.options import checked
from calc.serving.engines import ENGINES
from calc.time import (
    EfficiencyRow,
    Plan,
    PlanRange,
    Point,
    Search,
    Sensitivity,
    TrainingPlan,
    TrainingPlanReport,
    TrainingSpeed,
    assumptions,
    frontier,
    plan_range,
    ranked_plans,
    rows_of_plan,
    sensitivity,
    training_plan_report,
    training_speed,
)
from calc.training import RECIPES, TrainingScenario, TrainingWorkload
from pages.parts.state.scenario import PlanChoice, Scenario, ServingChoice, TrainingChoice, usual_gpus
from pages.parts.state.session import remembered
from pages.parts.state.weighed import Answer, Model, answering
from presets import gpus

SHOWN = 40
"""Plans of the table."""


@dataclass(frozen=True)
class Ranked:
    """A plan of a search, with its ranges."""

    search: Search
    plan: Plan

    @cached_property
    def range(self) -> PlanRange:
        return plan_range(self.search, self.plan)

    @property
    def efficiencies(self) -> Mapping[str, EfficiencyRow]:
        """The usual ones of its GPU."""
        return rows_of_plan(self.search, self.plan)

    @property
    def gpu(self) -> GPU:
        return find_gpu(self.plan.gpu)


@dataclass
class Plans:
    """Plans of one search."""

    search: Search
    plans: tuple[Plan, ...]  # within the budget, best first
    beyond: tuple[Plan, ...] = ()  # those that cost more than the budget, or whose price is not known

    @cached_property
    def ranked(self) -> tuple[Ranked, ...]:
        return tuple(Ranked(self.search, plan) for plan in self.plans)

    @property
    def best(self) -> Ranked:
        return self.ranked[0]

    @cached_property
    def frontier(self) -> tuple[Point, ...]:
        """Frontier over all GPUs that may be used."""
        return tuple(frontier(self.search))

    def frontier_of(self, gpu: str) -> tuple[Point, ...]:
        """Frontier on one GPU."""
        if gpu not in self.of_gpu:
            self.of_gpu[gpu] = tuple(frontier(self.search.with_changes(gpus=[find_gpu(gpu)])))
        return self.of_gpu[gpu]

    of_gpu: dict[str, tuple[Point, ...]] = field(default_factory=dict)

    @cached_property
    def sensitivity(self) -> Sequence[Sensitivity]:
        """GPUs and prices that other needs would take."""
        return sensitivity(self.search)

    @cached_property
    def assumptions(self) -> tuple[Message, ...]:
        """Assumptions of the plans."""
        return tuple(assumptions(self.search))


@dataclass(frozen=True)
class Planned(Answer):
    """The answer of the page of plans."""

    result: Plans | None = None

    @property
    def plans(self) -> Plans:
        assert self.result is not None
        return self.result


@answering(Planned)
def planned(scenario: Scenario, model: Model) -> Mapping[str, Any]:
    """Plans for the model and the needs of a scenario, which the session remembers."""
    key = (*key_of_plans(scenario), scenario.serving)
    return {"result": remembered("plans", key, lambda: plans_of(scenario, model))}


def key_of_plans(scenario: Scenario) -> tuple[Any, ...]:
    """Key of what is remembered: the parts of a scenario that every plan depends on."""
    return (scenario.source, scenario.overrides, scenario.gpu, scenario.planning, scenario.efficiencies)


@budget(SECONDS_OF_PLANS)
def plans_of(scenario: Scenario, model: Model) -> Plans:
    """All plans within the budget. Raises ConfigError."""
    search, budget = search_of(scenario, model), scenario.planning.budget
    ranked = ranked_plans(search, limit=len(gpus()) * len(search.precisions) + 100)
    within = tuple(plan for plan in ranked if is_affordable(plan, budget))
    return Plans(search, within, tuple(plan for plan in ranked if not is_affordable(plan, budget)))


def search_of(scenario: Scenario, model: Model) -> Search:
    """The search for plans of a scenario. Raises ConfigError."""
    choice = scenario.planning
    engine, needs = scenario.serving.started(), choice.needs
    if needs.users is not None and needs.requests_per_s is not None:
        sentence = Message("users and requests_per_s are two ways to say the same: give one of them.")
        raise ConfigError(sentence, "users")
    if needs.think_s and needs.users is None:
        raise ConfigError(Message("Thinking time needs a number of users: give one."), "users")
    assert model.architecture is not None
    return Search(
        model.architecture,
        engine,
        checked(needs),
        candidates(scenario),
        precisions(model, choice, scenario.serving),
        most=min(choice.max_gpus, scenario.serving.num_gpus or choice.max_gpus),
        cluster=scenario.cluster,
    )


def candidates(scenario: Scenario) -> list[GPU]:
    """The GPUs that may be used: those chosen here, else on Weigh, else the catalogue and the reader's own."""
    chosen = scenario.planning.plan_gpus or chosen_on_weigh(scenario)
    return [find_gpu(name) for name in chosen or (*own_gpus(scenario), *gpus())]


def chosen_on_weigh(scenario: Scenario) -> tuple[str, ...]:
    """The GPUs of Weigh, where they are not the usual ones."""
    usual = set(usual_gpus()) == {name for name in scenario.gpu if name in gpus()}
    return () if usual else scenario.gpu


def own_gpus(scenario: Scenario) -> list[str]:
    """GPUs of the reader's own, on any page."""
    return [name for name in dict.fromkeys((*scenario.gpu, *scenario.planning.plan_gpus)) if name not in gpus()]


def precisions(model: Model, choice: PlanChoice, serving: ServingChoice) -> list[Precision]:
    """Each acceptable pair of formats; where none is chosen here, that of Weigh."""
    weights: tuple[WeightFormat, ...] = choice.weight_formats or (serving.weights or model.native,)
    caches: tuple[CacheFormat | None, ...] = choice.kv_formats or (serving.kv,)
    stored, kind = model.published.stored, ENGINES[serving.engine]
    return [kind.precision(stored, form, kv) for form, kv in product(weights, caches)]


def is_affordable(plan: Plan, budget: float | None) -> bool:
    return budget is None or (plan.usd_per_hour is not None and plan.usd_per_hour <= budget)


def weigh(answer: Planned, plan: Plan) -> Scenario:
    """One replica of a plan as Weigh has it."""
    scenario, model = answer.scenario, answer.model
    engine, needs = answer.plans.search.engine, answer.plans.search.needs
    serving = ServingChoice(
        workload=Workload(batch=plan.batch, context=needs.context, generated=needs.output),
        **model.chosen(plan.weights, plan.kv, engine.name),
        layout=plan.layout,
        engine=engine.name,
        options=engine.options,
    )
    return scenario.model_copy(update={"gpu": (plan.gpu,), "serving": serving, "overhead": Overhead()})


@dataclass(frozen=True)
class TrainingPlanned(Answer):
    """The answer of the page of training plans."""

    result: TrainingPlanReport | None = None

    @property
    def report(self) -> TrainingPlanReport:
        assert self.result is not None
        return self.result

    def speed(self, plan: TrainingPlan) -> TrainingSpeed:
        """Speed of a plan's step."""
        work, recipe = workload_of(self.scenario, plan), RECIPES[self.scenario.planning.recipe]
        step = TrainingScenario(workload=work, recipe=recipe, layout=plan.layout)
        return training_speed(self.architecture, step, find_gpu(plan.gpu), self.scenario.cluster)


@answering(TrainingPlanned)
def training_planned(scenario: Scenario, model: Model) -> Mapping[str, Any]:
    """Plans of a training run of the model, which the session remembers."""
    planning = scenario.planning

    def search() -> TrainingPlanReport:
        return training_plan_report(
            model.config or {},
            checked(planning.run),
            gpus=training_candidates(scenario),
            model=model.identifier(scenario),
            work=TrainingWorkload(sequence=planning.sequence, optimizer=planning.optimizer),
            recipe=RECIPES[planning.recipe],
            cluster=scenario.cluster,
        )

    return {"result": remembered("training_plans", key_of_plans(scenario), search)}


def training_candidates(scenario: Scenario) -> list[GPU]:
    """The GPUs that may be used: those chosen, or the usual ones and the reader's own."""
    chosen = scenario.planning.plan_gpus
    usual = (*own_gpus(scenario), *usual_gpus())
    return [find_gpu(name) for name in chosen or dict.fromkeys(usual)]


def as_step(scenario: Scenario, plan: TrainingPlan) -> Scenario:
    """A plan as Train has it."""
    work, recipe = workload_of(scenario, plan), scenario.planning.recipe
    training = TrainingChoice(workload=work, recipe=recipe, layout=plan.layout)
    return scenario.model_copy(update={"gpu": (plan.gpu,), "training": training})


def workload_of(scenario: Scenario, plan: TrainingPlan) -> TrainingWorkload:
    """The step of a plan."""
    planning = scenario.planning
    return TrainingWorkload(
        micro_batch=plan.micro_batch,
        sequence=planning.sequence,
        accumulation=plan.accumulation,
        optimizer=planning.optimizer,
        recompute=plan.recompute,
    )
