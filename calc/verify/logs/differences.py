"""A log's figures against ours."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from calc.errors import Message
from calc.formats import FLOATS
from calc.hardware.overhead import Overhead
from calc.model.architecture import Architecture
from calc.serving.engines import LOGS, StartupLog
from calc.serving.engines.sizes import LoadedWeights
from calc.serving.memory import KVBudget, Serving
from calc.serving.report import Report
from calc.units import GIB, hundredths
from calc.verify.logs.cached import cache_rows, pages
from calc.verify.logs.difference import Difference
from calc.verify.logs.log import CLOSE, ROUNDING, Log
from calc.verify.logs.log_weighing import engine_for
from calc.verify.logs.out_of_memory import OutOfMemory
from calc.verify.logs.refused import refused_rows
from calc.verify.logs.share import graph_rows, shared_rows

PROFILE = 0.06
"""Share within which peak activation memory agrees: its formula was fitted to ten logs, at most 5.4 % off."""
FOLLOWS = ("tokens", "max length", "state blocks", "concurrency", "KV budget", "left", "graph batch")
"""Terms that differ where others do."""


def differences(log: Log, architecture: Architecture, ours: Report) -> tuple[Difference, ...]:
    """Every term that the log states and we compute."""
    return tuple(_rows(log, architecture, ours))


def largest(rows: Sequence[Difference]) -> Difference | None:
    """The term that differs most from ours, by its share; None where all agree. A cause goes before what follows."""
    differ = [row for row in rows if not row.agrees]
    causes = [row for row in differ if row.term not in FOLLOWS]
    return max(causes or differ, key=lambda row: abs(row.share), default=None)


def _rows(log: Log, architecture: Architecture, ours: Report) -> Iterator[Difference]:
    scenario = ours.scenario
    known = LOGS.get(log.engine)
    if known is not None and log.weights is not None:
        yield _weights(log, log.weights, known, architecture, ours)
    engine = engine_for(log, architecture, scenario.precision, scenario.layout)
    serving = Serving.of(architecture, engine, scenario.precision, scenario.layout, scenario.overhead)
    cache = pages(serving, ours)
    if cache.cases:
        yield from cache_rows(log, cache, ours)
        yield from refused_rows(log, cache)
    yield from _start(log, ours)
    if known is not None and known.share_of_free:
        candidate = nearest(log, known, architecture, ours)
        yield from shared_rows(log, known, candidate.total, ours)
    if known is not None:
        yield from graph_rows(log, known, ours)
    if log.out_of_memory is not None and known is None:
        yield from _memory(log.out_of_memory, ours)


def _weights(log: Log, weights: int, known: StartupLog, architecture: Architecture, ours: Report) -> Difference:
    """Beside what an engine holds, with what it may have loaded too: the candidate that is nearest."""
    candidates = dict(_candidates(log, known, architecture, ours))
    what = min(candidates, key=lambda name: abs(candidates[name].total - weights))
    candidate = candidates[what]
    off = weights - candidate.total
    close = CLOSE * candidate.total + ROUNDING
    agrees = -close <= off <= close + known.loading_libraries
    if agrees:
        sentence = Message(
            "{what} agree (difference {share:.2%}); of ours {more:.2f} GiB are rotary tables, padding and what the "
            "allocator rounds up.",
            what=what,
            share=hundredths(off / candidate.total),
            more=_added_bytes(candidate) / GIB,
        )
    else:
        why = _why_weights(log, known, off, ours)
        sentence = Message("{what} differ by {off:+.2f} GiB: {why}.", what=what, off=off / GIB, why=why)
    return Difference(term="weights", unit="bytes", log=weights, ours=candidate.total, agrees=agrees, sentence=sentence)


def _added_bytes(candidate: LoadedWeights) -> int:
    return candidate.rotary + candidate.padding + candidate.rounding


def _candidates(
    log: Log, known: StartupLog, architecture: Architecture, ours: Report
) -> Iterator[tuple[Message, LoadedWeights]]:
    """Weights that the most loaded rank may hold, the vision encoder included unless a flag leaves it out."""
    precision, layout = ours.scenario.precision, ours.scenario.layout
    vision = bool(ours.parameters.not_in_total["vision"])
    started = engine_for(log, architecture, precision, layout)
    for what, engine in known.loadings(started, precision, vision=vision):
        stages = Serving.of(architecture, engine, precision, layout, Overhead()).laid_out.stages
        yield what, max((stage.loaded for stage in stages), key=lambda loaded: loaded.total)


def _why_weights(log: Log, known: StartupLog, off: int, ours: Report) -> Message:
    """Why the log's weights are `off` bytes more than ours."""
    stored = ours.scenario.precision.weights
    if off < 0:
        return Message(
            "fewer bits a weight than our {format}, or layers and experts that sit on other ranks", format=stored
        )
    if log.settings.enable_lora:
        return Message("LoRA slots sit in the log's")
    why = known.why_heavier(log.settings, off, ours.overhead_items["libraries"][1])
    if why is not None:
        return why
    if stored in FLOATS:
        return Message("LoRA slots or a draft model may sit in the log's, or it is another model than ours")
    return Message(
        "LoRA slots, a draft model or matrices in more bits than our {format} may sit in the log's", format=stored
    )


