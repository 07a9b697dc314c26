"""Ours beside every public record and every computed training step: pages/evidence/accuracy.json, which the Accuracy
screen shows, and the table in both READMEs.

They are those under tests/data, each with its address.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.accuracy import sglang, steps
from benchmarks.accuracy.found import Comparison, Found
from benchmarks.accuracy.found import LeftOut as OneLeftOut
from benchmarks.accuracy.serving import other_engines, transformers_peaks, vllm_budgets, vllm_tokens
from benchmarks.accuracy.training import training_peaks
from benchmarks.accuracy.weights import loaded_weights
from calc.errors import Frozen, Message
from calc.units import GIB, MIB
from pages.parts.verify.evidence import EXPLAINED, FILE, KINDS, Accuracy, Compared, LeftOut, summaries
from pages.parts.words import percent, say_in, table

ROOT = Path(__file__).parents[2]
READMES = {"en": ROOT / "README.md", "zh": ROOT / "README.zh-CN.md"}
START, END = "<!-- written by python -m benchmarks.accuracy -->\n", "<!-- to here -->\n"
TRACKER = "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/distributed/_tools/mem_tracker.py"
UNITS = {"GiB": GIB, "MiB": MIB, "tokens": 1, "bytes": 1}


def load(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((ROOT / "tests" / "data" / name).read_text(encoding="utf-8"))
    return rows


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
        *sglang.logs(served + load("sglang.json")),
        *training_peaks(load("train_peaks.json")),
        *tracked_steps(),
    ]


def evidence() -> Accuracy:
    """Sizes in bytes, and how many records are left out for which reason."""
    rows = found()
    out = Counter((row.kind, row.reason) for row in rows if isinstance(row, OneLeftOut))
    return Accuracy(
        rows=tuple(compared(row) for row in rows if isinstance(row, Comparison)),
        left_out=tuple(LeftOut(kind=kind, reason=reason, count=count) for (kind, reason), count in out.items()),
    )


def compared(row: Comparison) -> Compared:
    return Compared(
        kind=row.kind,
        name=row.name,
        unit="tokens" if row.unit == "tokens" else "bytes",
        predicted=round(row.predicted * UNITS[row.unit]),
        measured=round(row.measured * UNITS[row.unit]),
        source=row.source,
    )


HEAD = (Message("Figure"), Message("Records"), Message("Median error"), Message("95% within"))


def readme_table(accuracy: Accuracy, language: str) -> str:
    """The README's, a line for each kind."""
    rows = [
        (
            say_in(language, EXPLAINED[row.kind], kind=KINDS[row.kind]),
            str(row.records),
            percent(row.median),
            percent(row.p95),
        )
        for row in summaries(accuracy)
    ]
    return table((say_in(language, title) for title in HEAD), rows, numbers=3) + "\n"


def in_readme(text: str) -> str:
    """The table as a README has it."""
    return text.partition(START)[2].partition(END)[0]


def written(lists: Frozen) -> str:
    """The file: a record a line."""
    parts = []
    for name, rows in lists.model_dump().items():
        lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
        parts.append(f' "{name}": [\n{lines}\n ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def write(accuracy: Accuracy) -> None:
    FILE.write_text(written(accuracy), encoding="utf-8")
    for language, readme in READMES.items():
        text = readme.read_text(encoding="utf-8")
        before, after = text.partition(START)[0], text.partition(END)[2]
        readme.write_text(f"{before}{START}{readme_table(accuracy, language)}{END}{after}", encoding="utf-8")
