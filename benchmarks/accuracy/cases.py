"""Runs of serving engines in our own terms: which GPU, format and workload a record means, or why it is of no use."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.accuracy.records import resolve, weight_format
from calc import GPU, Architecture, Layout, Overhead, Precision, Workload
from calc.serving.engines.engine import Engine
from calc.serving.engines.transformers.engine import Transformers
from calc.serving.engines.transformers.options import TransformersOptions
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.memory import Serving
from presets import gpus

GPUS = {
    "A100-40GB": "a100-sxm-40gb",
    "A100-80GB": "a100-sxm-80gb",
    "A100-80GB PCIe": "a100-pcie-80gb",
    "B200": "b200",
    "H100-80GB": "h100-sxm",
    "H20": "h20",
    "H20-96GB": "h20",
    "H200": "h200-sxm",
    "L4": "l4",
    "L40S": "l40s",
    "MI300X": "mi300x",
    "RTX 3090": "rtx-3090",
    "RTX 4090": "rtx-4090",
    "RTX 5090": "rtx-5090",
    "T4": "t4",
}
"""Names of the records -> GPU."""


def nvidia() -> list[GPU]:
    """The GPUs that a log without a name may be of."""
    return [gpu for gpu in gpus().values() if gpu.platform == "cuda" and gpu.memory == "dedicated"]


def gpu_of(record: Mapping[str, Any]) -> GPU | None:
    """The GPU of a record, with the total that its log states; None where it says neither."""
    found, total = gpus().get(GPUS.get(record.get("gpu") or "", "")), record["measured"].get("total_gib")
    if total is None:
        return found
    size = {"usable_mib": round(total * 1024)}
    if found is not None:
        return found.model_copy(update=size)
    near = min(nvidia(), key=lambda gpu: abs(gpu.usable_bytes - total * 2**30))
    return near.model_copy(update=size | {"name": f"a GPU of {total:.1f} GiB"})


def version_of(text: str | None) -> str | None:
    """0.8.5 of “0.8.5.post1 V1” or “transformers 4.46.0, torch 2.3.1”."""
    found = re.search(r"\d+\.\d+(\.\d+)?", text or "")
    return found[0] if found else None


@dataclass(frozen=True)
class Case:
    """What a record says was run."""

    name: str
    source: str
    architecture: Architecture
    precision: Precision
    layout: Layout
    workload: Workload
    engine: Engine
    gpu: GPU | None

    def serving(self) -> Serving:
        return Serving.of(self.architecture, self.engine, self.precision, self.layout, Overhead())


def vllm_case(record: Mapping[str, Any]) -> Case | str:
    """A vLLM start-up log, or why it says too little."""
    config, weights = resolve(record["model"]), weight_format(record)
    if config is None:
        return "no config of this model"
    if weights is None:
        return "a format that we do not have"
    if "NPU" in record["note"] or "MI50" in (record["gpu"] or ""):
        return "not vLLM's own code for this device"
    return Case(
        name=record["model"],
        source=record["url"],
        architecture=Architecture.from_config(config),
        precision=Precision.of(config, weights, "fp8" if "fp8" in record["kv_cache_dtype"] else "bf16"),
        layout=Layout(tp=record["tp"], pp=record["pp"]),
        workload=Workload(context=record["max_model_len"] or 8192),
        engine=VLLM(
            VLLMOptions(
                max_num_batched_tokens=record["max_num_batched_tokens"],
                max_num_seqs=record["max_num_seqs"],
                gpu_memory_utilization=record["gpu_memory_utilization"],
                enforce_eager=bool(record["enforce_eager"]),
                version=version_of(record["version"]),
                speculative="eagle" if "EAGLE" in record["note"] else "none",
            )
        ),
        gpu=gpu_of(record),
    )


CHUNK = 2048
"""Tokens of a prefill chunk where a record does not state it and its peak leaves no room for the whole prompt: the
Qwen3 tables, whose peaks are those of the last decode step; any chunk up to 2,800 tokens gives the same."""


def transformers_case(record: Mapping[str, Any]) -> Case | str:
    """A peak of transformers' generate, or why it says too little. Several GPUs hold consecutive layers."""
    config, weights = resolve(record["model"]), weight_format(record)
    if record.get("engine") != "transformers":
        return f"an engine that we do not weigh: {record.get('engine')}"
    if record["missing"]:
        return f"not stated: {', '.join(record['missing'])}"
    if config is None:
        return "no config of this model"
    if weights is None:
        return "a format that we do not have"
    version = version_of(record["version"])
    return Case(
        name=record["model"],
        source=record["url"],
        architecture=Architecture.from_config(config),
        precision=Precision.of(config, weights),
        layout=Layout(pp=record["n_gpu"]),
        workload=Workload(
            batch=record["batch"],
            context=record["input_len"] + record["output_len"],
            generated=record["output_len"],
        ),
        engine=Transformers(
            TransformersOptions(
                prefill_chunk_size=CHUNK if version is not None and version.startswith("4.51") else None,
                version=version,
            )
        ),
        gpu=gpu_of(record),
    )
