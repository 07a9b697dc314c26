"""python -m benchmarks.accuracy.quantizing > docs/quantizing.md: what quantizing took by logs, issues and documents,
what the tools' rules give for the same, and how each figure comes about on one example."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.accuracy.steps import DATA
from calc.quantizing import RECIPES, Quantizing, QuantizingPhase, QuantizingReport, quantizing_report
from presets import models

FILE = DATA / "quantising.json"
EXAMPLE = "meta-llama/Llama-3.3-70B-Instruct"


def rows() -> list[dict[str, Any]]:
    """What others state, each with its address."""
    known: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return known


def computed(row: Mapping[str, Any]) -> int:
    """Bytes of ours for the same figure."""
    report = report_on(row["model"], **row["options"])
    if row["of"] == "result":
        return report.disk[-1].bytes
    return next((phase.gpu_bytes for phase in report.phases if str(phase.name) == row.get("phase")), report.gpu)


def error(row: Mapping[str, Any]) -> float | None:
    """Relative error; None where the row states limits."""
    return computed(row) / row["bytes"] - 1 if "bytes" in row else None


def within(row: Mapping[str, Any]) -> bool:
    """Whether ours is within the limits that a row states."""
    ours = computed(row)
    return bool(row.get("at_least", 0) <= ours <= row.get("at_most", ours))


def report_on(model: str, **options: Any) -> QuantizingReport:
    return quantizing_report(models()[model].config, Quantizing(**options), model=model)


def page() -> str:
    return "\n".join([*lead(), *judged(), *example(), ""])


LEAD = """# What quantizing a model takes

<!-- written by python -m benchmarks.accuracy.quantizing -->

GPU memory, host memory and disk of the conversion itself, by the rules of each tool's own code: what is alive together
at the peak of each phase, with nothing fitted. `weighbridge quantize MODEL --to FORMAT` prints it, `/quantize` shows
it. Sources and the commits that were read stand at the top of `calc/quantizing/calibrated.py` and `files.py`.
"""
OFF = """
What is off. GPTQ on one rank and SmoothQuant with GPTQ on one GPU took about one Hessian of down_proj more than the
same on two GPUs and than the log of one process, which ours meets to 1 and 2 %; the code that was read shows no reason.
AWQ with experts: how long its texts were is not stated, and 256 of 512 tokens can't be, of which the inputs of every
expert's down_proj alone are 25.8 GB (every expert sees every token, `modeling/qwen3_moe.py`). The difference of the two
figures is that of 46,490 tokens, 182 a text; it is taken for both, so that one of them is a check and the other is not.
MLX reads sources further ahead than by the ten operations that its scheduler lets run. AutoAWQ's report is of December
2023; the code that was read is of its last release. phi-4's 9 GB are a round figure."""


def lead() -> Iterator[str]:
    yield LEAD
    yield "| tool | formats | calibration |"
    yield "| --- | --- | --- |"
    for recipe in RECIPES:
        calibration = f"{recipe.samples} x {recipe.tokens:,} tokens" if recipe.samples else "none"
        yield f"| {recipe.tool}: {recipe.method} | {', '.join(sorted(recipe.formats))} | {calibration} |"


def judged() -> Iterator[str]:
    yield ""
    yield "## Next to what others state"
    yield ""
    yield "| model | what is stated | GB | ours | error |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for row in rows():
        off = error(row)
        stated = f"{row['bytes'] / 1e9:.2f}" if "bytes" in row else limits(row)
        verdict = ("within" if within(row) else "outside") if off is None else f"{off:+.1%}"
        what = f"[{row['what']}]({row['source']})"
        yield f"| {row['model']} | {what} | {stated} | {computed(row) / 1e9:.2f} | {verdict} |"
    yield OFF


def limits(row: Mapping[str, Any]) -> str:
    low, high = row["at_least"], row.get("at_most")
    return f"above {low / 1e9:.1f}" + (f", up to {high / 1e9:.1f}" if high else "")


def example() -> Iterator[str]:
    yield ""
    yield f"## On one example: {EXAMPLE}"
    for recipe in RECIPES:
        to = sorted(recipe.formats)[-1] if recipe.tool == "llm-compressor" else sorted(recipe.formats)[0]
        report = report_on(EXAMPLE, to=to, tool=recipe.tool)
        yield ""
        yield f"### {recipe.tool}, {to}"
        for phase in report.phases:
            yield ""
            yield from table(phase)


def table(phase: QuantizingPhase) -> Iterator[str]:
    yield f"{phase.name}: {phase.gpu_bytes:,} bytes on the GPU, {phase.ram_bytes:,} in host memory."
    yield ""
    yield "| where | what | formula | with values | bytes |"
    yield "| --- | --- | --- | --- | ---: |"
    for where, parts in (("GPU", phase.gpu), ("host", phase.ram)):
        for part in parts:
            yield f"| {where} | {part.what} | `{part.formula}` | `{part.values}` | {part.bytes:,} |"


if __name__ == "__main__":
    print(page(), end="")
