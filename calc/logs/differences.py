"""A log's figures beside ours."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any, Literal

from pydantic import ValidationError

from calc.architecture import Architecture
from calc.attention import LatentAttention
from calc.errors import ConfigError
from calc.fields import shown
from calc.frozen import Frozen
from calc.gpu import GIB
from calc.layout import Layout
from calc.logs.log import ROUNDING, Log, OutOfMemory
from calc.precision import FLOATS, CacheFormat, Precision, WeightFormat, native_weights
from calc.report import Report, report
from calc.workload import Workload

Term = Literal["weights", "bytes per token", "tokens", "one request", "concurrency", "memory"]
WEIGHTS: dict[str, WeightFormat] = {
    "awq": "int4",
    "awq_marlin": "int4",
    "bitsandbytes": "nf4",
    "fp8": "fp8",
    "gptq": "int4",
    "gptq_marlin": "int4",
    "mxfp4": "mxfp4",
    "w8a8_int8": "int8",
}
"""`quantization` of the engines, where it leaves one format; the others read it from the checkpoint, as we do."""
CACHES: dict[str, CacheFormat] = {
    "auto": "bf16",
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_ds_mla": "fp8_ds_mla",
}
CLOSE = 0.01
"""Share of the weights that rotary tables and the allocator's rounding mostly stay below: 0.2 % in Llama-3.1-8B's logs,
0.8 % in Qwen2.5-0.5B's; 1.4 % on each of two GPUs in Qwen2.5-14B's. LoRA slots for Llama-3.1-8B made it 1.5 %."""


class Difference(Frozen):
    """A term in the log and ours; the sentence says whether they agree, and if not, why that is so."""

    term: Term
    unit: Literal["bytes", "tokens"]
    log: int
    ours: int
    agrees: bool
    sentence: str

    @property
    def difference(self) -> int:
        return self.log - self.ours

    @property
    def share(self) -> float:
        """Of ours."""
        return self.difference / max(self.ours, 1)


def weigh_as(log: Log, config: Mapping[str, Any]) -> Report:
    """Our report of what the log ran: layout, formats, and one request of the length allowed. Raises ConfigError."""
    asked = log.settings
    cache = asked.kv_cache_dtype or "auto"
    if cache not in CACHES:
        known = ", ".join(CACHES)
        raise ConfigError(
            f"The log's cache is stored as {shown(cache)}; we know {known}.", "kv_cache_dtype", list(CACHES)
        )
    try:
        workload = Workload(
            context=asked.max_model_len or log.concurrency_length or 8192,
            prefill_tokens=asked.max_num_batched_tokens,
            max_num_seqs=asked.max_num_seqs,
            gpu_memory_utilization=asked.gpu_memory_utilization,
        )
        layout = Layout(tp=asked.tensor_parallel_size or 1, pp=asked.pipeline_parallel_size or 1)
    except ValidationError as error:
        name, limit = error.errors()[0]["loc"][0], error.errors()[0]["msg"].lower()
        raise ConfigError(f"The log states a {name} that can't be weighed: {limit}.", str(name)) from None
    weights = WEIGHTS.get(asked.quantization or "", native_weights(config))
    single = asked.dtype in ("float32", "float") and weights == "bf16"
    return report(
        config,
        workload=workload,
        precision=Precision(
            weights="fp32" if single else weights, kv="fp32" if single and cache == "auto" else CACHES[cache]
        ),
        layout=layout,
        gpus=[],
    )


def differences(log: Log, architecture: Architecture, ours: Report) -> tuple[Difference, ...]:
    """Every term that the log states and we compute, and those that must agree within the log itself."""
    return tuple(_rows(log, architecture, ours))


def largest(rows: Sequence[Difference]) -> Difference | None:
    """The term that differs most from ours, by its share; None where all agree. Tokens follow from bytes per token, and
    the concurrency is the log's alone."""
    causes = [row for row in rows if not row.agrees and row.term not in ("tokens", "concurrency")]
    return max(causes, key=lambda row: abs(row.share), default=None)


