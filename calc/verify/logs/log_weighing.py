"""The run of a log, weighed; and its machine in place of our ranges of overhead."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from calc.errors import ConfigError, Message, shown
from calc.formats import CacheFormat, Precision, WeightFormat, native
from calc.hardware.gpu import GPU
from calc.hardware.overhead import Overhead, Range
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.options import made
from calc.serving.engines import DEFAULT_ENGINE, ENGINES, LOGS, Engine
from calc.serving.engines.rules import Question
from calc.serving.report import Report, report
from calc.serving.workload import Workload
from calc.units import GIB, MIB
from calc.verify.logs.log import Log

WEIGHTS: dict[str, tuple[WeightFormat, ...]] = {
    "awq": ("int4",),
    "awq_marlin": ("int4",),
    "bitsandbytes": ("nf4", "nf4-dq", "int8-bnb"),
    "fp8": ("fp8", "fp8-channel", "fp8-tensor", "mxfp4", "nvfp4"),  # experts of DeepSeek-V4 in 4 bits
    "gptq": ("int4-gptq", "int4-w4a16", "int8-gptq"),
    "gptq_marlin": ("int4-gptq", "int4-w4a16", "int8-gptq"),
    "modelopt_fp4": ("nvfp4",),
    "mxfp4": ("mxfp4",),
    "w8a8_int8": ("int8",),
}
"""`quantization` of the engines -> the formats that it may mean: the checkpoint's where its config is of one of them,
else the first. What is not here is read from the config alone."""
CACHES: dict[str, CacheFormat | None] = {
    "auto": None,  # as the checkpoint asks
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_ds_mla": "fp8_ds_mla",
}
ALIKE = 0.01
"""Share by which CUDA's totals of GPUs of one kind differ at most: 39.49 and 39.56 GiB of an A100-40."""


LIBRARIES = 0.03
"""Share of the free memory that SGLang's libraries take before it reads that: 44.01 GiB are free of an L40S's 44.4."""


def weigh_as(log: Log, config: Mapping[str, Any], gpus: Iterable[GPU] = ()) -> Report:
    """Our report of what the log ran: layout, formats, one request of the length allowed, and those of the GPUs that
    may be the log's. Raises ConfigError."""
    settings = log.settings
    try:
        workload = made(Workload, {"context": settings.max_model_len or log.concurrency_length or 8192})
        layout = LOGS[log.engine].layout(settings) if log.engine in LOGS else Layout()
        stated = engine_of(log)
    except ConfigError as error:
        sentence = Message("The log's settings can't be weighed. {why}", why=error.message)
        raise ConfigError(sentence, error.field) from None
    architecture, precision = Architecture.from_config(config), _precision(log, config, stated)
    engine = engine_for(log, architecture, precision, layout)
    return report(
        config,
        workload=workload,
        engine=engine,
        precision=precision,
        layout=layout,
        gpus=_near(log, engine, architecture, workload, layout, gpus),
    )


def engine_of(log: Log) -> Engine:
    """The engine with the flags that the log states; the usual one for a message of PyTorch alone."""
    return LOGS[log.engine].started(log.settings, log.version) if log.engine in LOGS else ENGINES[DEFAULT_ENGINE]()


def engine_for(log: Log, architecture: Architecture, precision: Precision, layout: Layout) -> Engine:
    """The engine with the flags that the log states, but for a draft that it does not take with this model."""
    engine, question = engine_of(log), Question(architecture, precision, layout)
    if log.settings.speculative_method is None or not any(engine.refusals(question)):
        return engine
    return engine_of(log.model_copy(update={"settings": log.settings.without_draft}))


def _precision(log: Log, config: Mapping[str, Any], engine: Engine) -> Precision:
    """Precision of the checkpoint, unless the engine quantized it, or another checkpoint was run."""
    settings, stored = log.settings, native(config)
    cache = settings.kv_cache_dtype or "auto"
    if cache not in CACHES:
        known = ", ".join(CACHES)
        sentence = "The log's cache is stored as {cache}; we know {known}."
        raise ConfigError(Message(sentence, cache=shown(cache), known=known), "kv_cache_dtype", list(CACHES))
    formats = WEIGHTS.get(settings.quantization or "", (stored.name,))
    weights = stored.name if stored.name in formats else formats[0]
    if settings.dtype in ("float32", "float") and weights == "bf16":
        return Precision(weights="fp32", kv=CACHES[cache] or "fp32")
    return engine.precision(stored, weights, CACHES[cache])


def gpus_of(log: Log, gpus: Iterable[GPU]) -> list[GPU]:
    """GPUs with the total that the log or its out-of-memory message states, the nearest first, or with little more than
    what it states to be free; none where it states neither."""
    failure, free = log.out_of_memory, log.free
    total = log.total if log.total is not None or failure is None else failure.total
    if total is not None:
        near = [gpu for gpu in gpus if abs(gpu.usable_bytes - total) <= ALIKE * total]
        return sorted(near, key=lambda gpu: abs(gpu.usable_bytes - total))
    return [] if free is None else [gpu for gpu in gpus if free <= gpu.usable_bytes <= (1 + LIBRARIES) * free]


def _near(
    log: Log, engine: Engine, architecture: Architecture, workload: Workload, layout: Layout, gpus: Iterable[GPU]
) -> Iterator[GPU]:
    """GPUs with the total that the log states, one of each kind for which the engine has defaults of its own; none
    where the log says too little of what was divided."""
    settings, known = log.settings, LOGS.get(log.engine)
    stated = log.version or (settings.max_num_batched_tokens and settings.max_num_seqs)
    if known is None or not known.states_version_rules:
        return
    if log.total is None or not stated or settings.gpu_memory_utilization is None:
        return
    kinds = {engine.limits(workload, gpu, architecture, layout): gpu for gpu in reversed(gpus_of(log, gpus))}
    for gpu in kinds.values():
        yield gpu.model_copy(update={"usable_mib": log.total // MIB})


# A log's machine in place of our ranges: its CUDA graphs, what it holds outside PyTorch, and its pass at start.


LONGEST = 120
"""Characters of a log's name."""


def calibrated(log: Log, ours: Report) -> Overhead | None:
    """The overhead that a log states, in GiB a GPU; None where it states none. A pass that takes less than ours changes
    nothing: ours is of the largest one that the settings allow."""
    if log.engine not in LOGS:
        return None
    more, profile = None, log.activations
    if profile is not None and ours.kv_budget:
        more = min((profile - budget.profile for budget in ours.kv_budget), key=abs)
    stated = {
        "libraries": [log.non_torch],
        "cuda_graphs": [log.cuda_graphs, log.graphs_estimated],
        "peak_gap": [more or None],
    }
    ranges = {}
    for name, sizes in stated.items():  # a driver's difference below zero is of another process
        if known := [round(size / GIB, 2) for size in sizes if size is not None and size >= 0]:
            ranges[name] = Range(low=min(known), high=max(known))
    return Overhead(**ranges, overhead_log=name_of(log)) if ranges else None


def name_of(log: Log) -> str:
    """The engine, its version and the model, as far as the log says."""
    engine = " ".join(filter(None, (LOGS[log.engine].engine.title, log.version)))
    name = ", ".join(filter(None, (engine, log.settings.model)))
    return "".join(sign for sign in name if sign.isprintable())[:LONGEST]
