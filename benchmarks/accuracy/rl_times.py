"""python -m benchmarks.accuracy.rl_times: stated times of whole GRPO steps, next to ours.

NeMo RL's performance summary states steps with the mean length of their sequences, their batches and layouts; what it
leaves out is in the recipe of the same name (docs/about/performance-summary.md and
examples/configs/recipes/llm/performance, github.com/NVIDIA-NeMo/RL, releases 0.5.0 and 0.6.0). Of these, tests/data
has the ones whose training is divided over data and experts alone, as losses are here. A step generates 64 x 32
completions of at most 4,096 tokens with their prompts, makes log-probabilities of policy and reference, and updates
four times. The prompts' share of the mean length is not stated; so few tokens are assumed. Rows with GPUs of the
engine's own are one step off policy: while a batch is trained on, the next is generated.
"""

import json
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from benchmarks.accuracy.steps import DATA, row_of, table_head
from calc import RECIPES, Architecture, Objective, TrainingLayout, TrainingWorkload
from calc.hardware.gpus import gpus
from calc.time.estimate import End, Estimate
from calc.time.objective import ObjectiveSpeed, TimedPhase, remainder
from calc.training import Colocation, Training, TrainingScenario
from presets import models

FILE = DATA / "rl_times.json"
PROMPT, MOST = 150, 4096
GENERATED, UPDATED, GROUP = 2048, 512, 32
UPDATES = GENERATED // UPDATED
"""Sequences that are generated at once, of an update, of a prompt; and updates on one generation."""


class StepTime(NamedTuple):
    """A stated step next to ours, in seconds."""

    row: dict[str, Any]
    step_s: Estimate
    phases: dict[TimedPhase, float]  # expected
    within_phases_s: float  # expected

    @property
    def error(self) -> float:
        """Relative error of the expected time."""
        return self.step_s.expected / float(self.row["step_s"]) - 1

    @property
    def is_inside(self) -> bool:
        """Whether the stated time lies in our range."""
        return bool(self.step_s.low <= self.row["step_s"] <= self.step_s.high)


def speed_of(row: dict[str, Any]) -> ObjectiveSpeed:
    """A row's update with its share of the generation."""
    objective = Objective(
        method="grpo",
        trl="1.12",
        log_probs="whole",
        prompt=PROMPT,
        completion=MOST - PROMPT,
        mean_completion=row["mean_tokens"] - PROMPT,
        num_generations=GROUP,
        generation_batch=GENERATED,
        beta=0.01,
        reference="model",
        engine_generates=True,
    )
    work = TrainingWorkload(
        micro_batch=1,
        accumulation=UPDATED // row["gpus"],
        sequence=objective.sequence,
        recompute="full" if row["checkpointing"] else "none",
    )
    layout = TrainingLayout(dp=row["gpus"], ep=row["expert_parallel"], zero=1)
    architecture = Architecture.from_config(models()[row["model"]].config)
    scenario = TrainingScenario(workload=work, recipe=RECIPES["megatron"], layout=layout, objective=objective)
    training = Training(architecture, scenario)
    if row["engine_gpus"]:
        own = {"rollout": "server", "engine_share": 0.8, "rollout_dp": row["engine_gpus"] // row["engine_tp"]}
    else:  # weights and states go to the host (`megatron_policy_worker.py`, `offload_after_refit`)
        own = {"engine_share": 0.6, "sleep_level": 1, "offload_weights": True, "offload_optimizer": True}
    engine = Colocation(rollout_tp=row["engine_tp"], **own)
    return ObjectiveSpeed(training, gpus()[row["gpu"]], engine)


def step_times() -> Iterator[StepTime]:
    """All of them, with the four updates of a stated step."""
    for row in json.loads(FILE.read_text(encoding="utf-8")):
        speed = speed_of(row)
        times = Estimate.over(partial(seconds_of, speed))
        yield StepTime(row, times, phases_of(speed, "expected"), within_phases(speed, "expected"))


def phases_of(speed: ObjectiveSpeed, end: End) -> dict[TimedPhase, float]:
    """Seconds of each phase of a stated step."""
    return {name: UPDATES * seconds for name, seconds in speed.seconds(end).items()}


def seconds_of(speed: ObjectiveSpeed, end: End) -> float:
    """Seconds of a stated step: of its phases and what is in none of them."""
    return (1 + remainder(end)) * within_phases(speed, end)


def within_phases(speed: ObjectiveSpeed, end: End) -> float:
    """Seconds of the phases of a stated step: one after the other, or training next to the generation for the step that
    follows."""
    phases = phases_of(speed, end)
    del phases["remainder"]
    assert speed.engine is not None
    if speed.engine.colocated:
        return sum(phases.values())
    generated, handed_over = phases.pop("rollout"), phases.pop("weight_sync")
    return handed_over + max(generated, sum(phases.values()))


def written() -> str:
    """The table."""
    columns = ("Model", "GPUs", "Policy", "Tokens, mean", "Stated", "Ours", "Range", "Error")
    lines = table_head([*columns, "Generation", "Passes", "Update"])
    times = list(step_times())
    for one in times:
        row, phases = one.row, one.phases
        lines.append(
            row_of(
                [
                    row["model"],
                    f"{row['gpus'] + row['engine_gpus']} {row['gpu']}",
                    "one step off" if row["engine_gpus"] else "on",
                    f"{row['mean_tokens']:,}",
                    f"{row['step_s']:g} s",
                    f"{one.step_s.expected:.0f} s",
                    f"{one.step_s.low:.0f} to {one.step_s.high:.0f}",
                    f"{one.error:+.0%}",
                    f"{phases['rollout']:.0f} s",
                    f"{phases['reference']:.0f} s",
                    f"{phases['update']:.0f} s",
                ]
            )
        )
    off = median(abs(one.error) for one in times)
    return "\n".join([*lines, "", f"Median error: {off:.0%}."])


if __name__ == "__main__":
    print(written())
