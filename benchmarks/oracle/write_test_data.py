"""python -m benchmarks.oracle.write_test_data ORACLE.json [COMPUTED.json [MEASURED.json [PRINTED [STEPS.json [DRY]]]]]

Larger collections cut to what tests need, in tests/data.

The oracle counts models by instantiating their classes of Hugging Face transformers 5.23 on the meta device, from
published configs, and holds the totals published for their checkpoints. The other file holds the peaks of forward
passes through the same classes, in which every storage was tracked, and what their layers save for a backward pass.
The third holds figures of public start-up logs, and peaks of training. The folder has what `print(model)` shows of such
classes, each beside the modules that have parameters, and in a folder `tf4` of its own what transformers 4.57 prints.
The next file holds whole training steps of such classes under fake tensors, in which every storage was tracked, and
the last dry runs of llama.cpp.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.accuracy.llamacpp import asked
from calc.families.family_table import FAMILIES, WRAPPED

DATA = Path(__file__).parents[2] / "tests" / "data"
TRACKED = {
    "DeepSeek-V3": "deepseek-ai/DeepSeek-V3",
    "GPT-2": "openai-community/gpt2",
    "GPT-2-XL": "openai-community/gpt2-xl",
    "Gemma-2-9B": "google/gemma-2-9b",
    "Llama-2-7B": "meta-llama/Llama-2-7b-hf",
    "Llama-3.1-70B": "meta-llama/Llama-3.1-70B",
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B",
    "Mistral-7B-v0.3": "mistralai/Mistral-7B-v0.1",
    "Mistral-7B-v0.1": "mistralai/Mistral-7B-v0.1",
    "Mixtral-8x7B": "mistralai/Mixtral-8x7B-v0.1",
    "Qwen2.5-0.5B": "Qwen/Qwen2.5-0.5B",
    "Qwen2.5-14B": "Qwen/Qwen2.5-14B",
    "Qwen2.5-7B": "Qwen/Qwen2.5-7B",
    "Qwen3-30B-A3B": "Qwen/Qwen3-30B-A3B",
    "Qwen3-8B": "Qwen/Qwen3-8B",
    "gpt-oss-20b": "openai/gpt-oss-20b",
}
"""Model as the tracked passes name it -> preset of the same layers."""

LOGGED = {
    "DeepSeek-Coder-V2-Lite-AWQ": "deepseek-ai/DeepSeek-V2-Lite",
    "DeepSeek-R1-Distill-Qwen-14B": "Qwen/Qwen2.5-14B",
    "Llama-3-8B": "meta-llama/Llama-3.1-8B",
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B",
    "Llama-3.2-1B": "meta-llama/Llama-3.2-1B",
    "Phi-4": "microsoft/phi-4",
    "Qwen2-7B": "Qwen/Qwen2.5-7B",
    "Qwen3-1.7B": "Qwen/Qwen3-1.7B",
    "Qwen3-235B-A22B": "Qwen/Qwen3-235B-A22B",
    "Qwen3-8B": "Qwen/Qwen3-8B",
    "Qwen3.5-27B": "Qwen/Qwen3.5-27B",
}
"""Model as the logs' list names it -> the preset of the same shapes."""


def write(name: str, rows: list[dict[str, Any]]) -> None:
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (DATA / name).write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{len(rows)} rows in {DATA / name}")


def prefill(computed: str) -> None:
    """Peaks of whole prompts: with and without a cache, of which `kv` bytes are held; logits of the last token, or of
    all."""
    rows = [
        {
            "model": TRACKED[row["model"]],
            "attention": "flash" if row["impl"] == "fa_cuda" else "eager",
            "batch": row["batch"],
            "seq": row["seq"],
            "logits": "last" if row["logits_to_keep"] else "all",
            "cached": row["use_cache"],
            "kv": row["kv_after"],
            "peak": row["peak"],
        }
        for row in json.loads(Path(computed).read_text(encoding="utf-8"))["inference_prefill"]
    ]
    write("prefill.json", rows)


def decode(computed: str) -> None:
    """Peaks of a pass over one token after a prompt, cache included. Without the first token after a prompt, while what
    fell out of windows is still held."""
    rows = [
        {
            "model": TRACKED[row["model"]],
            "attention": "flash" if row["impl"] == "fa_cuda" else "eager",
            "batch": row["batch"],
            "past": row["past"],
            "kv": row["kv_after"],
            "peak": row["peak_total"],
        }
        for row in json.loads(Path(computed).read_text(encoding="utf-8"))["inference_decode"]
        if row["kv_after"] >= row["kv_before"]
    ]
    write("decode.json", rows)


def saved(computed: str) -> None:
    """Bytes that autograd saves in one layer."""
    rows = [
        {
            "model": TRACKED[row["model"]],
            "attention": "flash" if row["impl"] == "fa_cuda" else "eager",
            "micro_batch": row["batch"],
            "sequence": row["seq"],
            "recompute": "full" if row["ckpt"] else "none",
            "fused": row["fused_rmsnorm"],
            "bytes": row["per_layer_bytes"],
        }
        for row in json.loads(Path(computed).read_text(encoding="utf-8"))["train_saved_per_layer"]
    ]
    write("saved.json", rows)


def measured(path: str) -> None:
    """What logs of serving engines print, and peaks of transformers' generate."""
    kinds = ("vllm_startup", "sglang_startup", "llamacpp", "hf_inference_peak")
    rows = [
        {key: value for key, value in row.items() if key not in ("src", "metric", "url")}
        | {"url": row["url"] if row["url"].startswith("https://") else "a log without a public address"}
        for row in json.loads(Path(path).read_text(encoding="utf-8"))["records"]
        if row["kind"] in kinds
    ]
    write("measured.json", rows)