def _start(log: Log, ours: Report) -> Iterator[Difference]:
    """Differences in peak activation memory and in the memory left for the cache."""
    if log.activations is not None and ours.kv_budget:
        yield _activations(log, log.activations, ours)
    if log.cuda_graphs is not None:
        yield _ranged("cuda_graphs", log.cuda_graphs, ours)
    if log.non_torch is not None:
        yield _ranged("libraries", log.non_torch, ours)
    if log.kv_bytes is not None and ours.kv_budget:
        yield _budget(log, log.kv_bytes, ours)


def nearest(log: Log, known: StartupLog, architecture: Architecture, ours: Report) -> LoadedWeights:
    """The possible size of loaded weights that is nearest to the log's; the first where the log states none."""
    weights_of_candidates, weights = (
        [candidate for _, candidate in _candidates(log, known, architecture, ours)],
        log.weights,
    )
    return (
        weights_of_candidates[0]
        if weights is None
        else min(weights_of_candidates, key=lambda candidate: abs(candidate.total - weights))
    )


def _activations(log: Log, figure: int, ours: Report) -> Difference:
    """Peak activation memory on the GPU that is nearest."""
    budget = min(ours.kv_budget, key=lambda budget: abs(budget.profile - figure))
    agrees = abs(figure - budget.profile) <= PROFILE * budget.profile + ROUNDING
    run: dict[str, Any] = {"tokens": budget.max_num_batched_tokens, "sequences": budget.max_num_seqs}
    if agrees:
        sentence = Message(
            "Peak activation memory (profiling), of {tokens:,} tokens and sampling for {sequences:,} sequences, "
            "agrees within the {share:.0%} that are usual.",
            **run,
            share=PROFILE,
        )
    else:
        sentence = Message(
            "Peak activation memory (profiling) differs from ours, which is of {tokens:,} tokens and sampling for "
            "{sequences:,} sequences: {why}.",
            **run,
            why=_why_profile(log, ours),
        )
    return Difference(
        term="activations", unit="bytes", log=figure, ours=budget.profile, agrees=agrees, sentence=sentence
    )


def _why_profile(log: Log, ours: Report) -> Message:
    """Reasons for a profiling pass that differs from ours."""
    silent = [name for name in ("max_num_batched_tokens", "max_num_seqs") if getattr(log.settings, name) is None]
    if len(silent) == 2:
        return Message(
            "the log does not state {flag} and {other}, and we take vLLM's defaults", flag=silent[0], other=silent[1]
        )
    if silent:
        return Message("the log does not state {flag}, and we take vLLM's defaults", flag=silent[0])
    if ours.parameters.not_in_total["vision"]:
        return Message("the log's may pass images, too")
    if "experts_routed" in ours.parameters.components:
        return Message("what experts take beside their products depends on their kernel")
    return Message("another kernel, version or model than ours")


