"""python -m benchmarks.accuracy.vllm_kv [PLANS.json]: our plan of vLLM's cache beside the plans of its own code.

PLANS.json has `configs` by model and `rows`, each a plan that vLLM 0.33's `get_kv_cache_configs` made without a GPU;
without it, the sample under tests/data."""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.oracle.vllm_plans import compact, patched
from calc import Architecture, Layout
from calc.formats import CacheFormat
from calc.hardware.gpus import gpus
from calc.serving.engines.vllm.limits import Limits, limits
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.engines.vllm.plan import CachePlan, plan

DATA = Path(__file__).parents[2] / "tests" / "data"
AUTO = -1
"""max_model_len of a plan that takes the longest that fits."""
FIGURES = ("limits", "block_size", "blocks", "block_bytes", "tokens", "concurrency", "groups", "refused", "max_length")


def computed(config: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """The same figures of our plan."""
    architecture, tp, pp = read(json.dumps(config)), row["tp"], row["pp"]
    options, gpu = VLLMOptions(**row["options"]), gpus()[row["gpu"]]
    auto = row["asked_length"] == AUTO
    most = (architecture.max_positions or row["length"]) if auto else row["asked_length"]
    reserved = limits(options, gpu, architecture, most, pp=pp)
    stages = list(Layout(pp=pp).stages(architecture.num_layers))
    cache_format: CacheFormat = row["kv"]
    found = plan(architecture.rank(tp), stages, cache_format, options, gpu, tp=tp, limits=reserved)
    assert found is not None
    return figures(found, reserved, [row["budget"]] * pp, row["length"], stages, most if auto else None)


def figures(
    found: CachePlan, reserved: Limits, budgets: list[int], length: int, stages: list[range], most: int | None
) -> dict[str, Any]:
    shown: dict[str, Any] = {"limits": [reserved.step_tokens, reserved.sequences, reserved.in_flight_tokens]}
    if most is not None:
        shown["max_length"] = found.max_length(budgets, most)
    if not found.starts(budgets, length):
        return shown | {"refused": found.max_length(budgets, length)}
    blocks = found.blocks(budgets)
    return shown | {
        "block_size": found.block_size(length),
        "blocks": blocks,
        "block_bytes": max(found.block_bytes),
        "tokens": found.tokens(blocks, length),
        "concurrency": found.concurrency(blocks, length),
        "groups": sorted(
            [
                length if group.block is None else group.block,
                group.blocks(length, found.in_flight),
                *(sum(part.count(stage) for part in group.parts) for stage in stages),
            ]
            for group in found.groups
        ),
    }


@cache
def read(config: str) -> Architecture:
    return Architecture.from_config(json.loads(config))


def wrong(config: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    """Names of the figures that differ."""
    ours = computed(config, row)
    theirs = {**row, "max_length": row["length"]} if row["asked_length"] == AUTO else row
    return [name for name in FIGURES if theirs.get(name) != ours.get(name)]


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
        off = wrong(configs[row["model"]], row)
        exact[family].update({"rows": 1, **{name: name not in off for name in FIGURES}, "all": not off})
    columns = ("rows", "all", *FIGURES)
    print(f"{'family':24}" + "".join(f"{name:>13}" for name in columns))
    for family, counts in sorted(exact.items()):
        print(f"{family:24}" + "".join(f"{counts[name]:13,}" for name in columns))
    total = sum(exact.values(), Counter())
    print(f"{'in all':24}" + "".join(f"{total[name]:13,}" for name in columns))


if __name__ == "__main__":
    main(sys.argv[1:])
