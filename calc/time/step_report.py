"""Report of a training step's time on one kind of GPU; and steps side by side on one: memory by phase, the largest
micro-batch and completion, and time."""

from collections.abc import Sequence

from calc.errors import ConfigError, Frozen, Message
from calc.hardware.gpu import GPU
from calc.model.architecture import Architecture
from calc.time.cluster import USUAL, Cluster
from calc.time.estimate import Estimate
from calc.time.objective import ObjectiveSpeed, ObjectiveTime
from calc.time.training import StepOperation, TrainingSpeed, TrainingTime, step_operations, training_speed
from calc.training import Phase, RolloutPhaseName, Training, TrainingReport, TrainingScenario, TrainingVerdict


class TrainingTimeReport(TrainingTime):
    """Speed of one kind of GPU in training."""

    gpu: str
    operations: tuple[StepOperation, ...]


class ComparedStep(Frozen):
    """A step on a kind of GPU. Bytes are of one GPU, overhead included."""

    model: str
    scenario: TrainingScenario
    phases: dict[Phase, int]  # of the trainer alone, in their order
    rollout: dict[RolloutPhaseName, int]  # of trainer and engine; empty: no engine is counted
    peak: Phase | RolloutPhaseName
    verdict: TrainingVerdict  # with its peak, the largest micro-batch and the longest sequence
    max_completion: int | None  # tokens; None: memory sets no limit, or the loss has no prompt
    step_s: Estimate | None  # None: it does not fit, or its time is not known


class StepComparison(Frozen):
    """Steps side by side, in their order."""

    gpu: str
    steps: tuple[ComparedStep, ...]


def training_speed_of(
    architecture: Architecture, report: TrainingReport, gpu: GPU, cluster: Cluster = USUAL
) -> TrainingSpeed:
    """The step that a report weighs, on a GPU. Raises ConfigError where shards wait in CPU memory."""
    scenario = report.scenario
    if scenario.layout.cpu_offload:
        raise ConfigError(Message("The time of a step with cpu_offload is not computed."), "cpu_offload", [False])
    trained = report.trained_parameters / report.parameters.total
    return training_speed(architecture, scenario, gpu, cluster, trained=trained)


def step_time_of(
    architecture: Architecture,
    report: TrainingReport,
    gpu: GPU,
    cluster: Cluster = USUAL,
    *,
    divided: bool = True,
) -> TrainingTimeReport | ObjectiveTime:
    """Time of a report's training step, of a loss of TRL's with its phases; `divided`: and with other divisions of the
    same GPUs."""
    scenario = report.scenario
    if scenario.objective is not None:
        speed = ObjectiveSpeed(Training(architecture, scenario), gpu, scenario.colocation, cluster)
        return speed.time(divided=divided)
    plain = training_speed_of(architecture, report, gpu, cluster)
    return TrainingTimeReport(**dict(plain.time()), gpu=gpu.id, operations=step_operations(plain))


def compared_place(reports: Sequence[TrainingReport], gpus: Sequence[GPU]) -> int:
    """The GPU on which steps are compared, by its place: the smallest on which all fit, else the largest."""
    places = sorted(range(len(gpus)), key=lambda place: gpus[place].usable_bytes)
    fitting = (place for place in places if all(report.verdicts[place].verdict == "fits" for report in reports))
    return next(fitting, places[-1])


def compared_steps(
    steps: Sequence[tuple[Architecture, TrainingReport]],
    gpus: Sequence[GPU],
    cluster: Cluster = USUAL,
) -> StepComparison:
    """Each step with its model, weighed on the same GPUs, at least one."""
    place = compared_place([report for _, report in steps], gpus)
    gpu = gpus[place]

    def compared(architecture: Architecture, report: TrainingReport) -> ComparedStep:
        verdict, scenario, longest = report.verdicts[place], report.scenario, report.verdicts[place].max_sequence
        rollout = report.rollouts[place] if report.rollouts else None
        objective, step_s = scenario.objective, None
        if verdict.verdict not in ("does not fit", "does not run") and not scenario.layout.cpu_offload:
            step_s = step_time_of(architecture, report, gpu, cluster, divided=False).step_s
        return ComparedStep(
            model=report.model,
            scenario=scenario,
            phases={name: phase.memory.total for name, phase in report.phases.items()},
            rollout={} if rollout is None else {phase.name: phase.total for phase in rollout.phases},
            peak=report.memory.moment if rollout is None else rollout.peak,
            verdict=verdict,
            max_completion=None if objective is None or longest is None else max(0, longest - objective.prompt),
            step_s=step_s,
        )

    return StepComparison(gpu=gpu.id, steps=tuple(compared(*step) for step in steps))