def _ranged(item: Literal["cuda_graphs", "libraries"], figure: int, ours: Report) -> Difference:
    """A part of the overhead, which has no closed form."""
    low, high = ours.overhead_items[item]
    agrees = low - ROUNDING <= figure <= high + ROUNDING
    known: dict[str, Any] = {"size": figure / GIB, "low": low / GIB, "high": high / GIB}
    if item == "cuda_graphs" and agrees:
        remark = Message(
            "CUDA graphs take {size:.2f} GiB, within the range of {low:.2f} to {high:.2f} GiB that we count.", **known
        )
    elif item == "cuda_graphs":
        remark = Message(
            "CUDA graphs take {size:.2f} GiB, outside the range of {low:.2f} to {high:.2f} GiB that we count.", **known
        )
    elif agrees:
        remark = Message(
            "Libraries outside PyTorch take {size:.2f} GiB, within the range of {low:.2f} to {high:.2f} GiB that we "
            "count.",
            **known,
        )
    else:
        remark = Message(
            "Libraries outside PyTorch take {size:.2f} GiB, outside the range of {low:.2f} to {high:.2f} GiB that we "
            "count.",
            **known,
        )
    return Difference(
        term=item, unit="bytes", log=figure, ours=(low + high) // 2, low=low, high=high, agrees=agrees, sentence=remark
    )


def _budget(log: Log, figure: int, ours: Report) -> Difference:
    """Available cache memory by vLLM's settings and the GPU's total, on the nearest GPU; its range is that
    of libraries and CUDA graphs, and of the formula of profiling."""
    budget = min(ours.kv_budget, key=lambda budget: abs(budget.bytes - figure))
    error = round(PROFILE * budget.profile)
    low, high = budget.bytes_low - error, budget.bytes_high + error
    agrees = low - ROUNDING <= figure <= high + ROUNDING
    known: dict[str, Any] = {"low": low / GIB, "high": high / GIB, "size": figure / GIB}
    if agrees:
        sentence = Message(
            "By its settings vLLM leaves {low:.2f} to {high:.2f} GiB for the cache; the log's {size:.2f} GiB are "
            "within the range.",
            **known,
        )
    else:
        sentence = Message(
            "By its settings vLLM leaves {low:.2f} to {high:.2f} GiB for the cache, but {size:.2f} GiB in the log: "
            "{why}.",
            **known,
            why=_why_budget(log, budget, ours),
        )
    return Difference(
        term="KV budget",
        unit="bytes",
        log=figure,
        ours=budget.bytes,
        low=low,
        high=high,
        agrees=agrees,
        sentence=sentence,
    )


def _why_budget(log: Log, budget: KVBudget, ours: Report) -> Message:
    """Reasons for more or less memory for the cache than computed."""
    if log.weights is not None and abs(log.weights - budget.weights) > CLOSE * budget.weights + ROUNDING:
        return Message("its weights differ from ours")
    if log.activations is not None and abs(log.activations - budget.profile) > PROFILE * budget.profile + ROUNDING:
        return Message("its peak activation memory (profiling) differs from ours")
    return _why_profile(log, ours)


def _memory(failure: OutOfMemory, ours: Report) -> Iterator[Difference]:
    """Memory in use and asked for, against our total, where PyTorch ran out."""
    who, in_use = Message("The process"), failure.in_use
    if in_use is None and failure.allocated is not None:  # as before torch 2.1
        who, in_use = Message("PyTorch"), failure.allocated + (failure.reserved or 0)
    if in_use is None:
        return
    wanted, memory = in_use + failure.tried, ours.memory
    known: dict[str, Any] = {"low": memory.low / GIB, "high": memory.high / GIB}
    known |= {"who": who, "held": in_use / GIB, "tried": failure.tried / GIB}
    if failure.free is None:
        sentence = Message(
            "{who} held {held:.2f} GiB and asked for {tried:.2f} GiB more; we compute {low:.2f} to {high:.2f} GiB for "
            "this workload.",
            **known,
        )
    else:
        sentence = Message(
            "{who} held {held:.2f} GiB and asked for {tried:.2f} GiB more with {free:.2f} GiB free; we compute "
            "{low:.2f} to {high:.2f} GiB for this workload.",
            **known,
            free=failure.free / GIB,
        )
    yield Difference(
        term="memory",
        unit="bytes",
        log=wanted,
        ours=memory.total,
        low=memory.low,
        high=memory.high,
        agrees=memory.low <= wanted <= memory.high,
        sentence=sentence,
    )
