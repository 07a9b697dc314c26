"""python -m benchmarks.accuracy.aiconfigurator: our speeds and aiconfigurator's beside the same measured points, those
of the systems that it has tables of; written to pages/evidence/aiconfigurator.json.

Needs aiconfigurator (PyPI) beside this project's own requirements. It is asked for the batch, the lengths, the ranks
and the formats of each row, under the row's engine where it has tables of it, else under those of another.
"""

import json
import logging
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from aiconfigurator.cli.api import cli_estimate

from benchmarks.accuracy.full_server import full_batch
from benchmarks.accuracy.records import resolve
from benchmarks.accuracy.speed_cases import CONFIGS, Case
from benchmarks.accuracy.time import BOUND, ROWS, Timed, engine_of, found, output_of
from benchmarks.accuracy.write_speed import rows_of
from calc.model.feedforward import MoE
from pages.parts.verify.evidence import SIDE_BY_SIDE

SYSTEMS = {
    "a100-sxm-80gb": "a100_sxm",
    "a100-pcie-80gb": "a100_pcie",
    "h100-sxm": "h100_sxm",
    "h100-pcie": "h100_pcie",
    "h200-sxm": "h200_sxm",
    "b200": "b200_sxm",
    "l4": "l4",
    "l40s": "l40s",
    "a30": "a30",
    "rtx-pro-6000-server": "rtx_pro_6000_server",
}
"""Ids of our catalogue -> its names."""
BACKENDS = ("trtllm", "vllm", "sglang")
FORMATS = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8", "nvfp4": "nvfp4"}
CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
}


def covered(case: Case) -> bool:
    """Whether it has tables of the system, the engine's kernels and the formats."""
    other = engine_of(case.row).startswith(("llamacpp", "mlc", "exllama", "1cat", "gpt-fast"))
    return case.gpu.id in SYSTEMS and case.row["precision"] in FORMATS and not other


def is_sparse(case: Case) -> bool:
    return any(isinstance(block.ffn, MoE) for block in case.architecture.blocks)


def backends(engine: str) -> list[str]:
    """The row's own first."""
    own = next((name for name in BACKENDS if name in engine), BACKENDS[0])
    return [own, *(name for name in BACKENDS if name != own)]


def written(case: Case, folder: Path) -> str:
    """A folder with the model's config, as it reads them."""
    name = str(case.row["model"])
    config = dict(CONFIGS.get(name.rpartition("/")[2].lower()) or resolve(name) or {})
    config["architectures"] = [CLASSES.get(config["model_type"], config["model_type"])]
    config.setdefault("num_key_value_heads", config.get("num_attention_heads"))
    place = folder / name.replace("/", "--")
    place.mkdir(exist_ok=True)
    (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(place)


def estimate(case: Case, folder: Path, mode: str, batch: int, output: int) -> Any:
    """Its answer; of several engines the first that has one."""
    form, ranks = FORMATS[case.row["precision"]], case.layout.tp
    experts = {"moe_quant_mode": form, "moe_tp_size": ranks, "moe_ep_size": 1} if is_sparse(case) else {}
    problem: Exception | None = None
    for backend in backends(case.engine):
        try:
            return cli_estimate(
                written(case, folder),
                SYSTEMS[case.gpu.id],
                mode=mode,
                backend_name=backend,
                database_mode="HYBRID",
                isl=max(1, case.row["input_len"]),
                osl=max(2, output),
                batch_size=batch,
                tp_size=ranks,
                gemm_quant_mode=form,
                kvcache_quant_mode="fp8" if case.precision.kv == "fp8" else "bfloat16",
                **experts,
            )
        except Exception as error:  # whatever keeps it from answering
            problem = error
    raise LookupError(f"no answer: {type(problem).__name__}") from problem


def theirs(row: Timed, folder: Path) -> float:
    """In the unit of the row: seconds, or tokens a second."""
    case, output = row.case, output_of(row.case.row) if row.kind != "prefill" else 2
    if row.kind == "decode, batch 1":
        found = estimate(case, folder, "static", 1, output)
        if "includes prefill" in case.row["notes"]:
            return float(found.ttft + (output - 1) * found.tpot) / 1000 / output
        return float(found.tpot) / 1000
    if row.kind == "prefill":
        return float(estimate(case, folder, "static", 1, output).ttft) / 1000
    if row.unit == "s":
        found = estimate(case, folder, "static", case.row["batch"], output)
        return float(found.ttft + (output - 1) * found.tpot) / 1000
    batch = full_batch(case)[1] if case.row["batch"] == "max" else case.row["batch"]
    return float(estimate(case, folder, "agg", batch, output).tokens_per_second)


def beside(folder: Path, left_out: Counter[str]) -> Iterator[dict[str, Any]]:
    """Each point that both answer."""
    for row in found(rows_of(ROWS)):
        if not isinstance(row, Timed) or row.kind == BOUND or row.kind.startswith("training") or not covered(row.case):
            continue
        if row.case.row["batch"] == "max" and is_sparse(row.case):
            left_out["experts spread over data-parallel ranks at a batch that is not stated"] += 1
            continue
        try:
            other = theirs(row, folder)
        except LookupError as error:
            left_out[str(error)] += 1
            continue
        if not other > 0:
            left_out["an answer of nothing"] += 1
            continue
        figures = {"measured": row.measured, "weighbridge": row.predicted.expected, "aiconfigurator": other}
        yield {"id": row.case.name, "kind": row.kind, "gpu": row.case.gpu.id, "unit": row.unit} | {
            name: float(f"{figure:.4g}") for name, figure in figures.items()
        }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["kind"]].append(row)
        groups["all"].append(row)

    def error(group: list[dict[str, Any]], name: str) -> float:
        return round(median(abs(row[name] / row["measured"] - 1) for row in group), 3)

    return {
        kind: {"points": len(group)} | {name: error(group, name) for name in ("weighbridge", "aiconfigurator")}
        for kind, group in groups.items()
    }


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    left_out: Counter[str] = Counter()
    with TemporaryDirectory() as folder:
        rows = list(beside(Path(folder), left_out))
    result = {"aiconfigurator": version("aiconfigurator"), "median_error": summary(rows), "left_out": dict(left_out)}
    print(json.dumps(result, indent=1))
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    SIDE_BY_SIDE.write_text(f'{json.dumps(result, indent=1)[:-2]},\n "points": [\n{lines}\n ]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
