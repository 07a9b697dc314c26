"""python -m benchmarks.accuracy.rl [RL_STEPS.json] > docs/training_losses.md: update steps of preference and
reinforcement learning, as TRL's own losses take them under torch's tracker, next to ours.

The rows are whole steps (torch 2.13, transformers 5.23, TRL 1.16, 1.12 and 0.24) on fake CUDA tensors, tracked as in
benchmarks/accuracy/steps.py. No GPU was run.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.accuracy import rl_records, rl_times
from benchmarks.accuracy.steps import DATA, OPTIMIZERS, high, row_of, table_head
from calc import RECIPES, Architecture, Objective, Precision, TrainingLayout, TrainingWorkload
from calc.training import METHODS, Phase, Training, TrainingScenario
from presets import models

FILE = DATA / "rl_steps.json"
PHASES: dict[str, Phase] = {
    "before": "after_init",
    "peak_reference": "reference",
    "peak_forward": "forward",
    "peak_loss": "loss",
    "peak_backward": "backward",
    "peak_optimizer": "optimizer",
    "after_step": "after_step",
}
ADAMW_8BIT = {"adamw-8bit": {"optimizer": "adamw-8bit"}}


@dataclass(frozen=True)
class ObjectiveStep:
    """A tracked step, and ours, by phase."""

    row: Mapping[str, Any]
    measured: Mapping[Phase, int]
    predicted: Mapping[Phase, int]

    @property
    def errors(self) -> dict[Phase, float]:
        """Relative error of each phase."""
        return {phase: self.predicted[phase] / size - 1 for phase, size in self.measured.items()}

    @property
    def error(self) -> float:
        """Relative error of the peak."""
        return max(self.predicted.values()) / max(self.measured.values()) - 1


def objective_of(row: Mapping[str, Any]) -> Objective:
    """The loss of a row in our terms."""
    return Objective(
        method=row["method"],
        trl=row["trl"].rsplit(".", 1)[0],
        log_probs=row["logits"].split()[0],
        reference=row["reference"].replace(" ", "-"),
        prompt=row["prompt"],
        completion=row["completion"],
        completion_only=row["completion_only"],
        packed=row["packing"] or 1,
        entropy_bonus=row.get("entropy_coef", 0) > 0,
        iterations=row.get("iterations", 1),
        engine_generates=row.get("always_old", False),
        generation_batch=row.get("generation_batch"),
        shards_reference=row["fsdp_style"] != "trl",
    )


def step_of(row: Mapping[str, Any], architecture: Architecture) -> Training:
    """The step of a row in our terms."""
    objective, rank = objective_of(row), row["lora"]
    adapters = {"method": "lora", "lora_rank": rank, "fp32_adapters": True} if rank else {}
    work = TrainingWorkload(
        micro_batch=row["micro_batch"],
        sequence=objective.sequence,
        accumulation=row["accumulation"],
        recompute="none" if row["checkpointing"] == "off" else "full",
        reentrant=row["checkpointing"] == "reentrant",
        **(OPTIMIZERS | ADAMW_8BIT)[row["optimizer"]],
        **adapters,
    )
    layout = TrainingLayout()
    if row["ranks"] > 1:  # without a policy of mixed precision gradients are reduced in their own type
        layout = TrainingLayout(dp=row["ranks"], zero=3, reduce="bf16" if row["recipe"] == "bf16" else "fp32")
    recipe = RECIPES[row["recipe"]]
    return Training(architecture, TrainingScenario(workload=work, recipe=recipe, layout=layout, objective=objective))


def load(path: Path = FILE) -> tuple[list[dict[str, Any]], dict[str, Architecture]]:
    """Rows, each with its phases by name, and the models."""
    facts = json.loads(path.read_text(encoding="utf-8"))
    rows = facts["rows"]
    if "columns" in facts:
        rows = [dict(zip(facts["columns"], row, strict=True)) for row in rows]
        rows = [row | {"phases": dict(zip(facts["phases"], row["phases"], strict=True))} for row in rows]
    else:
        rows = [row | {"lora": row["lora"] and row["lora"]["r"]} for row in rows]
    return rows, {name: Architecture.from_config(config) for name, config in facts["configs"].items()}


def compare(rows: Iterable[Mapping[str, Any]], architectures: Mapping[str, Architecture]) -> Iterator[ObjectiveStep]:
    """Every row next to ours."""
    for row in rows:
        phases = step_of(row, architectures[row["model"]]).phases()
        predicted = {phase: sum(part.bytes for part in parts) for phase, parts in phases.items()}
        measured = {PHASES[name]: size for name, size in row["phases"].items() if size is not None and name in PHASES}
        yield ObjectiveStep(row, measured, predicted)


KINDS = DATA / "loss_kinds.json"
PLAIN: dict[str, Any] = {
    "trl": "1.16.0",
    "micro_batch": 1,
    "prompt": 512,
    "completion": 512,
    "recipe": "bf16-autocast",
    "optimizer": "adamw-fused",
    "checkpointing": "nonreentrant",
    "lora": 0,
    "targets": "all-linear",
    "reference": "none",
    "accumulation": 1,
    "completion_only": False,
    "packing": None,
    "ranks": 1,
    "fsdp_style": None,
    "teacher": None,
}
"""What a row of other kinds leaves out."""
WAYS = {"orpo": "whole", "simpo": "whole", "cpo": "whole", "gkd": "whole", "reward": "none"}
"""How TRL 1.16 makes log-probabilities, where not by its fused head."""


def kinds() -> list[dict[str, Any]]:
    """Rows of kinds that the 201 do not have; by benchmarks/oracle/track_losses.py."""
    return [
        PLAIN | {"logits": WAYS.get(row["method"], "fused"), "entropy_coef": row.get("entropy_bonus", 0)} | row
        for row in json.loads(KINDS.read_text(encoding="utf-8"))
    ]


def compare_kind(row: Mapping[str, Any]) -> ObjectiveStep:
    """The step of such a row next to ours."""
    step = step_of(row, Architecture.from_config(models()[row["model"]].config))
    assert step.objective is not None
    changes: dict[str, Any] = {}
    if row["teacher"]:
        changes["teacher"] = Architecture.from_config(models()[row["teacher"]].config)
    if METHODS[step.objective.method].teacher:
        changes["beta"] = row["beta"]
    work = step.work if row["targets"] == "all-linear" else step.work.model_copy(update={"lora_targets": "qv"})
    frozen = Precision(weights="fp32") if row["lora"] and row["recipe"] == "autocast" else step.frozen
    step = step.changed(workload=work, frozen=frozen, objective=step.objective.model_copy(update=changes))
    phases = {phase: sum(part.bytes for part in parts) for phase, parts in step.phases().items()}
    measured = {PHASES[name]: size for name, size in row["phases"].items() if PHASES[name] in phases}
    return ObjectiveStep(row, measured, phases)


def table_of_kinds() -> str:
    """The table of these."""
    lines = table_head(["Model", "Step", "Tracked", "Ours", "Error", ""])
    steps = [compare_kind(row) for row in kinds()]
    for step in steps:
        told = {name: value for name, value in step.row.items() if PLAIN.get(name, value) != value}
        more = {name: step.row[name] for name in ("variant", "beta", "iterations") if name in step.row}
        words = ", ".join(f"{name} {value}" for name, value in (told | more).items())
        tracked, ours = (max(sizes.values()) / 2**30 for sizes in (step.measured, step.predicted))
        method = f"{step.row['method']}: {words}" if words else step.row["method"]
        lines.append(row_of([step.row["model"], method, f"{tracked:.2f}", f"{ours:.2f}", f"{step.error:+.3%}", ""]))
    off = [abs(step.error) for step in steps]
    return "\n".join([*lines, "", f"Median {median(off):.3%}, worst {max(off):.3%}."])


FACTORS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "Method": lambda row: str(row["method"]),
    "TRL": lambda row: str(row["trl"]),
    "Log-probabilities": lambda row: str(row["logits"]),
    "Reference": lambda row: str(row["reference"]),
    "Precision": lambda row: str(row["recipe"]),
    "Activation checkpointing": lambda row: str(row["checkpointing"]),
    "Weights": lambda row: "LoRA" if row["lora"] else "full",
    "GPUs": lambda row: f"FSDP2 on {row['ranks']}, {row['fsdp_style']}" if row["ranks"] > 1 else "one",
    "Model": lambda row: str(row["model"]),
}


def line(name: str, steps: list[ObjectiveStep]) -> str:
    """A group's row: errors of the peak, and of the phase furthest off."""
    off = [abs(step.error) for step in steps]
    error, phase = max((abs(error), phase) for step in steps for phase, error in step.errors.items())
    figures = (median(off), high(off), max(off), error)
    return row_of([name, str(len(steps)), *(f"{figure:.3%}" for figure in figures), phase])


