"""python -m benchmarks.accuracy.vllm_kv [PLANS.json]: our plan of vLLM's cache beside the plans of its own code.

PLANS.json has `configs` by model and `rows`, each a plan that vLLM 0.33's `get_kv_cache_configs` made without a GPU;
without it, the sample under tests/data. Each is asked as a user would: the bytes of the cache are
`--kv-cache-memory-bytes`, and its figures are those of the report's `kv_budget`."""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.oracle.vllm_plans import compact, patched
from calc import Architecture, Layout, Overhead, Precision, Report, Workload, report
from calc.hardware.gpus import gpus
from calc.serving.engines.vllm.cache import CachePlan
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.memory import KVBudget, Serving

DATA = Path(__file__).parents[2] / "tests" / "data"
AUTO = -1
"""max_model_len of a plan that takes the longest that fits."""
REPORTED = ("limits", "block_size", "blocks", "tokens", "concurrency", "refused", "max_length")
"""What a report says of a plan; the others are inside."""
FIGURES = (*REPORTED, "block_bytes", "groups")


def asked(config: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as a report is asked for it."""
    options = VLLMOptions(kv_cache_memory_bytes=row["budget"], **row["options"])
    return {
        "engine": VLLM(options),
        "precision": Precision.of(config, kv=row["kv"]),
        "layout": Layout(tp=row["tp"], pp=row["pp"]),
        "overhead": Overhead(),
    }


def computed(config: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """The same figures of our plan."""
    serving = Serving.of(read(json.dumps(config)), **asked(config, row))
    allocation = serving.on(gpus()[row["gpu"]], Workload(context=row["length"]))
    budget, found, length = allocation.kv_budget, allocation.cache, row["length"]
    assert budget is not None
    assert isinstance(found, CachePlan)
    figures = reported(config, row, budget, allocation.limits.in_flight_tokens)
    if "refused" in figures:
        return figures
    groups = [
        [
            length if group.block is None else group.block,
            group.blocks(length, found.in_flight),
            *(sum(n in stage for part in group.parts for n in part.layers) for stage in serving.laid_out.ranges),
        ]
        for group in found.groups
    ]
    return figures | {"block_bytes": max(found.block_bytes), "groups": sorted(groups)}


def reported(config: Mapping[str, Any], row: Mapping[str, Any], budget: KVBudget, in_flight: int) -> dict[str, Any]:
    """The figures that a report has of a plan, under the names of a row. Its longest request is no longer than what the
    model was made for, which some plans go beyond."""
    most = min(row["length"], read(json.dumps(config)).max_positions or row["length"])
    shown: dict[str, Any] = {"limits": [budget.max_num_batched_tokens, budget.max_num_seqs, in_flight]}
    if row["asked_length"] == AUTO:
        shown["max_length"] = budget.max_model_len
    if budget.max_model_len < most or budget.concurrency < 1:
        return shown | {"refused": budget.max_model_len}
    figures = {"block_size": budget.block_size, "blocks": budget.blocks}
    return shown | figures | {"tokens": budget.tokens, "concurrency": budget.concurrency}


def weighed(config: Mapping[str, Any], row: Mapping[str, Any]) -> Report:
    return report(config, workload=Workload(context=row["length"]), gpus=[gpus()[row["gpu"]]], **asked(config, row))


@cache
def read(config: str) -> Architecture:
    return Architecture.from_config(json.loads(config))


def differing(ours: Mapping[str, Any], row: Mapping[str, Any], names: tuple[str, ...] = FIGURES) -> list[str]:
    """Names of the figures that differ."""
    theirs = {**row, "max_length": row["length"]} if row["asked_length"] == AUTO else row
    return [name for name in names if theirs.get(name) != ours.get(name)]


def sample() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Configs by model and plans, as tests have them."""
    data = json.loads((DATA / "vllm_kv.json").read_text(encoding="utf-8"))
    published = {row["id"]: row["config"] for row in json.loads((DATA / "oracle.json").read_text(encoding="utf-8"))}
    return published | data["configs"], data["rows"]


def main(paths: list[str]) -> None:
    if paths:
        data = json.loads(Path(paths[0]).read_text(encoding="utf-8"))
        configs, rows = patched(data), [compact(row) for row in data["rows"]]
    else:
        configs, rows = sample()
    exact: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        family = configs[row["model"]]["model_type"]
        off = differing(computed(configs[row["model"]], row), row)
        told = weighed(configs[row["model"]], row)
        figures = reported(configs[row["model"]], row, told.kv_budget[0], told.verdicts[0].limits.in_flight_tokens)
        same = not differing(figures, row, REPORTED)
        exact[family].update({"rows": 1, "report": same, "all": not off, **{name: name not in off for name in FIGURES}})
    columns = ("rows", "report", "all", *FIGURES)
    print(f"{'family':24}" + "".join(f"{name:>13}" for name in columns))
    for family, counts in sorted(exact.items()):
        print(f"{family:24}" + "".join(f"{counts[name]:13,}" for name in columns))
    total = sum(exact.values(), Counter())
    print(f"{'in all':24}" + "".join(f"{total[name]:13,}" for name in columns))


if __name__ == "__main__":
    main(sys.argv[1:])
