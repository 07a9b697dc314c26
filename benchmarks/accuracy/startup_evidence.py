"""python -m benchmarks.accuracy.startup_evidence STARTUP_LOGS.json STARTS.json: what benchmarks.accuracy.startups
judges, as pages/evidence/startups.json, which the Accuracy page shows; and the logs that it needs, as
tests/data/startup_logs.json.
"""

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.accuracy.cases import version_of
from benchmarks.accuracy.evidence import ROOT, written
from benchmarks.accuracy.startups import UNMEASURED, Judged, Start, judged, load, max_length, name_of, unusable, weighed
from calc.hardware.overhead import HIGH, LOW, MIDDLE
from pages.parts.verify.evidence import STARTUPS, Cell, Length, Miss, StartedLog, Startups, Uncounted

LOGS = ROOT / "tests" / "data" / "startup_logs.json"
ENGINES = {"trt": "TensorRT-LLM", "atom": "ATOM", "vllm": "vLLM", "sglang": "SGLang"}


def started(start: Start) -> StartedLog:
    row, logged = start.row, start.logged
    graphs = logged.get("graphs_gib", UNMEASURED)
    return StartedLog(
        engine=ENGINES[row["engine"]],
        version=version_of(row.get("base_version") or row["version"]),
        model=name_of(row),
        gpu=row["gpu"],
        gpus=row["tp"] * (row.get("pp") or 1) * row["dp"],
        total=round(start.total, 3),
        cache=round(start.cache[MIDDLE], 3),
        cache_low=round(start.cache[HIGH], 3),
        cache_high=round(start.cache[LOW], 3),
        cache_logged=logged.get("kv_gib"),
        weights_agree=start.weights_agree,
        graphs=round(sum(start.graphs) / 2, 3),
        graphs_logged=graphs if graphs > UNMEASURED else None,
        source=row["url"],
    )


def length_of(row: Mapping[str, Any], configs: Mapping[str, Any]) -> Length | None:
    """The longest request that a refusal printed and ours; None where it says too little."""
    length = max_length(row, configs)
    return length and Length(
        version=version_of(row.get("base_version") or row["version"]),
        model=name_of(row),
        gpu=row["gpu"],
        printed=length.printed,
        of_bytes=length.of_bytes,
        end_to_end=length.end_to_end,
        source=row["url"],
    )


def miss(found: Judged) -> Miss:
    row = found.row
    names = {name: row[name] for name in ("model", "gpu", "gpus", "starts", "source")}
    return Miss(**names, engine=ENGINES[row["engine"]], word=found.word)


def of_logs(truth: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of Startups that the logs give."""
    rows, configs = truth["rows"], truth["configs"]
    found = [weighed(row, configs) for row in rows]
    lengths = (length_of(row, configs) for row in rows)
    left_out = Counter(one for one in found if isinstance(one, str))
    return {
        "logs": tuple(started(one) for one in found if isinstance(one, Start)),
        "lengths": tuple(one for one in lengths if one is not None),
        "left_out": tuple(Uncounted(reason=why, count=count) for why, count in left_out.most_common()),
    }


def of_court(truth: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of Startups that the configurations give."""
    every = list(judged(truth, stored))
    cells = Counter((ENGINES[one.row["engine"]], one.row["starts"], one.word) for one in every)
    return {
        "court": tuple(
            Cell(engine=engine, starts=starts, word=word, count=count)
            for (engine, starts, word), count in sorted(cells.items())
        ),
        "misses": tuple(miss(one) for one in every if one.is_wrong),
    }


READ = (
    *("engine", "grade", "note", "url", "refused", "speculative", "offload", "lora", "gpu", "measured"),
    "kv_cache_dtype",
)
"""What is read of a log of which no figure is compared."""


def needed(truth: Mapping[str, Any]) -> str:
    """The logs, a row a line: whole where a figure of theirs is compared."""
    kept = [
        row
        if unusable(row) is None or length_of(row, truth["configs"]) is not None
        else {name: row[name] for name in READ if name in row}
        for row in truth["rows"]
    ]
    lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in kept)
    return f'{{\n "configs": {json.dumps(truth["configs"])},\n "rows": [\n{lines}\n ]\n}}\n'


def main() -> None:
    logs, starts = load(sys.argv[1]), load(sys.argv[2])
    stored = load(str(Path(sys.argv[2]).with_name("checkpoint_bytes.json")))["configs"]
    LOGS.write_text(needed(logs), encoding="utf-8")
    STARTUPS.write_text(written(Startups(**of_logs(logs), **of_court(starts, stored))), encoding="utf-8")


if __name__ == "__main__":
    main()
