"""python -m benchmarks.accuracy.aiconfigurator_served [SERVED.json]: times of servers under a steady load by us and by
aiconfigurator on the same measured rows, those of the systems that it has tables of.

Needs aiconfigurator (PyPI) beside this project's own requirements. It is asked for the row's model, engine, lengths,
requests in flight, ranks and formats, as a server that does both prefill and decode ("agg").
"""

import json
import logging
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from aiconfigurator.cli.api import cli_estimate

from benchmarks.accuracy.aiconfigurator import FORMATS, SYSTEMS
from benchmarks.accuracy.judged import rows_of
from benchmarks.accuracy.served import DRAWN, ROWS, Server, name_of, predicted
from calc import Architecture

BACKENDS = {"tensorrt-llm": "trtllm", "vllm": "vllm", "sglang": "sglang"}
CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
}
"""The families that both know, by the class that it goes by."""
EXPERTS = {"bf16": "bfloat16", "fp8": "fp8_block", "nvfp4": "nvfp4", "mxfp4": "w4a16_mxfp4"}
LINEAR = FORMATS | {"mxfp4": "bfloat16"}


class Both(NamedTuple):
    """Milliseconds that were measured, and by whom they are predicted."""

    figure: str
    engine: str
    measured: float
    ours: float
    theirs: float


def estimate(row: Mapping[str, Any], config: Mapping[str, Any], folder: Path) -> Any:
    """Its answer for a row."""
    config = dict(config) | {"architectures": [CLASSES[config["model_type"]]]}
    config.pop("quantization_config", None)
    place = folder / str(row["model"]).replace("/", "--")
    place.mkdir(exist_ok=True)
    (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
    share, ranks = DRAWN.get(row["lengths"], 1.0), row["tp"] * row["dp"]
    experts: dict[str, Any] = {}
    if Architecture.from_config(config).experts:
        experts = {
            "moe_quant_mode": EXPERTS[row["weights"]],
            "moe_tp_size": ranks // row["ep"],
            "moe_ep_size": row["ep"],
        }
    dense = LINEAR[row["weights"]]
    return cli_estimate(
        str(place),
        SYSTEMS[row["gpu"]],
        mode="agg",
        backend_name=BACKENDS[row["engine"]],
        database_mode="HYBRID",
        isl=round(share * row["isl"]),
        osl=round(share * row["osl"]),
        batch_size=max(1, round(row["concurrency"] / row["dp"])),
        tp_size=row["tp"],
        attention_dp_size=row["dp"],
        gemm_quant_mode="fp8_block" if dense == "fp8" and experts else dense,
        kvcache_quant_mode="fp8" if row["kv"] == "fp8" else "bfloat16",
        **experts,
    )


def both(path: Path, folder: Path, left_out: Counter[str]) -> Iterator[Both]:
    """Each figure that both predict."""
    rows, configs = rows_of(path)
    for server in predicted(rows, configs):
        if not isinstance(server, Server):
            continue
        row = server.row
        config = configs[name_of(row)]
        if (
            row["gpu"] not in SYSTEMS
            or row["weights"] not in LINEAR
            or config["model_type"] not in CLASSES
            or row["pp"] > 1
        ):
            left_out[f"no tables: {row['gpu']}, {row['weights']}, {config['model_type']}"] += 1
            continue
        try:
            found = estimate(row, config, folder)
        except Exception as error:  # whatever keeps it from answering
            left_out[f"no answer: {type(error).__name__}: {str(error)[:80]}"] += 1
            continue
        for figure, theirs in (("tpot_ms", found.tpot), ("ttft_ms", found.ttft)):
            run = server.judged(figure)
            yield Both(figure, row["engine"], run.measured, run.predicted.expected, float(theirs))


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    left_out: Counter[str] = Counter()
    with TemporaryDirectory() as folder:
        rows = list(both(Path(sys.argv[1]) if len(sys.argv) > 1 else ROWS, Path(folder), left_out))
    groups: dict[tuple[str, str], list[Both]] = defaultdict(list)
    for row in rows:
        groups[row.figure, "all"].append(row)
        groups[row.figure, row.engine].append(row)
    print("| Figure | Engine | Rows | Weighbridge | aiconfigurator |")
    print("| --- | --- | ---: | ---: | ---: |")
    for (figure, engine), group in sorted(groups.items()):
        errors = (median(abs(row[side] / row.measured - 1) for row in group) for side in (3, 4))
        print(f"| {figure} | {engine} | {len(group)} | {' | '.join(f'{error:.1%}' for error in errors)} |")
    for why, count in left_out.most_common():
        print(f"- {count} not compared: {why}")


if __name__ == "__main__":
    main()
