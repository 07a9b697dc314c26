"""python -m benchmarks.oracle.vllm_plans PLANS.json: a sample of plans that vLLM's own code made, as tests need them.

PLANS.json has `configs` by model and `rows`: for each what vLLM 0.33 was started with and what `get_kv_cache_configs`
made of it. Of each family and kind of settings one is taken on each GPU; configs stand in oracle.json, but for those
that vLLM reads otherwise."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "tests" / "data"
GPUS = {
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA B200": "b200",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA L40S": "l40s",
}
ELSEWHERE = {"max_model_len", "kv_cache_dtype", "tensor_parallel_size"}
"""Settings that are no options of the engine here."""


def compact(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a plan was made for and what came out, under our names. A plan that vLLM refuses has only the length that it
    suggests. A group is its block, a request's blocks, and its layers on each stage."""
    asked = {
        "model": row["model"],
        "gpu": GPUS[row["gpu"]],
        "tp": row["tp"],
        "pp": row["pp"],
        "kv": "fp8" if row["kv_cache_dtype"] == "fp8" else "bf16",
        "options": {name: value for name, value in row["settings"].items() if name not in ELSEWHERE},
        "asked_length": row["settings"]["max_model_len"],
        "length": row["max_model_len"],
        "budget": row["budget_bytes"],
        "limits": [row["max_num_batched_tokens"], row["max_num_seqs"], row["max_in_flight_tokens"]],
    }
    if row.get("refused"):
        suggested = re.search(r"estimated maximum model length is (\d+)", row["refused"])
        return {**asked, "refused": int(suggested[1]) if suggested else 0}
    return {
        **asked,
        "block_size": row["block_size_final"],
        "blocks": row["num_blocks"],
        "block_bytes": row["bytes_per_block"],
        "tokens": row["tokens_reported"],
        "concurrency": row["concurrency"],
        "groups": sorted(
            [of_stages[0]["block_size"], of_stages[0]["blocks_per_request"], *(group["layers"] for group in of_stages)]
            for of_stages in zip(*row.get("groups_of_stages", [row["groups"]]), strict=True)
        ),
    }


def patched(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Configs by model, with the fields that vLLM was given beside them."""
    patches = {row["model"]: row["config_patch"] or {} for row in data["rows"]}
    return {model: config | patches[model] for model, config in data["configs"].items()}


def main(path: str) -> None:
    data = json.loads(Path(path).read_text(encoding="utf-8"))
    kinds: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for row in data["rows"]:
        kinds.setdefault((row["model_type"], row["tag"], row["gpu"]), row)
    rows = [compact(row) for row in kinds.values()]
    known = {row["id"]: row["config"] for row in json.loads((DATA / "oracle.json").read_text(encoding="utf-8"))}
    used = {row["model"] for row in rows}
    configs = {model: config for model, config in patched(data).items() if model in used and known.get(model) != config}
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    text = f'{{"configs": {json.dumps(configs)},\n"rows": [\n{lines}\n]}}\n'
    (DATA / "vllm_kv.json").write_text(text, encoding="utf-8")
    print(f"{len(rows)} plans of {len(used)} models in {DATA / 'vllm_kv.json'}")


if __name__ == "__main__":
    main(sys.argv[1])
