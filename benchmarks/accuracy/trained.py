"""python -m benchmarks.accuracy.trained [TRAINED.json]: tokens a second of training steps, measured and predicted.

By trainer, GPU, format and model: median error, how many lie within 25 %, how many inside the range, and how wide that
is. Then each model, and each GPU, is left out in turn: one factor a trainer is fitted on all others and judged on it.
The constants themselves are fitted to all rows: this does not say how right they are for what none of them has.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.accuracy.judged import Judged, grouped, left_out_in_turn, rows_of, summary
from benchmarks.accuracy.records import LeftOut
from calc import Architecture
from calc.errors import ConfigError
from calc.hardware.gpu import GPU
from calc.hardware.gpus import gpus
from calc.time.training import training_speed
from calc.training import Products, Recompute, TrainingLayout, TrainingScenario, TrainingWorkload

ROWS = Path(__file__).parents[3] / "shared" / "truth" / "trained.json"
PRODUCTS: dict[str, Products] = {"bf16": "compute", "fp8": "fp8", "fp8 rowwise": "fp8", "mxfp8": "mxfp8"}
PRODUCTS |= {"nvfp4": "nvfp4"}
RECOMPUTE: dict[str, Recompute] = {"selective": "alternate", "full": "full"}
"""torchtitan's words; the modules that Megatron-Bridge's recipes name compute little."""
ADAPTERS = 0.01
"""Share of the weights that LoRA trains, where targets and rank are not stated."""
FIRST_FUSED = "26.06"
"""Megatron-Bridge's release from which experts' kernels are fused, and whole iterations are CUDA graphs."""


def gpu_of(name: str) -> GPU | None:
    """Of the catalogue, or torchtitan's H100 with HBM2e, whose peak at 500 W is fitted to its own 18 rows."""
    if name == "h100-sxm-500w":
        full = gpus()["h100-sxm"]
        peaks: dict[Any, float] = {dtype: 0.77 * peak for dtype, peak in full.tflops.items()}
        return full.model_copy(update={"id": name, "bandwidth_gb_s": 2400.0, "tflops": peaks})
    return gpus().get(name)


def framework_of(row: Mapping[str, Any]) -> str:
    """The name that efficiencies know a release of a trainer by."""
    name = str(row["framework"])
    return f"{name} before {FIRST_FUSED}" if name == "megatron-bridge" and row["version"] < FIRST_FUSED else name


def layout_of(row: Mapping[str, Any]) -> TrainingLayout:
    """As Megatron-Bridge's recipes have it: routed experts are whole, and spread over tensor-parallel ranks too."""
    tp, pp, cp = row["tp"], row["pp"], row["cp"]
    dp = row["n_gpus"] // (tp * pp * cp)
    zero = 3 if (row["fsdp"] or 0) > 1 else 1
    ep = row["ep"]
    return TrainingLayout(tp=tp, pp=pp, cp=cp, dp=dp, ep=ep, vp=row["vp"] or 1, etp=int(ep > 1), zero=zero)


def trained(row: Mapping[str, Any], architecture: Architecture) -> Judged | LeftOut:
    """A row with its prediction, or why it is left out."""
    gpu = gpu_of(row["gpu"])
    if gpu is None:
        return LeftOut(row, f"no such GPU in the catalogue: {row['gpu']}")
    if row["accumulation"] is None:
        return LeftOut(row, "micro-batches of the pipeline not stated")
    work = TrainingWorkload(
        micro_batch=row["mbs"],
        sequence=row["sequence"],
        accumulation=row["accumulation"],
        method=row["method"],
        products=PRODUCTS[row["precision"]],
        recompute=RECOMPUTE.get(row["recompute"], "none"),
    )
    try:
        speed = training_speed(
            architecture,
            TrainingScenario(workload=work, layout=layout_of(row)),
            gpu,
            framework=framework_of(row),
            trained=1.0 if work.trains_base else ADAPTERS,
        )
    except ConfigError as error:
        return LeftOut(row, f"a layout that is refused: {error}")
    return Judged(row, speed.time().tokens_per_s_per_gpu, float(row["tokens_s_gpu"]))


def predicted(rows: Iterable[Mapping[str, Any]], configs: Mapping[str, Any]) -> Iterator[Judged | LeftOut]:
    """Every row with its prediction, or why it is left out."""
    architecture = cache(lambda model: Architecture.from_config(configs[model]))
    for row in rows:
        yield trained(row, architecture(row["model"]))


OPENING = """# Training steps beside measured ones

Written by `python -m benchmarks.accuracy.trained > docs/training_speed.md`: {n} public runs, tokens a second predicted
against measured. The error is the median of its size, the bias the median with its sign; inside: within the range
shown; width: high end over low end. The constants are fitted to these rows; "left out" refits one factor a trainer
without a model, or a GPU, and judges it there. Which kernels sort and send tokens to experts, CUDA graphs and what is
recomputed within a layer are stated in few records, and models with experts depend on them most.
"""


def main() -> None:
    rows, configs = rows_of(Path(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
    every = list(predicted(rows, configs))
    steps = [step for step in every if isinstance(step, Judged)]
    sparse = {model for model, config in configs.items() if Architecture.from_config(config).experts}
    print(OPENING.format(n=len(steps)))
    print("| | Rows | Error | Bias | Within 25 % | Inside | Width |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    print(row_of("**all**", summary(steps)))
    for name, wanted in (("with experts", True), ("dense", False)):
        print(row_of(name, summary([step for step in steps if (step.row["model"] in sparse) == wanted])))
    for column in ("framework", "version", "gpu", "precision", "model"):
        print(f"| **{column}** | | | | | | |")
        for name, group in grouped(steps, column).items():
            print(row_of(name, summary(group)))
    print("\n| Left out | Rows | Error | Within 25 % | Nine of ten within |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for column in ("model", "gpu"):
        fit = left_out_in_turn(steps, column, "framework")
        shares = (f"{100 * fit[name]:.1f} %" for name in ("median_error", "within_25", "nine_of_ten"))
        print(f"| each {column} | {fit['rows']} | {' | '.join(shares)} |")
    print()
    for reason, count in Counter(left.reason for left in every if isinstance(left, LeftOut)).most_common():
        print(f"- {count} not compared: {reason}")


def row_of(name: str, group: Mapping[str, Any]) -> str:
    """A row of the table."""
    shares = (f"{100 * group[name]:.1f} %" for name in ("median_error", "bias", "within_25", "inside"))
    return f"| {name} | {group['rows']} | {' | '.join(shares)} | {group['width']} |"


if __name__ == "__main__":
    main()
