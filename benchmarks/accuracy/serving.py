"""python -m benchmarks.accuracy.serving COMPUTED.json MEASURED.json: ours against what was computed and measured.

Record by record, then by kind: median, 95th percentile and worst error, and why records are left out."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.accuracy.cases import Case, transformers_case, vllm_case
from benchmarks.accuracy.records import TOWERS, resolve
from benchmarks.oracle.tiny import tiny_cache
from benchmarks.oracle.write_test_data import TRACKED
from calc import Architecture
from calc.errors import Frozen
from calc.hardware.gpus import usual_gpus
from calc.model.named import largest
from calc.serving.engines.engine import Pool
from calc.serving.engines.transformers.working_memory import Pass, decode_peaks, prefill_peaks
from calc.serving.kv_cache import bytes_per_token, growth
from calc.units import GIB, MIB
from presets import gpus, models


class Comparison(Frozen):
    """One figure of one record."""

    kind: str
    name: str
    predicted: float
    measured: float
    unit: str
    source: str

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


class LeftOut(Frozen):
    """A record that a figure can't be compared with."""

    kind: str
    name: str
    reason: str


Found = Comparison | LeftOut


def cache_sizes(computed: dict[str, Any]) -> Iterator[Found]:
    """Real small caches of transformers, after a prompt and one more token."""
    kind = "cache sizes, computed"
    for row in computed["kv_cache_real"]:
        if "does not hold" in row["model"]:
            yield LeftOut(kind=kind, name=row["model"], reason="there to show that another formula does not hold")
            continue
        windows = "Sliding" in json.dumps(row["layers"]) and row["kind"] == "dynamic"
        held = row["storage_bytes_after_1_decode"] if windows else row["bytes"]
        yield Comparison(
            kind=kind,
            name=row["model"],
            predicted=tiny_cache(row),
            measured=held,
            unit="bytes",
            source="transformers 5.23",
        )


def computed_prefills(computed: dict[str, Any]) -> Iterator[Found]:
    """Peaks of tracked passes, above weights."""
    for row in computed["inference_prefill"]:
        attention = "flash" if row["impl"] == "fa_cuda" else "eager"
        architecture = Architecture.from_config(models()[TRACKED[row["model"]]].config)
        prompt = Pass(
            sequences=row["batch"],
            length=row["seq"],
            tokens=row["batch"] * row["seq"],
            width=2,
            attention=attention,
            logits="last" if row["logits_to_keep"] else "all",
            cached=row["use_cache"],
        )
        peak = largest(prefill_peaks(architecture.all_blocks, architecture, prompt)).bytes
        yield Comparison(
            kind="prefill peaks, computed",
            name=f"{row['model']} {attention} {row['batch']} x {row['seq']}",
            predicted=peak + (row["kv_after"] if row["use_cache"] else 0),
            measured=row["peak"],
            unit="bytes",
            source="transformers 5.23",
        )


def computed_decodes(computed: dict[str, Any]) -> Iterator[Found]:
    """Peaks of a pass over one token after a prompt."""
    kind = "decode peaks, computed"
    for row in computed["inference_decode"]:
        if row["kv_after"] < row["kv_before"]:
            reason = "the first token after a prompt, while what fell out of windows is still held"
            yield LeftOut(kind=kind, name=row["model"], reason=reason)
            continue
        architecture = Architecture.from_config(models()[TRACKED[row["model"]]].config)
        step = Pass(
            sequences=row["batch"],
            length=row["past"] + 1,
            tokens=row["batch"],
            width=2,
            attention="flash" if row["impl"] == "fa_cuda" else "eager",
            logits="last",
        )
        extra = largest(decode_peaks(architecture.blocks, architecture, step, "bf16")).bytes
        yield Comparison(
            kind=kind,
            name=f"{row['model']} {step.attention} {row['batch']} x {row['past']}",
            predicted=row["kv_after"] + extra,
            measured=row["peak_total"],
            unit="bytes",
            source="transformers 5.23",
        )


