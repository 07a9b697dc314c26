"""python -m benchmarks.accuracy.steps: each phase of whole training steps, as torch itself computes it, beside ours.

The rows are steps of transformers' classes under fake tensors in which every storage was tracked, equal to torch's own
MemTracker and FSDP2 tracker to the byte (torch 2.13, transformers 5.23, PEFT 0.21.2). No GPU was run.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from calc import RECIPES, Architecture, Overhead, Precision, TrainingLayout, TrainingWorkload
from calc.training import Training
from calc.training.moments import Phase
from calc.training.step import PHASES

DATA = Path(__file__).parents[2] / "tests" / "data"
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw-foreach": {"optimizer": "adamw", "optimizer_kernel": "foreach"},
    "adamw-fused": {"optimizer": "adamw", "optimizer_kernel": "fused"},
    "adamw-forloop": {"optimizer": "adamw", "optimizer_kernel": "for-loop"},
    "sgdm-foreach": {"optimizer": "sgd-momentum", "optimizer_kernel": "foreach"},
    "sgd-foreach": {"optimizer": "sgd", "optimizer_kernel": "foreach"},
    "adafactor": {"optimizer": "adafactor"},
}
LOSSES: dict[str, dict[str, Any]] = {"hf": {}, "chunked8": {"loss": "chunked", "loss_chunks": 8}}
REDUCED = {"float32": "fp32", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Step:
    """A tracked step, and ours."""

    row: Mapping[str, Any]
    predicted: Mapping[Phase, int]

    @property
    def errors(self) -> dict[Phase, float]:
        return {phase: size / self.row["phases"][phase] - 1 for phase, size in self.predicted.items()}

    @property
    def error(self) -> float:
        """Of the whole peak."""
        return float(max(self.predicted.values()) / self.row["peak"] - 1)


def load(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((DATA / name).read_text(encoding="utf-8"))
    return rows


def configs() -> dict[str, dict[str, Any]]:
    """The configs of the models that were tracked, by name."""
    return {config.pop("name"): config for config in load("train_step_configs.json")}


def name_of(row: Mapping[str, Any]) -> str:
    """What tells a row from the others."""
    lora = row.get("lora")
    parts = [row["model"], row["recipe"], row["optimizer"], row["impl"], f"{row['micro_batch']}x{row['sequence']}"]
    parts += [f"accumulation {row['accumulation']}"] if row["accumulation"] > 1 else []
    parts += [f"{row['checkpointing']} checkpointing"] if row["checkpointing"] != "off" else []
    parts += [f"LoRA on {lora['targets']}"] if lora else []
    parts += [f"{row['loss']} loss"] if row["loss"] != "hf" else []
    parts += ["outputs kept"] if row["keep_outputs"] else []
    parts += [f"FSDP2 on {row['ranks']}, {row['reduce']} reduced"] if "ranks" in row else []
    parts += ["not resharded"] if row.get("reshard") is False else []
    return ", ".join(parts)


def training(row: Mapping[str, Any], architecture: Architecture) -> Training:
    """The step of a row in our terms."""
    lora = row.get("lora")
    work = TrainingWorkload(
        micro_batch=row["micro_batch"],
        sequence=row["sequence"],
        accumulation=row["accumulation"],
        attention=row["impl"],
        recompute="none" if row["checkpointing"] == "off" else "full",
        reentrant=row["checkpointing"] == "reentrant",
        keep_outputs=row["keep_outputs"],
        **OPTIMIZERS[row["optimizer"]],
        **LOSSES[row["loss"]],
        **adapters(lora) if lora else {},
    )
    layout = TrainingLayout()
    if "ranks" in row:
        layout = TrainingLayout(
            dp=row["ranks"], zero=3, reduce=REDUCED[row["reduce"]], reshard_after_forward=row["reshard"]
        )
    base = Precision(weights="nf4-dq" if work.method == "qlora" else "bf16")
    return Training(architecture, work, RECIPES[row["recipe"]], layout, Overhead(), base)


def adapters(lora: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "method": "qlora" if "quantised" in lora else "lora",
        "lora_dropout": lora.get("dropout", 0) > 0,
        "fp32_rest": lora.get("quantised") == "kbit",
        "lora_rank": lora["r"],
        "lora_targets": lora["targets"],
        "fp32_adapters": lora["fp32_adapters"],
    }


def compare(rows: list[dict[str, Any]], configs: Mapping[str, Mapping[str, Any]]) -> Iterator[Step]:
    """Every row beside ours."""
    models = {name: Architecture.from_config(config) for name, config in configs.items()}
    for row in rows:
        phases = training(row, models[row["model"]]).phases()
        yield Step(row, {phase: sum(part.bytes for part in parts) for phase, parts in phases.items()})


FACTORS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "model": lambda row: str(row["model"]),
    "recipe": lambda row: str(row["recipe"]),
    "optimizer": lambda row: str(row["optimizer"]),
    "attention": lambda row: str(row["impl"]),
    "checkpointing": lambda row: str(row["checkpointing"]),
    "LoRA": lambda row: str(row["lora"]["targets"]) if "lora" in row else "none",
    "accumulation": lambda row: str(row["accumulation"]),
    "loss": lambda row: "outputs kept" if row["keep_outputs"] else str(row["loss"]),
    "GPUs": lambda row: "FSDP2" if "ranks" in row else "one",
}


def summary(name: str, errors: list[float]) -> str:
    off = [abs(error) for error in errors]
    high = quantiles(off, n=20, method="inclusive")[-1] if len(off) > 1 else off[0]
    return f"{name:30}{len(off):>5} rows  median {median(off):>8.3%}  95 % {high:>8.3%}  worst {max(off):>8.3%}"


def main() -> None:
    steps = list(compare(load("train_steps.json"), configs()))
    print(summary("whole peak", [step.error for step in steps]))
    for phase in PHASES:
        print(summary(phase, [step.errors[phase] for step in steps]))
    for factor, value in FACTORS.items():
        groups: dict[str, list[float]] = defaultdict(list)
        for step in steps:
            groups[value(step.row)].append(step.error)
        print(f"\nwhole peak by {factor}")
        for name, errors in groups.items():
            print(summary(name, errors))
    print("\nfurthest off in any phase")
    worst = [(max(step.errors.items(), key=lambda pair: abs(pair[1])), step) for step in steps]
    for (phase, error), step in sorted(worst, key=lambda one: -abs(one[0][1]))[:12]:
        print(f"{error:>+9.4%}  {phase:12}{name_of(step.row)}")


if __name__ == "__main__":
    main()
