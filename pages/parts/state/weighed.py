"""One calculation a run: the model on screen is read once, weighed once, and what comes of it is handed to everything
that draws."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Generic, TypeVar

from calc import GPU, RECIPES, Architecture, ConfigError, Layout, Precision, Range, Report, TrainingReport
from calc.design import Slopes
from calc.errors import Frozen, Message
from calc.families import override, read_with_settings
from calc.formats import CacheFormat, WeightFormat
from calc.hardware import OverheadItem, find_gpu
from calc.options import checked
from calc.quantizing import QuantizingReport, quantizing_report
from calc.serving import VERDICT_WORDS, Lever, Serving, Verdict, laid_out_report, levers
from calc.serving.derivation import Derivations
from calc.serving.engines import ENGINES
from calc.serving.engines.launch import LOCAL
from calc.time import (
    ObjectiveSpeed,
    Reply,
    TrainingSpeed,
    TrainingTime,
    reply,
    trainable_gpus,
    training_speed_of,
    user_rate,
)
from calc.training import (
    CombinedLever,
    RolloutReport,
    SmallerSteps,
    Training,
    TrainingScenario,
    TrainingVerdict,
    laid_out_step,
    more_gpus,
    over_gpus,
    usual_base,
)
from pages.parts import words
from pages.parts.state.published import Published, published
from pages.parts.state.scenario import Scenario, ServingChoice
from pages.parts.state.session import remembered
from presets import gpus


@dataclass(frozen=True)
class Model:
    """The model on screen, with the reader's changes."""

    published: Published
    config: Mapping[str, Any] | None = None
    architecture: Architecture | None = None
    settings: Mapping[str, Any] | None = None
    """The config fields that decide a size, with their values now."""
    error: ConfigError | None = None

    @property
    def name(self) -> str:
        name = self.published.name
        return words.say(name) if isinstance(name, Message) else name

    def identifier(self, scenario: Scenario) -> str:
        """Name in reports: its id, or in English that it was pasted."""
        return scenario.source.model if scenario.source.pasted is None else str(self.published.name)

    def served(self, scenario: Scenario) -> str:
        """Name in a command that starts it: its id, or a folder of the reader's where no checkpoint is like it."""
        own = scenario.source.pasted is not None or scenario.overrides
        return LOCAL if own else scenario.source.model

    @property
    def native(self) -> WeightFormat:
        """The format in which the checkpoint stores its weights."""
        return self.published.stored.name

    def precision(self, choice: ServingChoice) -> Precision:
        """Storage of weights and cache as the engine loads the checkpoint, unless the reader chose another."""
        return ENGINES[choice.engine].precision(self.published.stored, choice.weights, choice.kv)

    def native_cache(self, engine: str) -> CacheFormat:
        """The format of the cache where the reader chose none."""
        return ENGINES[engine].precision(self.published.stored).kv

    def chosen(self, weights: WeightFormat, kv: CacheFormat, engine: str) -> dict[str, Any]:
        """Formats as a reader's choice: None where an engine would load the checkpoint so."""
        own = None if weights == self.native else weights
        return {"weights": own, "kv": None if kv == self.native_cache(engine) else kv}


@dataclass(frozen=True)
class Answer:
    """The answer that a page draws. Where there is none, `error` says why."""

    scenario: Scenario
    model: Model
    error: ConfigError | None = None

    @property
    def architecture(self) -> Architecture:
        assert self.model.architecture is not None
        return self.model.architecture

    @property
    def download(self) -> Frozen | None:
        """The report that a reader may download."""
        return None

    @property
    def layout(self) -> Layout | None:
        """The layout over GPUs, where one is searched for."""
        return None

    @property
    def usual_overhead(self) -> Mapping[OverheadItem, Range]:
        """The ranges of what no formula closes, where none are stated."""
        choice = self.scenario.serving
        return ENGINES[choice.engine](choice.options).overhead(choice.layout.gpus)

    @cached_property
    def slopes(self) -> Slopes | None:
        """Cost of one step of each control for the served model; None where it makes no sense."""
        model, choice = self.model, self.scenario.serving
        if model.config is None or model.architecture is None or model.error is not None:
            return None
        try:
            precision = model.precision(choice)
            return Slopes(model.config, model.architecture, choice.started(), precision, checked(choice.workload))
        except ConfigError:
            return None


ReportT = TypeVar("ReportT", bound=Frozen)


@dataclass(frozen=True)
class Reported(Answer, Generic[ReportT]):
    """An answer with a report."""

    result: ReportT | None = None

    @property
    def report(self) -> ReportT:
        assert self.result is not None
        return self.result

    @property
    def download(self) -> Frozen | None:
        return self.result


