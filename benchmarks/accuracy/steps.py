"""python -m benchmarks.accuracy.steps > docs/training.md: each phase of whole training steps, as torch itself computes
it, beside ours.

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

from benchmarks.accuracy.training import compare as compare_records
from benchmarks.accuracy.training import ladder, read
from calc import RECIPES, Architecture, TrainingLayout, TrainingWorkload
from calc.training import Phase, Training, TrainingScenario, usual_base

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
        return {phase: self.predicted[phase] / size - 1 for phase, size in self.row["phases"].items()}

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
        recompute={"off": "none", "selective": "selective"}.get(row["checkpointing"], "full"),
        reentrant=row["checkpointing"] == "reentrant",
        keep_outputs=row["keep_outputs"],
        **OPTIMIZERS[row["optimizer"]],
        **LOSSES[row["loss"]],
        **adapters(lora) if lora else {},
    )
    layout = TrainingLayout()
    if "ranks" in row:
        layout = TrainingLayout(
            dp=row["ranks"],
            zero=3,
            reduce=REDUCED[row.get("reduce", "float32")],
            reshard_after_forward=row.get("reshard", True),
            separate_embedding=row.get("separate_embedding", False),
        )
    elif "tensor" in row:
        layout = TrainingLayout(tp=row["tensor"])
    scenario = TrainingScenario(
        workload=work, recipe=RECIPES[row["recipe"]], layout=layout, frozen=usual_base(work.method)
    )
    return Training(architecture, scenario)


def adapters(lora: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "method": "qlora" if "quantized" in lora else "lora",
        "lora_dropout": lora.get("dropout", 0) > 0,
        "fp32_rest": lora.get("quantized") == "kbit",
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


Groups = Mapping[str, Callable[[Mapping[str, Any]], str]]
FACTORS: Groups = {
    "Method": lambda row: f"LoRA on {row['lora']['targets']}" if "lora" in row else "full",
    "Optimizer": lambda row: str(row["optimizer"]),
    "Precision": lambda row: str(row["recipe"]),
    "Activation checkpointing": lambda row: str(row["checkpointing"]),
    "Loss": lambda row: "whole, outputs kept" if row["keep_outputs"] else LOSS_NAMES[row["loss"]],
    "Attention": lambda row: str(row["impl"]),
    "Accumulated micro-batches": lambda row: str(row["accumulation"]),
    "GPUs": lambda row: f"FSDP2 on {row['ranks']}" if "ranks" in row else "one",
    "Model": lambda row: str(row["model"]),
}
LOSS_NAMES = {"hf": "whole", "chunked8": "8 chunks"}
SMALL: Groups = {
    "Method": lambda row: "LoRA" if row["lora"] else "full",
    "Base": lambda row: {"": "16 bits", "nf4": "NF4", "kbit": "NF4, prepare_model_for_kbit_training"}[quantized(row)],
    "Dropout before adapters": lambda row: "yes" if row.get("dropout") else "no",
    "Precision": lambda row: str(row["recipe"]),
    "Activation checkpointing": lambda row: str(row["checkpointing"]),
    "GPUs": lambda row: f"FSDP2 on {row['ranks']}" if "ranks" in row else "one",
    "Family": lambda row: str(row["model"]),
}
HEAD = """# Training steps beside torch's own account

Written by `python -m benchmarks.accuracy.steps > docs/training.md`.

torch 2.13 ran the classes of transformers 5.23, with PEFT 0.21.2, on fake CUDA tensors, and every storage was tracked
from the operation that returns it until it dies; that account equals torch's own `MemTracker` and FSDP2's
`FSDPMemTracker` to the byte. No GPU was run: what CUDA's libraries, the context and fragmentation add is not in it. The
error of a row is that of its peak; the worst phase is the one furthest off in any row of the group, of: before the
step, forward, loss, backward, optimizer, after the step. "Before" is how far the same peaks were off before the step
was computed operation by operation, when activations, logits and states were sums of formulas (`steps_before.json`).

By method, where the loss is one of TRL's (SFT, DPO, KTO, ORPO, SimPO, CPO, reward models, GRPO, RLOO, distillation):
[training_losses.md](training_losses.md)."""

RECORDS = """## Public records

A meter reads more than what is alive. PyTorch's caching allocator keeps what is freed for the stream that asked for
it, and torchtitan's logs and nvidia-smi count what it keeps. So FSDP2 stands there with each stream at its own peak:
that which computes, that whose buffers all-gather fills, and that on which reduce-scatter makes the gradients' shards.
With every layer recomputed nothing else is open, and four such records (Llama 3.1 8B, 32k to 256k tokens) are met
within 0.5%."""
LEFT = """Where records are at odds with each other, with the card or with the source that they name:

- Qwen's README has 162.0G for two GPUs of 80 GiB, so that its G is no GiB. Taken as 10^9 bytes, its LoRA rows at 256
  tokens (1.8B, 7B and 14B: 6.7, 20.1 and 34.6G) grow, beyond the 16-bit model, by 19 bytes with each of 53.7, 143.1 and
  223.2 million weights of adapters. In fp32, as PEFT 0.5.0 made them, these take 20 with gradients, two moments and
  foreach's copy; in 16 bits 10. (As 1,000 MiB, it would be 27.)
- Qwen 1.8B with LoRA grows by 2.5 MB a token from 256 to 4,096 tokens, and by 1.4 MB from 4,096 to 8,192, with nothing
  changed but the length; autograd holds 1.9 MB a token. Ours is 10 to 14% below the former rows and 9% above the last.
- Qwen 1.8B with all weights stays at 43.5G up to 2,048 tokens: 23 bytes a weight. DeepSpeed's ZeRO-2 comes to 22 at its
  step, with its buckets beside, and its ZeRO-3, which the README names, to less than 20 on one GPU.
