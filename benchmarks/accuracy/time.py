"""python -m benchmarks.accuracy.time: every measured speed beside the prediction with its range, written to
pages/evidence/time.json for the Accuracy page.

By kind, engine and GPU: median error, how many lie within 25 %, how many inside the range, how wide that is, and why
rows are left out. Of each kind one factor an engine is fitted on half of the GPUs and judged on the other half, 40
times: what is right by chance on these GPUs would not be so on others.
"""

import json
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks.accuracy.full_server import full_rate
from benchmarks.accuracy.speed_cases import Case, LeftOut, divided, read_case
from benchmarks.accuracy.trained import PRODUCTS
from benchmarks.accuracy.write_speed import rows_of
from calc import Layout
from calc.model.feedforward import MoE
from calc.time.estimate import End, Estimate
from calc.time.serving import FullServer, Speed
from calc.time.training import training_speed
from calc.training import TrainingLayout, TrainingScenario, TrainingWorkload
from pages.parts.verify.evidence import SPEEDS

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "tests" / "data" / "speed.json"
LLAMACPP_CHUNK = 512
"""Tokens of a physical batch (`--ubatch-size`)."""
WAITING = 70_000
"""Tokens at once beyond which a run's own times grow with the number of requests: its cache was full."""
HALVES, SEED = 40, 11
RUNS = {
    ("Meta-Llama-3-8B", "gb300"): (128, 2, 1),
    ("Meta-Llama-3-8B", "gb200"): (128, 2, 1),
    ("Meta-Llama-3-8B", "b200"): (128, 2, 1),
    ("Meta-Llama-3-8B", "h100-sxm"): (128, 1, 1),
    ("Llama-3.1-405B", "gb300"): (1536, 1, 4),
    ("Llama-3.1-405B", "gb200"): (1536, 1, 4),
    ("Llama-3.1-405B", "b200"): (64, 1, 8),
    ("Llama-3.1-405B", "h100-sxm"): (512, 1, 8),
    ("DeepSeek-V3", "gb300"): (4096, 1, 4),
    ("DeepSeek-V3", "gb200"): (4096, 1, 4),
    ("DeepSeek-V3", "b200"): (2048, 1, 1),
    ("gpt-oss-120b", "gb300"): (1280, 2, 1),
    ("gpt-oss-120b", "gb200"): (1280, 1, 1),
    ("gpt-oss-120b", "b200"): (512, 4, 1),
    ("gpt-oss-120b", "h100-sxm"): (512, 4, 1),
    ("Qwen3-30B-A3B", "gb200"): (512, 4, 1),
    ("Qwen3-30B-A3B", "b200"): (512, 1, 1),
    ("Qwen3-30B-A3B", "h100-sxm"): (512, 2, 24),
}
"""Sequences of a step and of a micro-batch, and virtual pipeline stages, of Megatron-Bridge's runs, by its
docs/performance-summary.md (25.11, GBS, MBS and VP)."""
COLUMNS = ("kind", "model", "gpu", "gpus", "format", "engine", "batch", "prompt", "output", "unit")
COLUMNS += ("low", "expected", "high", "measured", "source")
"""Of a row of the file; the source is the number of one of `sources`."""
BOUND = "upper bound of a server at load"
"""A kind of row that is only held against the high end."""


class Timed(NamedTuple):
    """A row and what is predicted for it: seconds, or tokens a second."""

    case: Case
    kind: str
    unit: str
    predicted: Estimate
    measured: float

    @property
    def error(self) -> float:
        return self.predicted.expected / self.measured - 1

    @property
    def inside(self) -> bool:
        return self.predicted.low <= self.measured <= self.predicted.high

    @property
    def width(self) -> float:
        return self.predicted.high / self.predicted.low


def engine_of(row: Mapping[str, Any]) -> str:
    """The name that the rows of efficiencies know it by."""
    name = str(row["engine"])
    return "llamacpp" if name.startswith(("llama.cpp", "ollama")) else name


