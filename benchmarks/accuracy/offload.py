"""python -m benchmarks.accuracy.offload: speed with a part of the model on the host beside public measurements, for
pages/evidence/offload.json, which the Accuracy page shows."""

import json
from pathlib import Path
from statistics import median
from typing import Any

from calc import Architecture, Precision
from calc.hardware.computer import Computer
from calc.serving.engines.llamacpp.placement import Placement
from calc.time.estimate import Estimate
from calc.time.local import OffloadSpeed
from pages.parts.verify.evidence import OFFLOADED
from presets import models

ROOT = Path(__file__).parents[2]
CONTEXT = 1024
"""Tokens; the sources say little more than that prompts were short."""


def predicted(row: dict[str, Any], hosts: dict[str, Any]) -> Estimate:
    model = Architecture.from_config(models()[row["model"]].config)
    cards = (row["gpu"],) if "gpu" in row else ()
    placement = Placement.of(model.num_layers, row.get("n_gpu_layers"), [1.0] * len(cards), row.get("n_cpu_moe", 0))
    computer = Computer(my_gpus=cards, **hosts[row["host"]])
    speed = OffloadSpeed(model, Precision(weights="Q4_K_M"), placement, computer.gpus, computer.host)
    return Estimate.over(lambda end: 1 / speed.step(1, CONTEXT, end))


def compared() -> list[dict[str, Any]]:
    known = json.loads((ROOT / "tests" / "data" / "offload_speed.json").read_text(encoding="utf-8"))
    rows = []
    for row in known["rows"]:
        found = predicted(row, known["hosts"])
        rows.append(
            {
                **{name: row.get(name) for name in ("model", "gpu", "host", "n_gpu_layers", "n_cpu_moe")},
                "measured": row["tokens_per_s"],
                **{name: round(value, 1) for name, value in found},
                "source": known["sources"][row["source"]],
            }
        )
    return rows


def main() -> None:
    rows = compared()
    for row in rows:
        print(f"{row['model']:36}{row['gpu'] or 'no GPU':12}{row['measured']:>8}{row['expected']:>8}")
    errors = [abs(row["expected"] / row["measured"] - 1) for row in rows if row["n_gpu_layers"] or row["n_cpu_moe"]]
    print(f"partly on the host: {len(errors)} rows, median error {median(errors):.1%}, largest {max(errors):.1%}")
    lines = ",\n".join(f" {json.dumps(row)}" for row in rows)
    OFFLOADED.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