def oracle(path: str) -> None:
    rows = [
        {
            "id": model["id"],
            "config": model["config_raw"],
            "total": model["text_total"],
            "active": model["active"],
            "components": {name: n for name, n in model["groups"].items() if name != "vision_audio"},
            "persistent_buffers": (model["buffers"] or {}).get("persistent", 0),
            "multi_token_prediction": (model["mtp"] or {}).get("params", 0),
            "vision": model["groups"].get("vision_audio", 0),
            "cached_full": model["kv_cache"]["unique_per_token_full"],
            "cached_sliding": model["kv_cache"]["unique_per_token_sliding"],
            "windows": model["kv_cache"]["windows"],
            "state": model["kv_cache"]["state_elems"],
        }
        for model in json.loads(Path(path).read_text(encoding="utf-8"))
        if model["model_type"] in FAMILIES or model["model_type"] in WRAPPED
    ]
    write("oracle.json", rows)


def startup(measured: str) -> None:
    """vLLM's figures where the cache's tokens stand beside its bytes or the concurrency."""
    rows = []
    for row in json.loads(Path(measured).read_text(encoding="utf-8"))["records"]:
        found = row["measured"]
        tokens = found.get("kv_tokens", 16 * found.get("gpu_blocks", 0))
        public = row["kind"] == "vllm_startup" and row["url"].startswith("https://")
        if public and row["model"] in LOGGED and tokens and {"kv_gib", "max_conc"} & set(found):
            rows.append(
                {
                    "model": LOGGED[row["model"]],
                    "version": row["version"],
                    "tp": row["tp"],
                    "quant": row["quant"],
                    "max_model_len": row["max_model_len"],
                    "weights_gib": found.get("weights_gib"),
                    "kv_gib": found.get("kv_gib"),
                    "kv_tokens": tokens,
                    "concurrency": found.get("max_conc"),
                    "note": row.get("note"),
                    "url": row["url"],
                }
            )
    write("startup.json", rows)


def peaks(measured: str) -> None:
    """What GPUs held while they trained, as recorded."""
    records = json.loads(Path(measured).read_text(encoding="utf-8"))["records"]
    write("train_peaks.json", [record for record in records if record["kind"] == "train_peak"])


def printed(folder: str) -> None:
    """Module trees: those of transformers 5.23 with what they show, those of 4.57 with the total that they may show."""
    rows = [
        {
            "id": model["id"],
            "shown": model["parsed_from_text"],
            "modules": [
                {name: module[name] for name in ("module", "count", "tensors")}
                for module in model["modules"]
                if module["shown_by_text"]
            ],
            "text": path.with_suffix(".txt").read_text(encoding="utf-8"),
        }
        for path in sorted(Path(folder).glob("*.json"))
        for model in [json.loads(path.read_text(encoding="utf-8"))]
    ]
    write("printed.json", rows)
    models = json.loads((Path(folder).parent / "public.json").read_text(encoding="utf-8"))
    untied = {model["id"]: model["total_untied"] for model in models}
    older = {path.stem.replace("--", "/"): path for path in sorted((Path(folder) / "tf4").glob("*.txt"))}
    rows = [
        {"id": name, "untied": untied[name], "text": path.read_text(encoding="utf-8")} for name, path in older.items()
    ]
    write("printed_4.json", rows)


STEP_FIELDS = (
    "model recipe optimizer impl micro_batch sequence accumulation checkpointing lora loss keep_outputs ranks reduce "
    "reshard trained peak"
).split()


def steps(path: str) -> None:
    """Peaks of each phase of training steps."""
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    rows = [
        {name: row[name] for name in STEP_FIELDS if row.get(name) is not None}
        | {"phases": {name.removeprefix("peak_"): size for name, size in row["phases"].items()}}
        for row in found["rows"]
    ]
    write("train_steps.json", rows)
    write("train_step_configs.json", [{"name": name, **config} for name, config in found["configs"].items()])


FRAGMENTED = (532, 562, 640, 686, 1399, 1406, 1616, 1975, 2120, 2212)
"""Places of dry runs in whose largest pass gaps between tensors decide."""


def dry_runs(path: str) -> None:
    """llama.cpp's dry runs: a few of each kind, of all models, and those that are `FRAGMENTED`."""
    rows = json.loads(Path(path).read_text(encoding="utf-8"))
    taken: Counter[str] = Counter()
    chosen = []
    for place, row in enumerate(rows):
        what = row["model"] if row["why"] == "base" else row["why"]
        few = 1 if row["why"] == "base" else 12 if row["why"] == "random" else 2
        spread = sum(map(ord, row["model"] + row["why"] + row["quant"])) % 7 == 0
        if taken[what] < few and (spread or row["why"] == "base"):
            taken[what] += 1
            chosen.append(row)
        elif place in FRAGMENTED:
            chosen.append(row)
    configs = {row["model"]: row["config"] for row in chosen}
    write("llamacpp.json", [{"configs": configs}, *(asked(row) for row in chosen)])


if __name__ == "__main__":
    for path in sys.argv[1:2]:
        oracle(path)
    for path in sys.argv[2:3]:
        prefill(path)
        decode(path)
        saved(path)
    for path in sys.argv[3:4]:
        startup(path)
        measured(path)
        peaks(path)
    for path in sys.argv[4:5]:
        printed(path)
    for path in sys.argv[5:6]:
        steps(path)
    for path in sys.argv[6:]:
        dry_runs(path)
