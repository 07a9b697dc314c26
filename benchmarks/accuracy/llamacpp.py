"""python -m benchmarks.accuracy.llamacpp LLAMACPP.json [MODEL ...]: buffers beside those of llama.cpp's dry runs.

The file holds dry runs of llama.cpp 0c1e57098: config, flags and bytes of model, context and compute on every device.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from calc import Architecture, Layout, Overhead, Precision, Workload
from calc.formats import WeightFormat
from calc.serving.engines.llamacpp.engine import LlamaCpp
from calc.serving.engines.llamacpp.options import LlamaCppOptions
from calc.serving.memory import Serving
from presets import gpus

FORMATS: dict[str, WeightFormat] = {"F16": "fp16", "MXFP4": "mxfp4"}
CARDS = {700: "v100-sxm2-16gb", 800: "a100-sxm-80gb", 900: "h100-sxm"}
Row = dict[str, Any]


class Compared(NamedTuple):
    """One figure on one device, in bytes; `total` are all three on it."""

    kind: str
    what: str
    ours: int
    theirs: int
    total: int


def asked(row: Row) -> Row:
    """A dry run in this project's words: the model, the card, the flags and what came out."""
    flags = {
        "ctx_size": row["n_ctx"],
        "parallel": row["n_parallel"],
        "kv_unified": row["kv_unified"],
        "batch_size": row["n_batch"],
        "ubatch_size": row["n_ubatch"],
        "n_outputs_max": row["n_outputs_max"],
        "cache_type_k": None if row["type_k"] == "f16" else row["type_k"],
        "cache_type_v": None if row["type_v"] == "f16" else row["type_v"],
        "flash_attn": {True: "on", False: "off"}.get(row["flash_attn"], row["flash_attn"]),
        "n_gpu_layers": None if row["n_gpu_layers"] < 0 else row["n_gpu_layers"],
        "cpu_moe": row["n_cpu_moe"] < 0,
        "n_cpu_moe": max(0, row["n_cpu_moe"]),
        "kv_offload": not row["no_kv_offload"],
        "swa_full": row["swa_full"],
        "tensor_split": ",".join(map(str, row["tensor_split"])) if row["tensor_split"] else None,
        "device": "none" if row["backend"] == "cpu" else None,
        "rpc": "a host" if row["backend"] == "rpc" else None,
    }
    usual = {name: field.default for name, field in LlamaCppOptions.model_fields.items()}
    found = [{"device": f"gpu{i}", **device} for i, device in enumerate(row["result"]["devices"])]
    return {
        "model": row["model"],
        "weights": FORMATS.get(row["quant"], row["quant"]),
        "gpu": CARDS[row["cc"]] if row["cc"] in CARDS else CARDS[800],
        "gpus": max(1, row["n_devices"]),
        "flags": {name: value for name, value in flags.items() if value != usual[name]},
        "buffers": [
            {key: device[key] for key in ("device", "model", "context", "compute")}
            for device in (*found, {"device": "host", **row["result"]["host"]})
        ],
        "kind": kind(row),
    }


def kind(row: Row) -> str:
    """What a row shows."""
    if row["backend"] != "cuda-sim":
        return {"cpu": "CPU only", "rpc": "over RPC"}[row["backend"]]
    if row["n_cpu_moe"]:
        return "experts on the host"
    if row["no_kv_offload"]:
        return "cache on the host"
    if 0 <= row["n_gpu_layers"] <= row["n_layer"]:
        return "partial offload"
    return "several GPUs" if row["n_devices"] > 1 else "one GPU"


def ours(row: Row, architecture: Architecture) -> list[Row]:
    engine = LlamaCpp(LlamaCppOptions(**row["flags"]))
    serving = Serving.of(architecture, engine, Precision(weights=row["weights"]), Layout(pp=row["gpus"]), Overhead())
    cache, workload = serving.on(gpus()[row["gpu"]], Workload()).cache, Workload()
    return [buffer.model_dump() for buffer in cache.buffers(workload.batch, workload.context)]


def compared(row: Row, architecture: Architecture) -> Iterator[Compared]:
    for mine, dry in zip(ours(row, architecture), row["buffers"], strict=True):
        total = dry["model"] + dry["context"] + dry["compute"]
        where = "host" if mine["device"] == "host" else "device"
        for what in ("model", "context", "compute"):
            yield Compared(row["kind"], f"{where} {what}", mine[what], dry[what], total)


def main(path: str, *models: str) -> None:
    rows = [row for row in json.loads(Path(path).read_text(encoding="utf-8")) if not models or row["model"] in models]
    found: dict[tuple[str, str], list[Compared]] = defaultdict(list)
    architectures: dict[str, Architecture] = {}
    for row in rows:
        name = row["model"]
        if name not in architectures:
            architectures[name] = Architecture.from_config(row["config"])
        for one in compared(asked(row), architectures[name]):
            found[one.kind, one.what].append(one)
    print(f"{len(rows)} dry runs of {len(architectures)} models")
    print(
        f"{'':22}{'':16}{'figures':>8}{'to the byte':>13}{'within 1 %':>12}{'0.5 % of all':>14}{'largest, of all':>17}"
    )
    for (what_kind, what), figures in sorted(found.items()):
        errors = [abs(one.ours - one.theirs) for one in figures]
        exact = sum(not error for error in errors) / len(figures)
        near = sum(error <= 0.01 * one.theirs for error, one in zip(errors, figures, strict=True)) / len(figures)
        small = sum(error <= 0.005 * one.total for error, one in zip(errors, figures, strict=True)) / len(figures)
        worst = max(error / max(1, one.total) for error, one in zip(errors, figures, strict=True))
        print(f"{what_kind:22}{what:16}{len(figures):>8}{exact:>13.1%}{near:>12.1%}{small:>14.1%}{worst:>17.2%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
