"""python -m benchmarks.accuracy.rl_records: public records of preference and reinforcement learning, and ours; with
RL_RECORDS.json behind it the file of the tests is written anew from that.

Of the public records those stand here whose model, lengths, batch and trainer are stated. ms-swift's are GPU memory as
its authors wrote it above their scripts, without the release; its trainers are TRL's with whole logits, its SimPO has
the likelihood of the chosen too (cpo_alpha 1), and its DeepSpeed has buckets of its own (swift/config/zero2.json and
zero3.json, whose "auto" is the square of the hidden width, and 0.9 of it ahead).
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.accuracy.steps import DATA, row_of, table_head
from calc import RECIPES, Architecture, Objective, TrainingLayout, TrainingWorkload
from calc.hardware.gpu import GPU
from calc.hardware.gpus import gpus
from calc.training import Colocated, Colocation, Phase, RecipeName, Training, TrainingScenario
from calc.units import GIB, MIB
from presets import models

FILE = DATA / "rl_records.json"
COLUMNS = ("id", "kind", "method", "GiB_per_gpu", "gpu_GiB", "address")
LORA = {"method": "lora", "fp32_adapters": True, "optimizer_kernel": "fused"}


@dataclass(frozen=True)
class Case:
    """A record in our terms."""

    model: str
    objective: dict[str, Any]
    work: dict[str, Any]
    recipe: RecipeName = "bf16-autocast"
    layout: dict[str, Any] = field(default_factory=dict)
    colocation: dict[str, Any] | None = None
    buckets: dict[str, int] = field(default_factory=dict)  # of DeepSpeed, in elements
    shown: bool = False  # read off the device, and so what is reserved

    def training(self) -> Training:
        """The step."""
        objective = Objective(**self.objective)
        work = TrainingWorkload(**{"recompute": "full", "sequence": objective.sequence} | self.work)
        architecture = Architecture.from_config(models()[self.model].config)
        layout, recipe = TrainingLayout(**self.layout), RECIPES[self.recipe].model_copy(update=self.buckets)
        return Training(
            architecture, TrainingScenario(workload=work, recipe=recipe, layout=layout, objective=objective)
        )

    def bounds(self, gpu: GPU) -> tuple[int, int, int]:
        """Bytes at the peak: at the low end of the overhead, in its middle and at the high end."""
        if self.colocation is None:
            training = self.training()
            memory = training.memory()
            cached = reserved(training) - memory.total if self.shown else 0
            return memory.low + cached, memory.total + cached, memory.high + cached
        peak = Colocated(self.training(), Colocation(**self.colocation), gpu).peak
        return peak.low, peak.total, peak.high


PASSES: tuple[Phase, ...] = ("reference", "forward", "loss", "backward")


def reserved(training: Training) -> int:
    """Bytes that PyTorch's allocator has taken from the GPU by the end of the first step, overhead included: the peak
    of the passes, whose blocks stay cached, and on top the cast of flattened gradients to fp32, which is one block,
    and blocks that were taken one by one are not joined (torch 2.13, notes/cuda, memory management; DeepSpeed 0.19.8,
    runtime/zero). Memory that is short is given back before it runs out: a verdict does not depend on it."""
    phases, recipe = training.by_phase(), training.recipe
    peak = max(memory.total for memory in phases.values())
    if not recipe.flattened:
        return peak
    cast = phases["optimizer"].master_weights
    if training.layout.zero == 3 and recipe.sub_group:
        cast = min(cast, 4 * recipe.sub_group)
    return max(peak, cast + max(phases[phase].total for phase in PASSES if phase in phases))


OLD_GRPO = {"method": "grpo", "trl": "1.12"}
CASES: dict[int, Case] = {
    # a packed row of 8,192 tokens holds both sequences of its pairs
    40: Case(
        "Qwen/Qwen2.5-7B",
        {"method": "dpo", "trl": "0.24", "prompt": 2048, "completion": 2048},
        {},
        "deepspeed",
        {"dp": 4, "zero": 3},
        buckets={"bucket": 3584**2, "prefetch": 9 * 3584**2 // 10},
        shown=True,
    ),
    46: Case(
        "Qwen/Qwen2.5-7B",
        {"method": "dpo", "trl": "0.24", "prompt": 1024, "completion": 1024},
        LORA | {"accumulation": 16, "lora_rank": 8},
        shown=True,
    ),
    54: Case(
        "Qwen/Qwen2.5-3B",
        {"method": "cpo", "trl": "1.12", "prompt": 1024, "completion": 1024},
        {"accumulation": 8},
        "deepspeed",
        {"dp": 2, "zero": 2},
        buckets={"bucket": 200_000_000},
        shown=True,
    ),
    152: Case(
        "Qwen/Qwen2.5-3B",
        OLD_GRPO | {"prompt": 2048, "completion": 1024},
        LORA | {"lora_rank": 64, "reentrant": True},
    ),
    117: Case(
        "Qwen/Qwen3-0.6B",
        OLD_GRPO | {"prompt": 256, "completion": 256, "reference": "model"},
        {"micro_batch": 8, "recompute": "none"},
        "autocast",
    ),
    119: Case(
        "Qwen/Qwen2.5-7B",
        OLD_GRPO | {"prompt": 200, "completion": 200, "num_generations": 4},
        {"recompute": "none"},
        "autocast",
    ),
    124: Case(
        "Qwen/Qwen2.5-0.5B", {"method": "dpo", "trl": "0.24"}, {"micro_batch": 8, "recompute": "none"}, "autocast"
    ),
    125: Case("Qwen/Qwen2.5-0.5B", {"method": "dpo", "trl": "0.24"}, {"micro_batch": 8, "recompute": "none"}, "bf16"),
    24: Case(
        "Qwen/Qwen2.5-7B",
        OLD_GRPO | {"completion": 2048, "reference": "model"},
        {"micro_batch": 2, "accumulation": 2},
        "deepspeed",
        {"dp": 6, "zero": 2},
        {"rollout": "server"},
    ),
    27: Case(
        "Qwen/Qwen2.5-7B",
        OLD_GRPO | {"completion": 4096},
        {"micro_batch": 4, "accumulation": 8},
        "deepspeed",
        {"dp": 8, "zero": 3},
        {"engine_share": 0.4, "sleep_level": 1, "offload_weights": True, "offload_optimizer": True},
    ),
    26: Case(
        "Qwen/Qwen3-30B-A3B",
        OLD_GRPO | {"prompt": 3808, "completion": 8192, "beta": 0.001, "reference": "adapter-off"},
        LORA | {"accumulation": 4, "lora_rank": 8},
        "deepspeed",
        {"dp": 8, "zero": 3},
        {"rollout": "server"},
    ),
    120: Case(
        "Qwen/Qwen3-0.6B",
        OLD_GRPO | {"prompt": 512, "completion": 19968, "num_generations": 4},
        {},
        "deepspeed",
        {"dp": 8, "zero": 3},
        {"sleep_level": 2},
    ),
}


@dataclass(frozen=True)
class Reading:
    """A record next to ours, in GiB."""

    record: dict[str, Any]
    low: float
    total: float
    high: float

    @property
    def error(self) -> float | None:
        """Relative error of a stated peak; None: none is stated."""
        stated = self.record["GiB_per_gpu"]
        return None if stated is None else self.total / stated - 1


def card(gib: float) -> GPU:
    """The GPU of a record, by its size alone."""
    return gpus()["h100-sxm"].model_copy(update={"memory_mib": int(gib * GIB / MIB)})


def readings() -> Iterator[Reading]:
    """All of them."""
    for record in json.loads(FILE.read_text(encoding="utf-8")):
        low, total, high = CASES[record["id"]].bounds(card(record["gpu_GiB"] or 80))
        yield Reading(record, low / GIB, total / GIB, high / GIB)


def written() -> str:
    """The table."""
    lines = table_head(["Record", "Stated", "Ours", "Error", ""])
    rows = list(readings())
    for one in rows:
        record, error = one.record, one.error
        stated = f"{record['GiB_per_gpu']} GiB" if error is not None else f"{record['kind']} on {record['gpu_GiB']} GiB"
        ours = f"{one.total:.1f} GiB"
        lines.append(row_of([record["address"], stated, ours, "" if error is None else f"{error:+.1%}", ""]))
    errors = [abs(one.error) for one in rows if one.error is not None]
    return "\n".join([*lines, "", f"Median of stated peaks: {median(errors):.1%}."])


def main() -> None:
    if len(sys.argv) > 1:
        facts = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["rows"]
        rows = [{name: row.get(name) for name in COLUMNS} for row in facts if row["id"] in CASES]
        FILE.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]\n", encoding="utf-8")
    print(written())


if __name__ == "__main__":
    main()