- torchtune's README has 16.2 for LoRA and 7.4 for QLoRA of Llama 3.1 8B, 8.8 GiB apart; in NF4 its layers are 9.6 GiB
  smaller, and nothing else differs. Ours is 5% above the former and meets the latter.
- What no source explains: Qwen 72B with LoRA and ZeRO-3 is 8 GiB a GPU above its parts at 256 tokens and 6 at 8,192;
  Qwen 1.8B with QLoRA 1.0 GiB at 256 tokens and 0.5 at 8,192, where 72B with the same script is met within 6%. What was
  looked at: AutoGPTQ without its kernels keeps each dequantized matrix of the layer that goes back (0.1 GB for 1.8B,
  1.7 for 72B), and DeepSpeed takes the norm of each gradient in double (8 bytes of the largest matrix): neither is the
  peak. Its buckets stay reserved at the update, which is counted.
- torchtitan's 70B with tensor parallelism has 71.9 and 67.6 GiB, which differ in asynchronous tensor parallelism only.
  DTensor's parallel loss (four fp32 tensors as large as a rank's logits) and the states gathered before the head are
  counted as torch has them: under fake tensors, over 8 ranks, within 0.2% up to the end of the backward pass where
  everything is kept. With layers recomputed its backward pass peaks 11% higher, at the gradient of the embedding, which
  DTensor makes as large as the whole table. Ours is 11 and 6% below the records."""


def quantized(row: Mapping[str, Any]) -> str:
    return str(row.get("quantized", ""))


def families() -> Iterator[Step]:
    """Steps of four layers of many families, as benchmarks/oracle/track_steps.py runs them."""
    for family in load("family_steps.json"):
        architecture = Architecture.from_config(family["config"])
        for row in family["steps"]:
            adapters = {"r": row["lora"], "targets": "all", "fp32_adapters": True}
            adapters |= {name: row[name] for name in ("dropout", "quantized") if row.get(name)}
            asked = {"accumulation": 1, "loss": "hf", "keep_outputs": False} | row
            phases = training(asked | {"lora": adapters if row["lora"] else None}, architecture).phases()
            named = row | {"model": family["config"]["model_type"], "peak": max(row["phases"].values())}
            yield Step(named, {phase: sum(part.bytes for part in parts) for phase, parts in phases.items()})


def high(errors: list[float]) -> float:
    """Their 95th percentile."""
    return quantiles(errors, n=20, method="inclusive")[-1] if len(errors) > 1 else errors[0]


def line(name: str, steps: list[Step], before: list[float]) -> list[str]:
    """A group's row."""
    off = [abs(step.error) for step in steps]
    error, phase = max((abs(error), phase) for step in steps for phase, error in step.errors.items())
    figures = [f"{median(before):.1%}", f"{max(before):.1%}"] if before else []
    return [
        name,
        str(len(steps)),
        *figures,
        *(f"{one:.3%}" for one in (median(off), high(off), max(off), error)),
        phase,
    ]


def table(title: str, steps: list[Step], groups: Groups, before: list[float]) -> list[str]:
    """Every group of every factor."""
    columns = [
        "Rows",
        *(["Before: median", "worst"] if before else []),
        "Now: median",
        "95 %",
        "worst",
        "Worst phase",
        "",
    ]
    lines = [f"## {title}", "", *table_head(["", *columns]), row_of(line("**all**", steps, before))]
    for factor, value in groups.items():
        found: dict[str, list[int]] = defaultdict(list)
        for number, step in enumerate(steps):
            found[value(step.row)].append(number)
        lines.append(row_of([f"**{factor}**", *[""] * len(columns)]))
        for name, numbers in found.items():
            lines.append(row_of(line(name, [steps[n] for n in numbers], [before[n] for n in numbers if before])))
    return [*lines, ""]


def table_head(columns: list[str]) -> list[str]:
    return [row_of(columns), row_of(["---", *["---:"] * (len(columns) - 2), "---"])]


def row_of(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def written() -> str:
    """The page."""
    steps = list(compare(load("train_steps.json"), configs()))
    peaks = json.loads(Path(__file__).with_name("steps_before.json").read_text(encoding="utf-8"))
    before = [abs(peak / step.row["peak"] - 1) for peak, step in zip(peaks, steps, strict=True)]
    told = f"Before, over these {len(steps)} rows: median {median(before):.1%}, 95th percentile {high(before):.1%}."
    lines = [HEAD, "", told, "", *table("Whole models", steps, FACTORS, before)]
    lines += table("Four layers of a model of each family", list(families()), SMALL, [])
    worst = [(max(step.errors.items(), key=lambda pair: abs(pair[1])), step) for step in steps]
    lines += ["## Furthest off in any phase", "", *table_head(["Step", "Error", "Phase"])]
    for (phase, error), step in sorted(worst, key=lambda one: -abs(one[0][1]))[:12]:
        lines.append(row_of([name_of(step.row), f"{error:+.3%}", phase]))
    return "\n".join([*lines, "", *public_records()]) + "\n"


def public_records() -> list[str]:
    """What people measured, by source."""
    cases = [*ladder(), *read(load("train_peaks.json"))[0]]
    rows = compare_records(cases)
    lines = [RECORDS, "", *table_head(["Source", "Rows", "Median", "Worst", ""])]
    for source in dict.fromkeys(row.case.record["framework"] for row in rows):
        off = [row.error for row in rows if row.case.record["framework"] == source]
        figures = (f"{median(map(abs, off)):.1%}", f"{max(off, key=abs):+.1%}")
        lines.append(row_of([source, str(len(off)), *figures, ""]))
    return [*lines, "", LEFT]


def main() -> None:
    print(written(), end="")


if __name__ == "__main__":
    main()