def transformers_peak(case: Case) -> int:
    """PyTorch's `max_memory_allocated`, summed over GPUs: weights as its allocator holds them, cache and activations at
    their fullest, and cuBLAS's workspace."""
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
        kind = "transformers peaks, 16 bits" if plain else "transformers peaks, quantised"
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
        elif record["note"].startswith("LoRA"):
            case = "started by a trainer, with settings and adapters of its own"
        elif TOWERS.search(record["model"]):
            case = "the profile run passes images, too"
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


def other_engines(measured: list[dict[str, Any]]) -> Iterator[Found]:
    """Bytes of the tokens that SGLang and llama.cpp print."""
    for record in measured:
        log, kind = record["measured"], record["kind"]
        config = resolve(record["model"]) if kind in ("sglang_startup", "llamacpp") else None
        if kind == "sglang_startup" and "kv_tokens" in log and config is not None:
            rank = Architecture.from_config(config).rank(record["tp"])
            predicted, unit = log["kv_tokens"] * bytes_per_token(growth(rank.blocks, "bf16")) / GIB, "GiB"
            found = log["k_gb"] + log["v_gb"]
        elif kind == "llamacpp" and config is not None:
            blocks = Architecture.from_config(config).blocks
            predicted, unit = record["n_ctx"] * bytes_per_token(growth(blocks, "q8_0")) / MIB, "MiB"
            found = log["kv_mib"]
        elif kind in ("sglang_startup", "llamacpp"):
            yield LeftOut(kind="cache of other engines", name=record["model"], reason="prints no tokens of cache")
            continue
        else:
            continue
        yield Comparison(
            kind="cache of other engines",
            name=record["model"],
            predicted=predicted,
            measured=found,
            unit=unit,
            source=record["url"],
        )


def compare(computed: dict[str, Any], measured: list[dict[str, Any]]) -> list[Found]:
    """Every figure of every record."""
    found: list[Found] = [*cache_sizes(computed), *computed_prefills(computed), *computed_decodes(computed)]
    kinds: tuple[Callable[[list[dict[str, Any]]], Iterator[Found]], ...] = (
        transformers_peaks,
        vllm_tokens,
        vllm_budgets,
        other_engines,
    )
    return found + [row for kind in kinds for row in kind(measured)]


def summary(found: Iterable[Found]) -> Iterator[str]:
    """A line for each kind, and the reasons of those left out."""
    rows = list(found)
    yield f"{'kind':36}{'records':>8}{'median':>9}{'p95':>9}{'worst':>9}{'left out':>10}"
    for kind in dict.fromkeys(row.kind for row in rows):
        errors = sorted(abs(row.error) for row in rows if row.kind == kind and isinstance(row, Comparison))
        out = Counter(row.reason for row in rows if row.kind == kind and isinstance(row, LeftOut))
        if errors:
            p95 = errors[max(0, -(-95 * len(errors) // 100) - 1)]
            figures = f"{len(errors):>8}{median(errors):>9.2%}{p95:>9.2%}{errors[-1]:>9.2%}"
        else:
            figures = f"{0:>8}{'':27}"
        yield f"{kind:36}{figures}{out.total():>10}"
        for reason, count in out.most_common():
            yield f"    {count} left out: {reason}"


def main(computed: str, measured: str) -> None:
    found = compare(
        json.loads(Path(computed).read_text(encoding="utf-8")),
        json.loads(Path(measured).read_text(encoding="utf-8"))["records"],
    )
    for row in found:
        if isinstance(row, Comparison):
            figures = f"{row.predicted:>18,.2f}{row.measured:>18,.2f} {row.unit:7}{row.error:>+8.2%}"
            print(f"{row.kind:34}{row.name[:52]:54}{figures}")
    print(*summary(found), sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