@dataclass(frozen=True)
class Weighed(Reported[Report]):
    """The answer about serving."""

    laid_out: Serving | None = None

    @property
    def layout(self) -> Layout | None:
        return None if self.result is None else self.result.scenario.layout

    @property
    def serving(self) -> Serving:
        """The calculation behind the report."""
        assert self.laid_out is not None
        return self.laid_out

    @property
    def focus(self) -> Verdict | None:
        """The GPU that the answer is about: the only one; of several the smallest that fits, else the nearest to it."""
        return in_focus(self.report.verdicts)

    @cached_property
    def levers(self) -> tuple[Lever, ...]:
        """Changes that would make the model fit on the GPU in focus."""
        if self.focus is None:
            return ()
        checkpoint = self.model.published.stored
        return levers(find_gpu(self.focus.gpu), self.serving, self.report.scenario.workload, checkpoint)

    @cached_property
    def speed(self) -> Reply | None:
        """Speed on the GPU in focus; None where the model does not serve there."""
        focus = self.focus
        if focus is None or not focus.serves:
            return None
        return reply(self.serving, find_gpu(focus.gpu), self.report.scenario.workload, self.scenario.cluster)

    def user_rate(self, verdict: Verdict) -> float | None:
        """Tokens per second of each user on the GPU of a verdict; None where it does not serve there."""
        if not verdict.serves:
            return None
        return user_rate(self.serving, find_gpu(verdict.gpu), self.report.scenario.workload, self.scenario.cluster)

    @property
    def usual_overhead(self) -> Mapping[OverheadItem, Range]:
        """Overhead on the report's GPU; on any where there is no report."""
        if self.laid_out is None:
            return super().usual_overhead
        return self.laid_out.on(self.scenario.first_gpu(), self.report.scenario.workload).usual_overhead

    def derivations(self, gpu: GPU | None = None) -> Derivations:
        """Derivations of the figures on a GPU, by default the report's."""
        return Derivations(self.serving.on(gpu or self.scenario.first_gpu(), self.report.scenario.workload))


@dataclass(frozen=True)
class Trained(Reported[TrainingReport]):
    """The answer about a training step."""

    step: Training | None = None

    @property
    def training(self) -> Training:
        """The training step behind the report."""
        assert self.step is not None
        return self.step

    @property
    def focus(self) -> TrainingVerdict | None:
        """The GPU that the answer is about."""
        return in_focus(self.report.verdicts)

    @property
    def rollout(self) -> RolloutReport | None:
        """The step with generation on that GPU; None where no engine is counted."""
        rollouts = self.report.rollouts
        return next((report for report in rollouts if self.focus is not None and report.gpu == self.focus.gpu), None)

    @cached_property
    def speed(self) -> TrainingSpeed | None:
        """Speed of a step on that GPU; None where it does not fit, and where its time is not known: of TRL's losses,
        and with shards in CPU memory."""
        focus, step = self.focus, self.report.scenario
        if focus is None or focus.verdict == "does not fit" or step.objective is not None or step.layout.cpu_offload:
            return None
        return training_speed_of(self.architecture, self.report, find_gpu(focus.gpu), self.scenario.cluster)

    @cached_property
    def pace(self) -> TrainingTime | None:
        return None if self.speed is None else self.speed.time()

    @cached_property
    def passes(self) -> ObjectiveSpeed | None:
        """Speed of a step with a loss of TRL on the GPU in focus; None where it does not fit, or for other losses."""
        focus = self.focus
        if focus is None or focus.verdict in ("does not fit", "does not run") or self.training.objective is None:
            return None
        colocation, cluster = self.report.scenario.colocation, self.scenario.cluster
        return ObjectiveSpeed(self.training, find_gpu(focus.gpu), colocation, cluster)

    @cached_property
    def smaller(self) -> SmallerSteps | None:
        """Changes that make the step smaller on the GPU in focus, with its engine; None where no GPU is chosen."""
        if self.focus is None:
            return None
        return SmallerSteps(find_gpu(self.focus.gpu), self.training, colocation=self.report.scenario.colocation)

    @cached_property
    def able(self) -> list[GPU]:
        """The GPUs of the catalogue on which the step fits as it is laid out, the smallest first; none next to an
        engine."""
        return [] if self.report.rollouts else trainable_gpus(gpus().values(), self.training)

    def over_gpus(self, gpu: str, count: int) -> CombinedLever | None:
        """Changes for a number of GPUs of a kind; None where no change will do, and next to an engine."""
        return None if self.report.rollouts else over_gpus(find_gpu(gpu), self.training, count)

    def more_gpus(self, verdict: TrainingVerdict) -> CombinedLever | None:
        """The fewest GPUs of a kind on which the step fits, with the changes that needs; None next to an engine."""
        return None if self.report.rollouts else more_gpus(find_gpu(verdict.gpu), self.training)


