"""python -m benchmarks.accuracy: ours beside every public record and every computed training step, written to
presets/accuracy.json for the Accuracy screen. They are those under tests/data, each with its address; run it after any
change of a formula."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.accuracy import records, steps, training, weights
from benchmarks.accuracy.serving import (
    Comparison,
    Found,
    LeftOut,
    other_engines,
    transformers_peaks,
    vllm_budgets,
    vllm_tokens,
)

ROOT = Path(__file__).parents[2]
FILE = ROOT / "presets" / "accuracy.json"
TRACKER = "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/distributed/_tools/mem_tracker.py"
LADDER = "https://github.com/pytorch/torchtune"
UNITS = {"GiB": 2**30, "MiB": 2**20, "tokens": 1, "bytes": 1}


def load(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((ROOT / "tests" / "data" / name).read_text(encoding="utf-8"))
    return rows


def loaded_weights(rows: list[dict[str, Any]]) -> Iterator[Found]:
    """What vLLM logs on loading."""
    for run in records.runs(rows, "weights_gib"):
        name = f"{run.record['model']}, {run.record.get('quant')}"
        if isinstance(run, records.LeftOut):
            yield LeftOut(kind="weights", name=name, reason=run.reason)
            continue
        logged = float(run.record["measured"]["weights_gib"])
        yield Comparison(
            kind="weights, quantised" if run.quantised else "weights, 16 bits",
            name=f"{name}, {run.layout.gpus} GPUs" if run.layout.gpus > 1 else name,
            predicted=weights.parts(run).total / 2**30,
            measured=logged,
            unit="GiB",
            source=run.record["url"],
        )


def training_peaks(rows: list[dict[str, Any]]) -> Iterator[Found]:
    cases, out = training.read(rows)
    for row in training.compare([*training.ladder(), *cases]):
        case = row.case
        yield Comparison(
            kind="training peaks",
            name=f"{case.record['model']}, {case.record['framework']}, {case.record['method']}",
            predicted=row.predicted / 2**30,
            measured=case.measured / 2**30,
            unit="GiB",
            source=case.record.get("url", LADDER),
        )
    for left in out:
        name = f"{left.record['model']}, {left.record['framework']}"
        yield LeftOut(kind="training peaks", name=name, reason=left.reason)


def tracked_steps() -> Iterator[Comparison]:
    """Peaks of whole training steps that torch computed."""
    for step in steps.compare(steps.load("train_steps.json"), steps.configs()):
        yield Comparison(
            kind="training steps, computed",
            name=steps.name_of(step.row),
            predicted=max(step.predicted.values()),
            measured=step.row["peak"],
            unit="bytes",
            source=TRACKER,
        )


def found() -> list[Found]:
    """Every figure of every public record, and of every step that was computed."""
    served = load("measured.json")
    kinds = (loaded_weights, vllm_tokens, vllm_budgets, transformers_peaks, other_engines)
    return [row for kind in kinds for row in kind(served)] + [
        *training_peaks(load("train_peaks.json")),
        *tracked_steps(),
    ]


def summed_up() -> dict[str, Any]:
    """What the file holds: sizes in bytes, and how many records are left out for which reason."""
    rows = found()
    out = Counter((row.kind, row.reason) for row in rows if isinstance(row, LeftOut))
    return {
        "rows": [
            {
                "kind": row.kind,
                "name": row.name,
                "unit": "tokens" if row.unit == "tokens" else "bytes",
                "predicted": round(row.predicted * UNITS[row.unit]),
                "measured": round(row.measured * UNITS[row.unit]),
                "source": row.source,
            }
            for row in rows
            if isinstance(row, Comparison)
        ],
        "left_out": [{"kind": kind, "reason": reason, "count": count} for (kind, reason), count in out.items()],
    }


def main() -> None:
    whole = summed_up()
    lines = {
        name: ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows) for name, rows in whole.items()
    }
    text = ",\n".join(f' "{name}": [\n{rows}\n ]' for name, rows in lines.items())
    FILE.write_text(f"{{\n{text}\n}}\n", encoding="utf-8")
    print(f"{len(whole['rows'])} rows in {FILE.name}")
