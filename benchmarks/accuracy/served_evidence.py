"""python -m benchmarks.accuracy.served_evidence [SERVED.json]: what benchmarks.accuracy.served judges, a server a line,
as pages/evidence/served.json, which the Accuracy page shows."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.accuracy import disaggregated
from benchmarks.accuracy.judged import left_out_in_turn, rows_of
from benchmarks.accuracy.records import LeftOut
from benchmarks.accuracy.served import ROWS, Server, predicted
from benchmarks.accuracy.time import as_text
from calc.time.estimate import Estimate
from pages.parts.verify.evidence import FIGURES, SERVED, Served

SEPARATE = "prefill and decode on separate GPUs"
ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM"}


def digits(estimate: Estimate) -> tuple[float, float, float]:
    """Low, expected and high with four digits."""
    low, expected, high = (float(f"{ms:.4g}") for _, ms in estimate)
    return low, expected, high


def served(server: Server, source: str) -> Served:
    row = server.row
    separate = row["mode"] == "disaggregated"
    return Served(
        **{name: row[name] for name in ("model", "weights", "gpu", "concurrency", "tpot_ms", "ttft_ms")},
        gpus=row["n_gpus"] if separate else row["tp"] * row["pp"] * row["dp"],
        separate=separate,
        engine=ENGINES[row["engine"]],
        prompt=row["isl"],
        output=row["osl"],
        tpot_ours=digits(server.tpot_ms),
        ttft_ours=digits(server.ttft_ms),
        source=source,
    )


def whole(path: Path) -> dict[str, Any]:
    """What the file holds."""
    rows, configs = rows_of(path)
    every = list(predicted(rows, configs))
    found = [server for server in every if isinstance(server, Server)]
    apart = list(disaggregated.predicted(rows, configs))
    addresses = [f"https://{name}" for name in json.loads(path.read_text(encoding="utf-8"))["sources"]]
    lines = [served(server, addresses[server.row["source"]]).model_dump() for server in (*found, *apart)]
    sources = list(dict.fromkeys(line["source"] for line in lines))
    reasons = (left.reason for left in every if isinstance(left, LeftOut))
    out = Counter(why for why in reasons if not why.startswith(SEPARATE))
    return {
        "columns": list(Served.model_fields),
        "rows": [[*list(line.values())[:-1], sources.index(line["source"])] for line in lines],
        "sources": sources,
        "crossed": [
            {"figure": figure, "column": column}
            | left_out_in_turn([server.judged(figure) for server in found], column, "engine")
            for figure in FIGURES
            for column in ("model", "gpu")
        ],
        "left_out": [{"reason": why, "count": count} for why, count in out.most_common()],
    }


def main() -> None:
    SERVED.write_text(as_text(whole(Path(sys.argv[1]) if len(sys.argv) > 1 else ROWS)), encoding="utf-8")


if __name__ == "__main__":
    main()