def speed(case: Case, layout: Layout | None = None) -> Speed:
    """As it ran."""
    layout = layout or Layout(tp=case.layout.tp)
    on = case.architecture, case.precision, layout, case.gpu
    return divided(engine_of(case.row), *on, kernels_of(case.row))


def kernels_of(row: Mapping[str, Any]) -> str:
    """Of llama.cpp's rows those on CUDA and Metal are of builds before June 2024, without flash attention."""
    return f"{engine_of(row)}+cublas+scores" if row["engine"] == "llama.cpp" else engine_of(row)


def seconds_of(row: Mapping[str, Any]) -> float:
    """A measured time, or the time of a token where a rate was measured."""
    value, unit = float(row["value"]), str(row["unit"])
    if unit.startswith("ms"):
        return value / 1000
    return value if unit.startswith("s ") else 1 / value


def decoding(case: Case) -> Timed:
    """One sequence, token by token; LMDeploy's time counts the prompt too."""
    row, run = case.row, speed(case)
    prompt, output = row["input_len"], output_of(row)
    context = max(2, prompt + output // 2)

    def token(end: End) -> float:
        step = float(run.step(1, context, end))
        if "includes prefill" in row["notes"]:
            return (float(run.prompt(1, prompt, end)) + (output - 1) * step) / output
        return step

    return Timed(case, "decode, batch 1", "s", Estimate.over(token), seconds_of(row))


def output_of(row: Mapping[str, Any]) -> int:
    return int(str(row["output_len"]).lstrip("~"))


def prefilling(case: Case) -> Timed:
    row, run = case.row, speed(case)
    prompt, chunk = row["input_len"], LLAMACPP_CHUNK if engine_of(case.row) == "llamacpp" else None
    measured = prompt / float(row["value"]) if row["unit"] == "tokens/s" else seconds_of(row)
    return Timed(case, "prefill", "s", Estimate.over(lambda end: float(run.prompt(1, prompt, end, chunk))), measured)


def batched(case: Case) -> Timed | LeftOut:
    """A static batch from its prompts to its last token; a server with as many requests at once; a server at its most
    throughput."""
    row, notes = case.row, str(case.row["notes"])
    if row["batch"] == "max":
        return full_server(case)
    batch, prompt, output = row["batch"], row["input_len"], output_of(row)
    if "static batch" in notes or row["unit"].startswith("s (end"):
        if batch * (prompt + output) > WAITING and "static batch" not in notes:
            return LeftOut(row, "requests waited for cache, whose size is not stated")
        run = speed(case)
        whole = Estimate.over(
            lambda end: (
                float(run.prompt(batch, prompt, end)) + (output - 1) * float(run.step(batch, prompt + output // 2, end))
            )
        )
        measured = float(row["value"]) if row["unit"].startswith("s (end") else batch * output / float(row["value"])
        return Timed(case, "batched decode", "s", whole, measured)
    if row["engine"].startswith("nim") or "TPOT" in notes:
        run = speed(case)
        rate = Estimate.over(lambda end: batch / FullServer(run, prompt, output, prompt, end=end).step(batch).item())
        return Timed(case, "batched decode", "tokens/s", rate, float(row["value"]))
    if ("all" in notes and "requests given at once" in notes) or "prefill-bound" in notes:
        return possible(case)
    return LeftOut(row, "how many requests ran together is not stated")


def possible(case: Case) -> Timed:
    """What is possible with all requests at once, were there room: no measured rate may lie above it."""
    row, run = case.row, speed(case)
    batch, prompt, output = row["batch"], row["input_len"], output_of(row)

    def rate(end: End) -> float:
        step = float(run.step(batch, prompt + output // 2, end))
        return batch * output / (float(run.prompt(batch, prompt, end)) + (output - 1) * step)

    return Timed(case, BOUND, "tokens/s", Estimate.over(rate), float(row["value"]))


def full_server(case: Case) -> Timed | LeftOut:
    """All that the cache holds at once."""
    rate = full_rate(case)
    if rate is None:
        return LeftOut(case.row, "the cache holds no request")
    return Timed(case, "full server", "tokens/s", rate, float(case.row["value"]))


def training(case: Case) -> Timed | LeftOut:
    row, notes = case.row, str(case.row["notes"])

    def stated(word: str) -> int:
        found = re.search(rf"{word} (\d+)", notes)
        return int(found[1]) if found else 1

    pp, cp, ep = stated("PP"), stated("CP"), stated("EP")
    dp = max(1, row["n_gpus"] // (row["tp"] * pp * cp))
    micro_batch, accumulation, vp = row["batch"], stated("grad accum"), 1
    if micro_batch is None:
        step, micro_batch, vp = RUNS[row["model"].rpartition("/")[2], row["gpu"]]
        accumulation = step // (micro_batch * dp)
    work = TrainingWorkload(
        micro_batch=micro_batch,
        sequence=row["input_len"],
        accumulation=accumulation,
        recompute="full" if "checkpointing True" in notes else "none",
        products=PRODUCTS.get(row["precision"], "compute"),
    )
    layout = TrainingLayout(
        tp=row["tp"],
        pp=pp,
        vp=vp,
        cp=cp,
        dp=dp,
        ep=min(ep, dp * cp),
        zero=3 if "FULL_SHARD" in notes or row["engine"] == "torchtitan" else 2 if "SHARD_GRAD" in notes else 1,
    )
    run = training_speed(
        case.architecture,
        TrainingScenario(workload=work, layout=layout),
        case.gpu,
        framework="megatron-bridge before 26.06" if row["engine"] == "megatron-bridge" else row["engine"],
    )
    sparse = any(isinstance(block.ffn, MoE) for block in case.architecture.blocks)
    kind = "training, with experts" if sparse else "training"
    case = case._replace(row={**row, "batch": micro_batch})
    return Timed(case, kind, "tokens/s/GPU", run.time().tokens_per_s_per_gpu, float(row["value"]))


def predict(case: Case) -> Timed | LeftOut:
    match case.row["kind"]:
        case "decode":
            return decoding(case)
        case "prefill":
            return prefilling(case)
        case "train":
            return training(case)
    return batched(case)


def found(rows: Iterable[Mapping[str, Any]]) -> list[Timed | LeftOut]:
    """Every row beside its prediction, or why it is left out."""
    cases = (read_case(row) for row in rows)
    return [predict(case) if isinstance(case, Case) else case for case in cases]


def summary(rows: Iterable[Timed], by: Callable[[Timed], Any]) -> dict[str, dict[str, float]]:
    groups: dict[str, list[Timed]] = defaultdict(list)
    for row in rows:
        groups[str(by(row))].append(row)
    return {
        name: {
            "rows": len(group),
            "median_error": round(median(abs(row.error) for row in group), 3),
            "bias": round(median(row.error for row in group), 3),
            "within_25": round(sum(abs(row.error) <= 0.25 for row in group) / len(group), 3),
            "worst": round(max(abs(row.error) for row in group), 3),
            "inside": round(sum(row.inside for row in group) / len(group), 3),
            "widest": round(max(row.width for row in group), 2),
        }
        for name, group in sorted(groups.items())
    }


def cross_validated(rows: list[Timed]) -> dict[str, dict[str, Any]]:
    """By kind: every prediction times one factor an engine, fitted on half of the GPUs and judged on the other half."""
    return {kind: halves([row for row in rows if row.kind == kind]) for kind in sorted({row.kind for row in rows})}


def halves(rows: list[Timed]) -> dict[str, Any]:
    """Of one kind; factors of engines that the first half has no row of stay 1."""
    gpus = sorted({row.case.gpu.id for row in rows})
    chance, medians, within = random.Random(SEED), [], []
    for _ in range(HALVES):
        half = set(chance.sample(gpus, len(gpus) // 2))
        errors = []
        for engine in {engine_of(row.case.row) for row in rows}:
            mine = [row for row in rows if engine_of(row.case.row) == engine]
            fit = [1 / (1 + row.error) for row in mine if row.case.gpu.id in half]
            factor = median(fit) if fit else 1.0
            errors += [abs((1 + row.error) * factor - 1) for row in mine if row.case.gpu.id not in half]
        medians.append(median(errors))
        within.append(sum(error <= 0.25 for error in errors) / len(errors))
    return {
        "gpus": len(gpus),
        "median_error": round(median(medians), 3),
        "worst_half": round(max(medians), 3),
        "within_25": round(median(within), 3),
    }


PLACE = re.compile(r"github (?P<repository>\S+?)(?:@(?P<commit>\w+) (?P<path>\S+)| pull (?P<pull>\d+))")
"""A source as rows write it: a file of a repository at a commit, or a thread; others begin with their address."""


def address(source: str) -> str:
    """The address of a source, without the remark that may follow it."""
    place = PLACE.match(source)
    if place is None:
        return "https://" + source.removeprefix("https://").split()[0]
    within = f"pull/{place['pull']}" if place["pull"] else f"blob/{place['commit']}/{place['path']}"
    return f"https://github.com/{place['repository']}/{within}"


def whole(rows: list[Timed | LeftOut]) -> dict[str, Any]:
    """What the file holds."""
    timed = [row for row in rows if isinstance(row, Timed)]
    out = Counter((str(row.record["kind"]), row.reason) for row in rows if isinstance(row, LeftOut))
    served = [row for row in timed if row.kind in ("full server", "batched decode", BOUND) and row.unit == "tokens/s"]
    above = [row for row in served if row.measured > row.predicted.high]
    compared = [row for row in timed if row.kind != BOUND]
    addresses = [address(str(row.case.row["source"])) for row in timed]
    sources = list(dict.fromkeys(addresses))
    return {
        "by_kind": summary(compared, lambda row: row.kind),
        "by_engine": summary(compared, lambda row: f"{row.kind}: {row.case.engine}"),
        "by_gpu": summary(compared, lambda row: f"{row.kind}: {row.case.gpu.id}"),
        "halves": HALVES,
        "cross_validated": cross_validated(compared),
        "served": len(served),
        "measured_above_high": [row.case.name for row in above],
        "sources": sources,
        "columns": COLUMNS,
        "rows": [
            [
                row.kind,
                row.case.row["model"],
                row.case.gpu.id,
                row.case.row["n_gpus"],
                row.case.row["precision"],
                row.case.engine,
                row.case.row["batch"],
                row.case.row["input_len"],
                row.case.row["output_len"],
                row.unit,
                *(float(f"{figure:.4g}") for _, figure in row.predicted),
                float(f"{row.measured:.4g}"),
                sources.index(source),
            ]
            for row, source in zip(timed, addresses, strict=True)
        ],
        "left_out": [{"kind": kind, "reason": reason, "count": count} for (kind, reason), count in sorted(out.items())],
    }


def main() -> None:
    """A path of other rows of the same form may be given: then nothing is written."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    result = whole(found(rows_of(path)))
    for name, row in {**result["by_kind"], **result["by_engine"]}.items():
        print(f"{name:48s} {row}")
    for kind, row in result["cross_validated"].items():
        print(f"cross-validated: {kind:31s} {row}")
    print("of", result["served"], "serving rates above the high end:", result["measured_above_high"])
    for left in result["left_out"]:
        print("left out", left)
    if len(sys.argv) == 1:
        SPEEDS.write_text(as_text(result), encoding="utf-8")


def as_text(result: dict[str, Any]) -> str:
    """JSON with a row a line."""
    parts = []
    for name, value in result.items():
        if isinstance(value, list) and name not in ("columns", "measured_above_high"):
            lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in value)
            parts.append(f' "{name}": [\n{lines}\n ]' if lines else f' "{name}": []')
        elif name.startswith("by_"):
            lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in value.items())
            parts.append(f' "{name}": {{\n{lines}\n }}')
        else:
            parts.append(f' "{name}": {json.dumps(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