def _rows(log: Log, architecture: Architecture, ours: Report) -> Iterator[Difference]:
    if log.weights is not None:
        yield _weights(log, log.weights, ours)
    if log.kv_bytes and log.kv_bytes > 0 and log.kv_tokens and not _bounded(ours) and ours.memory.kv_cache:
        yield from _per_token(log, log.kv_bytes, log.kv_tokens, architecture, ours)
    one = _stated_for_one(log, ours.scenario.workload)
    if one is not None and (log.kv_needed or _bounded(ours)):
        yield _one_request(*one, ours)
    if log.concurrency and log.concurrency_length and log.kv_tokens:
        yield _concurrency(log.concurrency, log.concurrency_length, log.kv_tokens, ours)
    if log.out_of_memory is not None and log.engine == "torch":
        yield from _memory(log.out_of_memory, ours)


def _bounded(ours: Report) -> bool:
    """Whether some layers stop growing, so that no number of bytes stands for a token."""
    return ours.kv_cache.window_bytes > 0 or ours.kv_cache.state_bytes > 0


def _weights(log: Log, weights: int, ours: Report) -> Difference:
    off = weights - ours.memory.weights
    close = CLOSE * ours.memory.weights + ROUNDING
    tower, stored = 2 * ours.parameters.not_in_total["vision"], ours.scenario.precision.weights
    if off < 0:
        why = f"fewer bits a weight than our {stored}, or layers and experts that sit on other ranks"
    elif log.settings.enable_lora:
        why = "LoRA slots sit in the log's"
    elif log.settings.speculative and log.engine == "vllm":
        why = "a draft model sits in the log's"
    elif tower and off <= tower + close:
        why = f"the image tower, {tower / GIB:.2f} GiB in 16 bits, sits in the log's"
    elif stored == "mxfp4":
        why = "vLLM pads mxfp4 experts to the tiles of its kernels"
    elif stored in FLOATS:
        why = "beside rotary tables and what the allocator rounds up, LoRA slots or a draft model may sit in the log's"
    else:
        why = f"LoRA slots, a draft model or matrices in more bits than our {stored} may sit in the log's"
    agrees, sentence = abs(off) <= close, f"The weights differ by {off / GIB:+.2f} GiB: {why}."
    if agrees:
        sentence = "The weights agree within 1 %; the log also counts rotary tables and what the allocator rounds up."
    return Difference(
        term="weights", unit="bytes", log=weights, ours=ours.memory.weights, agrees=agrees, sentence=sentence
    )


def _per_token(log: Log, kv_bytes: int, tokens: int, architecture: Architecture, ours: Report) -> Iterator[Difference]:
    """Bytes per token, and the tokens that the log's bytes hold at ours. A cache has whole blocks."""
    shorter, longer = sorted(ours.by_context)[:2]
    more = ours.by_context[longer].kv_cache - ours.by_context[shorter].kv_cache  # both of whole blocks
    one = more // ((longer - shorter) * ours.scenario.workload.batch)
    block = log.settings.block_size or (64 if _latent(architecture) else 16)
    rounding = ROUNDING if log.engine == "vllm" else 2 * ROUNDING  # SGLang writes keys and values apart
    low, high = (kv_bytes - rounding) / (tokens + block) / one, (kv_bytes + rounding) / tokens / one
    agrees, stated = low <= 1 <= high, round(kv_bytes / tokens)
    if agrees:
        sentence = f"The cache takes {one:,} bytes a token and rank in both."
    else:
        why = _why_per_token(low, high, architecture, ours)
        sentence = f"Bytes per token and rank: {stated:,} in the log, {one:,} ours: {why}."
    yield Difference(term="bytes per token", unit="bytes", log=stated, ours=one, agrees=agrees, sentence=sentence)
    hold = kv_bytes // one // block * block
    sentence = f"At our bytes per token the log's {kv_bytes / GIB:.2f} GiB of cache hold {hold:,} tokens."
    yield Difference(term="tokens", unit="tokens", log=tokens, ours=hold, agrees=agrees, sentence=sentence)