HEAD = """# Steps of preference and reinforcement learning beside torch's own account

Written by `python -m benchmarks.accuracy.rl > docs/training_losses.md`.

TRL's own losses (1.16, 1.12 and 0.24) ran on full models under fake CUDA tensors, and every storage was tracked, as
for [training.md](training.md): torch 2.13, transformers 5.23, PEFT 0.21.2, accelerate 1.15. No GPU was run, and
generation is not in a row. The error of a row is that of its peak; the worst phase is the one furthest off in any row
of the group, of: before the step, passes without gradients ("reference"), forward, loss, backward, optimizer, after the
step."""
OTHER_KINDS = """## Other kinds

GiB at the peak of steps with models, variants of the loss (loss_type), ranks, lengths and teachers that the rows above
do not have, tracked by `python -m benchmarks.oracle.track_losses` in the same way, TRL 1.16. A variant changes no peak:
it reads one number of each sequence, or one of each token."""
TAIL = """Two phases are counted otherwise, and are no peak. With TRL 1.12's GRPO and RLOO the tracker's "reference"
ends with the model's forward, ours with the log-probabilities, for which the logits stand twice (at most 42%). With
FSDP2 and a reference that is gathered whole, the tracker's "loss" of DPO holds the reference's all-gather, which stands
with "reference" here (-59%). PPO is put together from the same parts; nothing computed or measured stands beside it.

Distillation (GKD) is the same step with a teacher's pass and TRL's `generalized_jsd_loss`, which
`python -m benchmarks.oracle.track_divergence` runs under torch: at its peak 17 tensors of a token's whole vocabulary
with beta between 0 and 1, 9 and 10 at 0 and 1; 12, 4 and 6 on the way back; ours is within 0.1 % in each
(tests/data/divergences.json). What its policy writes itself (lmbda) comes from generate() before the passes: its cache
is less than the loss takes of the same tokens, for every preset, so that the peak is the same. TRL's GOLD, whose
teacher has another vocabulary, is not computed. Nothing computed or measured stands beside the log-probabilities of
verl and OpenRLHF, which are read off their source."""
TIMES = """## Time of a whole step

Nine GRPO steps of NeMo RL's performance summary (releases 0.5 and 0.6): all with a mean length and with training
divided over data and experts alone. Generation is the model of served speed, passes that of
[training_speed.md](training_speed.md); nothing of either is fitted to these rows. Their phases come to 33 % less than
the stated step at the median, on H100 and GB200, dense or with experts. Scoring, packing and sending the batches are in
no phase. So a step with generation has a remainder, the one figure that is fitted here: 50 % of the seconds of its
phases, 25 to 75 %. Each row by the remainder of the other eight is 4.7 % off at the median, the two worst 29 and 34 %.
The summary's other rows divide training by tensors or stages, which no loss here has.

Steps that are one off policy train on a batch while the next is generated: the longer of both decides. So they bound
generation, which takes no longer than the whole step; ours in waves of completions as long as may be took 93 s of
Llama's 64.8 on H100, and is 37 s since a completion that ends makes room for one that waits. In ours training is longer
than generation in each of these four rows. Of what training lacks a part is known for Qwen3-30B-A3B: these releases ran
experts one after the other (`moe_grouped_gemm` is on since pull request 2278 of May 2026, by whose author's paired runs
on GB200 a step takes 19 % less with it), and ours has Megatron's grouped product. No record states the seconds of each
phase, so the remainder is not divided among them. Of TRL's own steps no whole time is stated anywhere: it is NeMo RL's
that stands for them."""
RECORDS = """## Public records

Of 111 public records 12 state what a step needs to be weighed. Four of these state a peak: the median error is 9.0%
(DPO 2.4 and 6.2%, GRPO 11.9%, SimPO 18.4%). Of five runs that fitted none is called "does not fit", and of four that
ran out of memory one is below its card: DPO of fp32 weights with 71.3 of 80 GiB, 11% short; what a batch of eight pairs
of 1,024 tokens left reserved is not counted there.

ms-swift's are GPU memory as its authors wrote it above their scripts: rounded, and as much as the allocator reserved,
which is more than what is in use at once (`reserved` of `rl_records.py`). Its SimPO adds the likelihood of the chosen.
No part that its script names explains all of its 50 GiB: weights, gradients, buckets and states under ZeRO-2 on two
GPUs come to 28, what whole logits of 2 x 2,048 tokens take to 7, and gradients cast to fp32 in one block to 6. Its
script says GB where the others say GiB: so read it is 46.6 GiB, and ours 12.4% below. Its GRPO is "about 12" of a step
whose completions are seldom as long as they may be.

The others are not judged:

| Records | Why |
| ---: | --- |
| 57 | the head and the loss alone, in other code than TRL's (Liger's kernels and its tests): no step |
| 10 | models that see or hear, whose images or sounds are not stated |
| 9 | model, lengths, batch or trainer not stated |
| 8 | tensor parallelism (Megatron), which no loss of TRL has |
| 5 | GKD of ms-swift: a longest length is stated, and the data (alpaca) are far shorter |
| 4 | verl with micro-batches of up to 180 sequences without padding: a longest length is stated alone |
| 2 | ZeRO-3 with parameters in host memory under DeepSpeed |
| 2 | verl's and siiRL's max_memory_allocated, with or without the engine on the same GPU: not said |
| 1 | a head that ran out of memory |
| 1 | an engine asleep: vllm-project/vllm#47654, of which `calc.training.colocated` takes what stays |"""


def written(steps: list[ObjectiveStep]) -> str:
    """The page."""
    parts = (HEAD, tables(steps), TAIL, OTHER_KINDS, table_of_kinds(), TIMES, rl_times.written())
    return "\n\n".join((*parts, RECORDS, rl_records.written()))


def tables(steps: list[ObjectiveStep]) -> str:
    """The tables of all rows."""
    lines = table_head(["", "Rows", "Median", "95 %", "Worst", "Worst phase", ""])
    lines.append(line("**all**", steps))
    for factor, value in FACTORS.items():
        groups: dict[str, list[ObjectiveStep]] = defaultdict(list)
        for step in steps:
            groups[value(step.row)].append(step)
        lines.append(row_of([f"**{factor}**", *[""] * 6]))
        lines += [line(name, group) for name, group in groups.items()]
    return "\n".join(lines)


def main() -> None:
    rows, architectures = load(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
    print(written(list(compare(rows, architectures))))


if __name__ == "__main__":
    main()
