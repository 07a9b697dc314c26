"""What SGLang's start-up logs say, beside ours: weights, what its pools take, and what its share leaves for them."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.accuracy.found import Comparison, Found, LeftOut
from benchmarks.accuracy.records import resolve, weight_format
from calc import Architecture, Layout, Overhead, Precision
from calc.serving.engines.sglang.cache import slot_bytes
from calc.serving.engines.sglang.engine import SGLang
from calc.serving.engines.sizes import Stage
from calc.serving.kv_cache import growth
from calc.serving.memory import Serving
from calc.units import GIB

WEIGHTS, CACHE, BUDGET = "SGLang weights", "cache of other engines", "SGLang KV budget"


def logs(rows: list[dict[str, Any]]) -> Iterator[Found]:
    for record in rows:
        if record["kind"] == "sglang_startup":
            yield from figures(record)


def figures(record: Mapping[str, Any]) -> Iterator[Found]:
    """Each figure that a log states, or why it is of no use."""
    name, log = record["model"] or "not named", record["measured"]
    stated = {WEIGHTS: "weights_gb" in log, CACHE: "kv_tokens" in log, BUDGET: "kv_tokens" in log}
    stage = one_stage(record)
    for kind in (kind for kind, states in stated.items() if states):
        why = stage if isinstance(stage, str) else unusable(kind, record)
        if isinstance(stage, str) or why is not None:
            yield LeftOut(kind=kind, name=name, reason=str(why))
            continue
        predicted, measured = {WEIGHTS: weights, CACHE: cache, BUDGET: budget}[kind](record, stage)
        unit, source = "GiB", record["url"]
        yield Comparison(kind=kind, name=name, predicted=predicted, measured=measured, unit=unit, source=source)


def one_stage(record: Mapping[str, Any]) -> Stage | str:
    """What one rank holds; or why that is not known."""
    config = resolve(record["model"]) if record["model"] else None
    if record["model"] is None:
        return "the model is not named"
    if config is None:
        return "no config of this model"
    if record["tp"] is None:
        return "the layout is not stated"
    dp = record.get("dp", 1)
    layout = Layout(tp=record["tp"] // dp, dp=dp, ep=record["tp"] if dp > 1 else 1)
    precision = Precision.of(config, weight_format(record) or "bf16")
    return Serving.of(Architecture.from_config(config), SGLang(), precision, layout, Overhead()).laid_out.stages[0]


def unusable(kind: str, record: Mapping[str, Any]) -> str | None:
    """Why a figure says nothing of ours."""
    if kind == CACHE:
        return None
    if "no CUDA allocator" in record.get("note", ""):
        return "no CUDA allocator"
    if weight_format(record) not in ("bf16", "fp16") and kind == WEIGHTS:
        return "format not stated exactly"
    if kind == BUDGET and (record["mem_fraction_static"] is None or "free_gb" not in record["measured"]):
        return "mem_fraction_static and the free memory are not both stated"
    return None


def weights(record: Mapping[str, Any], stage: Stage) -> tuple[float, float]:
    """GiB that are gone from the GPU's free memory; what libraries take meanwhile is in them and not in ours."""
    return stage.loaded.total / GIB, record["measured"]["weights_gb"]


def cache(record: Mapping[str, Any], stage: Stage) -> tuple[float, float]:
    """GiB of the tokens, and of the states with the one for padding."""
    log = record["measured"]
    token = sum(growth(stage.blocks, "bf16").values()) / 8
    states = (log["states"] + 1) * slot_bytes(stage.blocks) if "states" in log else 0
    return (log["kv_tokens"] * token + states) / GIB, pools(log)


def budget(record: Mapping[str, Any], stage: Stage) -> tuple[float, float]:
    """GiB that the share of the free memory leaves beside our weights, and those of the pools."""
    log = record["measured"]
    return log["free_gb"] * record["mem_fraction_static"] - stage.loaded.total / GIB, pools(log)


def pools(log: Mapping[str, Any]) -> float:
    return float(sum(log.get(f"{name}_gb", 0) for name in ("k", "v", "kv", "conv", "ssm")))