def _why_per_token(low: float, high: float, architecture: Architecture, ours: Report) -> str:
    """Why the log's bytes per token are between `low` and `high` times ours."""
    layers, layout, latent = architecture.num_layers, ours.scenario.layout, _latent(architecture)
    ranks = next((n for n in range(2, layout.tp + 1) if latent and low <= 1 / n <= high), None)
    if latent and low <= 640 / 576 <= high:
        return "vLLM V0 pads the latent to 640 elements a layer"
    if low <= (layers + 1) / layers <= high:
        return "a draft layer (EAGLE, multi-token prediction) has a cache of its own"
    if ranks is not None:
        return f"the tokens of {ranks} ranks are counted together (decode context parallel)"
    if low <= 2 <= high or low <= 0.5 <= high:
        return f"the log's cache has {'twice' if high >= 2 else 'half'} the bits of our {ours.scenario.precision.kv}"
    if layout.gpus > 1 and low > 1:
        return "the tokens are those of the fullest rank, and the bytes may be those of a rank with more room"
    return "another cache format, layout or model than ours"


def _latent(architecture: Architecture) -> bool:
    return any(isinstance(mixer, LatentAttention) for block in architecture.blocks for mixer in block.mixers)


def _stated_for_one(log: Log, workload: Workload) -> tuple[float, float] | None:
    """The least and the most bytes that the log can mean for one request of the workload's length."""
    if workload.batch > 1:
        return None
    if log.kv_needed and workload.context == log.settings.max_model_len:
        return log.kv_needed - ROUNDING, log.kv_needed + ROUNDING
    if log.kv_bytes and log.kv_bytes > 0 and log.concurrency and workload.context == log.concurrency_length:
        requests = max(log.concurrency, 0.01)  # two decimals
        return (log.kv_bytes - ROUNDING) / (requests + 0.005), (log.kv_bytes + ROUNDING) / (requests - 0.005)
    return None


def _one_request(low: float, high: float, ours: Report) -> Difference:
    """The cache of the longest request, stated between low and high bytes. A request has whole blocks."""
    one, tokens = ours.memory.kv_cache, ours.scenario.workload.context
    agrees = low * (1 - 16 / (tokens + 16)) <= one <= high
    if agrees:
        sentence = f"A request of {tokens:,} tokens takes as much cache in the log as in ours."
    elif _bounded(ours):
        sentence = (
            "The cache of a request differs: windows hold the tokens of a step too, which may be others in the log, "
            "and vLLM pads recurrent state to the attention's blocks."
        )
    else:
        sentence = "The cache of a request differs: another cache format, layout or model than ours."
    return Difference(
        term="one request", unit="bytes", log=round((low + high) / 2), ours=one, agrees=agrees, sentence=sentence
    )


def _concurrency(concurrency: float, length: int, tokens: int, ours: Report) -> Difference:
    """Requests x their length against the tokens, both of the log: two decimals, and whole blocks of 16 a request."""
    stated = round(concurrency * length)
    whole = concurrency * ceil(length / 16) * 16
    agrees = stated - 0.005 * length - 1 <= tokens <= whole + 0.005 * (length + 16) + 1
    product = f"{concurrency:,.2f} requests of {length:,} tokens are {stated:,} tokens; the log states {tokens:,}"
    if agrees:
        sentence = f"{product}, which agrees."
    elif _bounded(ours):
        sentence = f"{product}: where some layers stop growing the engine counts tokens otherwise; go by the requests."
    else:
        sentence = f"{product}: these lines are not of one rank and start."
    return Difference(term="concurrency", unit="tokens", log=stated, ours=tokens, agrees=agrees, sentence=sentence)


def _memory(failure: OutOfMemory, ours: Report) -> Iterator[Difference]:
    """What the process held and asked for against our total, where PyTorch ran out."""
    held = failure.in_use
    if held is None and failure.allocated is not None:
        held = failure.allocated + (failure.reserved or 0)
    if held is None:
        return
    wanted, memory = held + failure.tried, ours.memory
    free = "" if failure.free is None else f" with {failure.free / GIB:.2f} GiB free"
    yield Difference(
        term="memory",
        unit="bytes",
        log=wanted,
        ours=memory.total,
        agrees=memory.low <= wanted <= memory.high,
        sentence=f"The process held {held / GIB:.2f} GiB and asked for {failure.tried / GIB:.2f} GiB more{free}; "
        f"we compute {memory.low / GIB:.2f} to {memory.high / GIB:.2f} GiB for this workload.",
    )