Judged = TypeVar("Judged", Verdict, TrainingVerdict)


def in_focus(verdicts: Sequence[Judged]) -> Judged | None:
    """The only one; of several the smallest GPU that fits, else the nearest to it: by its verdict, then by headroom."""
    fits = [verdict for verdict in verdicts if verdict.verdict == "fits"]
    if fits:
        return min(fits, key=lambda verdict: verdict.usable)
    return max(verdicts, key=lambda verdict: (-VERDICT_WORDS.index(verdict.verdict), verdict.spare), default=None)


def read(scenario: Scenario) -> Model:
    """The model of a scenario as published, with the reader's changes; the newest is remembered."""
    about, overrides = published(scenario.source), scenario.overrides

    def change() -> Model:
        if about.config is None or about.settings is None or not overrides:
            return Model(about, about.config, about.architecture, about.settings, about.error)
        try:
            config = override(about.config, overrides)
            return Model(about, config, *read_with_settings(config))
        except ConfigError as problem:
            return Model(about, settings={**about.settings, **overrides}, error=problem)

    return remembered("model", (about, overrides), change)


def looked(scenario: Scenario) -> Answer:
    """The model alone."""
    model = read(scenario)
    return Answer(scenario, model, model.error)


AnswerT = TypeVar("AnswerT", bound=Answer)


Compute = Callable[[Scenario, Model], Mapping[str, Any]]
"""Fields of an answer for a scenario and its model. Raises ConfigError."""


def answering(kind: Callable[..., AnswerT]) -> Callable[[Compute], Callable[[Scenario], AnswerT]]:
    """Makes what a function computes an answer of this kind; where the model or a ConfigError stands in its way, one
    with that."""

    def decorate(compute: Compute) -> Callable[[Scenario], AnswerT]:
        @wraps(compute)
        def calculate(scenario: Scenario) -> AnswerT:
            model = read(scenario)
            if model.error is not None or model.config is None:
                return kind(scenario, model, model.error)
            try:
                return kind(scenario, model, **compute(scenario, model))
            except ConfigError as problem:
                return kind(scenario, model, problem)

        return calculate

    return decorate


@answering(Answer)
def attended(scenario: Scenario, model: Model) -> Mapping[str, Any]:
    """The model alone, under a workload and an engine's flags."""
    checked(scenario.serving.workload)
    scenario.serving.started()
    return {}


@answering(Weighed)
def weighed(scenario: Scenario, model: Model) -> Mapping[str, Any]:
    """The model, served."""
    choice = scenario.serving
    serving, result = laid_out_report(
        model.config or {},
        architecture=model.architecture,
        model=model.identifier(scenario),
        workload=checked(choice.workload),
        engine=choice.started(),
        precision=model.precision(choice),
        layout=choice.by_hand,
        num_gpus=choice.num_gpus,
        overhead=scenario.overhead,
        gpus=scenario.chosen_gpus(),
    )
    return {"result": result, "laid_out": serving}


@answering(Trained)
def trained(scenario: Scenario, model: Model) -> Mapping[str, Any]:
    """A training step of the model."""
    choice = scenario.training
    question = TrainingScenario(
        workload=checked(choice.workload),
        recipe=RECIPES[choice.recipe],
        frozen=Precision(weights=choice.weights) if choice.weights else usual_base(choice.workload.method),
        layout=checked(choice.layout),
        overhead=scenario.overhead,
        objective=choice.scored,
        colocation=choice.generating,
    )
    step, result = laid_out_step(
        model.config or {},
        question,
        architecture=model.architecture,
        model=model.identifier(scenario),
        gpus=scenario.chosen_gpus(),
    )
    return {"result": result, "step": step}


Quantized = Reported[QuantizingReport]
"""The answer about a conversion."""


@answering(Quantized)
def quantized(scenario: Scenario, model: Model) -> Mapping[str, Any]:
    """The conversion of the model."""
    choice, name = checked(scenario.quantizing), model.identifier(scenario)
    return {"result": quantizing_report(model.config or {}, choice, gpus=scenario.chosen_gpus(), model=name)}
