"""What engines print and hold while they serve, beside ours: records of public logs and benchmarks."""

from collections.abc import Iterator
from typing import Any

from benchmarks.accuracy.cases import Case, transformers_case, vllm_case
from benchmarks.accuracy.found import Comparison, Found, LeftOut
from benchmarks.accuracy.records import TOWERS, resolve
from calc import Architecture
from calc.hardware.gpus import usual_gpus
from calc.serving.engines.cache import Pool
from calc.serving.kv_cache import bytes_per_token, growth
from calc.units import GIB, MIB
from presets import gpus


def transformers_peak(case: Case) -> int:
    """PyTorch's `max_memory_allocated`, summed over GPUs: weights as its allocator holds them, cache and activations at
    their peak, and cuBLAS's workspace."""
    gpu = case.gpu or usual_gpus()[0]
    allocation = case.serving().on(gpu, case.workload)
    workspace = 0 if case.gpu is None else case.gpu.workspace_bytes
    loaded = sum(stage.loaded.total for stage in allocation.serving.laid_out.stages)
    return loaded + sum(stage.memory.kv_cache + stage.memory.activations + workspace for stage in allocation.stages)


def transformers_peaks(measured: list[dict[str, Any]]) -> Iterator[Found]:
    for record in measured:
        if record["kind"] != "hf_inference_peak":
            continue
        plain = (record.get("quant") or "").lower() in ("bf16", "fp16", "none", "")
        kind = "transformers peaks, 16 bits" if plain else "transformers peaks, quantized"
        case = transformers_case(record)
        if isinstance(case, str):
            yield LeftOut(kind=kind, name=record["model"], reason=case)
            continue
        unit = GIB if record["measured"]["unit"].startswith("GiB") else MIB
        yield Comparison(
            kind=kind,
            name=f"{case.name} {record['quant']} {record['input_len']} + {record['output_len']}",
            predicted=transformers_peak(case) / GIB,
            measured=record["measured"]["mem"] * unit / GIB,
            unit="GiB",
            source=case.source,
        )


def vllm_tokens(measured: list[dict[str, Any]]) -> Iterator[Found]:
    """Tokens that fit the bytes of cache that the same log prints."""
    kind = "KV tokens given KV bytes"
    for record in measured:
        log = record["measured"]
        tokens = log.get("kv_tokens") or 16 * log.get("gpu_blocks", 0)
        nbytes = log.get("kv_bytes") or GIB * log.get("kv_gib", 0)
        if record["kind"] != "vllm_startup" or not (tokens or nbytes):
            continue
        case = vllm_case(record)
        if not (tokens and nbytes > 0) or record.get("pair_kv") is False:
            case = "does not print both, of one rank"
        if isinstance(case, str):
            yield LeftOut(kind=kind, name=record["model"], reason=case)
            continue
        allocation = case.serving().on(case.gpu or gpus()["h100-sxm"], case.workload)
        cache = allocation.cache
        assert isinstance(cache, Pool)
        found = cache.tokens(cache.blocks([int(nbytes)] * case.layout.pp), case.workload.context)
        yield Comparison(kind=kind, name=case.name, predicted=found, measured=tokens, unit="tokens", source=case.source)


def vllm_budgets(measured: list[dict[str, Any]]) -> Iterator[Found]:
    """Bytes of cache by the settings alone; where a log is silent on them, by the defaults of vLLM's version."""
    for record in measured:
        if record["kind"] != "vllm_startup" or "kv_gib" not in record["measured"]:
            continue
        kind, case = "vLLM KV budget", vllm_case(record)
        silent = {"max_num_batched_tokens", "max_num_seqs"} & set(record["missing"])
        if record["gpu_memory_utilization"] is None:
            case = "gpu_memory_utilization is not stated"
        elif "cpu-offload" in record["note"]:
            case = "a part of the weights stays in host memory"
        elif record["note"].startswith("LoRA"):
            case = "started by a trainer, with settings and adapters of its own"
        elif TOWERS.search(record["model"]):
            case = "profiling passes images, too"
        elif "far above default" in record["note"]:
            case = "by its peak not run with the defaults"
        elif record.get("pair_kv") is False:
            case = "log of one rank with tokens of another"
        elif record.get("model_inferred"):
            case = "the model is guessed from its size"
        if isinstance(case, str) or case.gpu is None:
            reason = case if isinstance(case, str) else "the GPU is not stated"
            yield LeftOut(kind=kind, name=record["model"], reason=reason)
            continue
        budget = case.serving().on(case.gpu, case.workload).kv_budget
        assert budget is not None
        yield Comparison(
            kind=kind,
            name=f"{case.name} on {case.gpu.name}" + (", defaults" if silent else ""),
            predicted=budget.bytes / GIB,
            measured=record["measured"]["kv_gib"],
            unit="GiB",
            source=case.source,
        )


def other_engines(measured: list[dict[str, Any]]) -> Iterator[Comparison]:
    """Bytes of the cells that llama.cpp prints."""
    for record in measured:
        config = resolve(record["model"]) if record["kind"] == "llamacpp" else None
        if config is not None:
            blocks = Architecture.from_config(config).blocks
            yield Comparison(
                kind="cache of other engines",
                name=record["model"],
                predicted=record["n_ctx"] * bytes_per_token(growth(blocks, "q8_0")) / MIB,
                measured=record["measured"]["kv_mib"],
                unit="MiB",
                source=record["url"],
            )
