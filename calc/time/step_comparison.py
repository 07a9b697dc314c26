"""Training steps side by side on one kind of GPU: memory by phase, the largest micro-batch and completion, and time."""

from collections.abc import Sequence

from calc.errors import Frozen
from calc.hardware.gpu import GPU
from calc.model.architecture import Architecture
from calc.time.efficiency import Edits
from calc.time.estimate import Estimate
from calc.time.objective_time import objective_speed_of
from calc.time.time_report import training_speed_of
from calc.training import Phase, RolloutPhaseName, TrainingReport, TrainingScenario, TrainingVerdict


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


def compared_place(reports: Sequence[TrainingReport], gpus: Sequence[GPU]) -> int:
    """The GPU on which steps are compared, by its place: the smallest on which all fit, else the largest."""
    places = sorted(range(len(gpus)), key=lambda place: gpus[place].usable_bytes)
    fitting = (place for place in places if all(report.verdicts[place].verdict == "fits" for report in reports))
    return next(fitting, places[-1])


def compared_steps(
    steps: Sequence[tuple[Architecture, TrainingReport]],
    gpus: Sequence[GPU],
    *,
    edits: Edits | None = None,
    node: int = 8,
) -> StepComparison:
    """Each step with its model, weighed on the same GPUs, at least one."""
    place = compared_place([report for _, report in steps], gpus)
    columns = (compared_step(architecture, report, gpus[place], place, edits, node) for architecture, report in steps)
    return StepComparison(gpu=gpus[place].id, steps=tuple(columns))


def compared_step(
    architecture: Architecture, report: TrainingReport, gpu: GPU, place: int, edits: Edits | None, node: int
) -> ComparedStep:
    verdict, objective = report.verdicts[place], report.scenario.objective
    rollout = report.rollouts[place] if report.rollouts else None
    longest = verdict.max_sequence
    return ComparedStep(
        model=report.model,
        scenario=report.scenario,
        phases={name: phase.memory.total for name, phase in report.phases.items()},
        rollout={} if rollout is None else {phase.name: phase.total for phase in rollout.phases},
        peak=report.memory.moment if rollout is None else rollout.peak,
        verdict=verdict,
        max_completion=None if objective is None or longest is None else max(0, longest - objective.prompt),
        step_s=step_seconds(architecture, report, gpu, verdict, edits, node),
    )


def step_seconds(
    architecture: Architecture,
    report: TrainingReport,
    gpu: GPU,
    verdict: TrainingVerdict,
    edits: Edits | None,
    node: int,
) -> Estimate | None:
    """Seconds of a step; None where it does not fit, and with shards in CPU memory."""
    if verdict.verdict in ("does not fit", "does not run") or report.scenario.layout.cpu_offload:
        return None
    if report.scenario.objective is not None:
        return objective_speed_of(architecture, report, gpu, edits=edits, node=node).step_s
    return training_speed_of(architecture, report, gpu, edits=edits, node=node).time().step_s
