"""A log's figures against ours."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calc.errors import Message
from calc.formats import FLOATS
from calc.model.architecture import Architecture
from calc.serving.engines import LOGS, Engine, StartupLog
from calc.serving.engines.sizes import LoadedWeights
from calc.serving.memory import KVBudget, Serving
from calc.serving.report import Report
from calc.serving.weighing import RankWeights
from calc.units import GIB, hundredths
from calc.verify.logs.cached import cache_rows, pages
from calc.verify.logs.log import CLOSE, ROUNDING, Difference, Log, compared, in_range
from calc.verify.logs.log_weighing import engine_for
from calc.verify.logs.out_of_memory import OutOfMemory

PROFILE = 0.06
"""Share within which peak activation memory agrees: its formula was fitted to ten logs, at most 5.4 % off."""
FOLLOWS = ("tokens", "max length", "state blocks", "concurrency", "KV budget", "left", "graph batch")
"""Terms that differ where others do."""


def differences(log: Log, architecture: Architecture, ours: Report) -> tuple[Difference, ...]:
    """Every term that the log states and we compute."""
    known, scenario = LOGS.get(log.engine), ours.scenario
    if known is None:  # a message of PyTorch alone
        return () if log.out_of_memory is None else tuple(_memory(log.out_of_memory, ours))
    engine = engine_for(log, architecture, scenario.precision, scenario.layout)
    serving = Serving.of(architecture, engine, scenario.precision, scenario.layout, scenario.overhead)
    needs_weights = log.weights is not None or known.share_of_free
    candidates = dict(_candidates(known, engine, architecture, ours)) if needs_weights else {}
    return (
        *_weights(log, known, candidates, ours),
        *cache_rows(log, pages(serving, ours)),
        *_start(log, ours),
        *shared_rows(log, known, candidates, ours),
        *graph_rows(log, known, ours),
    )


def largest(rows: Sequence[Difference]) -> Difference | None:
    """The term that differs most from ours, by its share; None where all agree. A cause goes before what follows."""
    differ = [row for row in rows if not row.agrees]
    causes = [row for row in differ if row.term not in FOLLOWS]
    return max(causes or differ, key=lambda row: abs(row.share), default=None)


def nearest(log: Log, candidates: Mapping[Message, LoadedWeights]) -> Message:
    """Candidate whose size is nearest to the log's; the first where the log states none."""
    stated = log.weights
    return min(candidates, key=lambda name: 0 if stated is None else abs(candidates[name].total - stated))


def _weights(
    log: Log, known: StartupLog, candidates: Mapping[Message, LoadedWeights], ours: Report
) -> Iterator[Difference]:
    """Weights in the log against those that the engine holds, or may have loaded: the nearest of these."""
    if log.weights is None:
        return
    what = nearest(log, candidates)
    candidate = candidates[what]
    added = candidate.rotary + candidate.padding + candidate.rounding
    off, close = log.weights - candidate.total, CLOSE * candidate.total + ROUNDING
    why = _why_weights(log, known, off, ours)
    yield compared(
        "weights",
        log.weights,
        candidate.total,
        "{what} agree (difference {share:.2%}); of ours {more:.2f} GiB are rotary tables, padding and what the "
        "allocator rounds up.",
        "{what} differ by {off:+.2f} GiB: {why}.",
        {"what": what, "share": hundredths(off / candidate.total), "more": added / GIB, "off": off / GIB, "why": why},
        agrees=-close <= off <= close + known.loading_libraries,
    )


def _candidates(
    known: StartupLog, started: Engine, architecture: Architecture, ours: Report
) -> Iterator[tuple[Message, LoadedWeights]]:
    """Weights that the most loaded rank may hold, the vision encoder included unless a flag leaves it out."""
    precision, layout = ours.scenario.precision, ours.scenario.layout
    vision = bool(ours.parameters.not_in_total["vision"])
    for what, engine in known.loadings(started, precision, vision=vision):
        stages = RankWeights(architecture, engine, precision).laid_out(layout).stages
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
        yield _of_overhead(
            "cuda_graphs",
            log.cuda_graphs,
            ours.overhead_items["cuda_graphs"],
            "CUDA graphs take {size:.2f} GiB, within the range of {low:.2f} to {high:.2f} GiB that we count.",
            "CUDA graphs take {size:.2f} GiB, outside the range of {low:.2f} to {high:.2f} GiB that we count.",
        )
    if log.non_torch is not None:
        yield _of_overhead(
            "libraries",
            log.non_torch,
            ours.overhead_items["libraries"],
            "Libraries outside PyTorch take {size:.2f} GiB, within the range of {low:.2f} to {high:.2f} GiB that we "
            "count.",
            "Libraries outside PyTorch take {size:.2f} GiB, outside the range of {low:.2f} to {high:.2f} GiB that we "
            "count.",
        )
    if log.kv_bytes is not None and ours.kv_budget:
        yield _budget(log, log.kv_bytes, ours)


def _activations(log: Log, figure: int, ours: Report) -> Difference:
    """Peak activation memory on the GPU that is nearest."""
    budget = min(ours.kv_budget, key=lambda budget: abs(budget.profile - figure))
    run: dict[str, Any] = {"tokens": budget.max_num_batched_tokens, "sequences": budget.max_num_seqs}
    return compared(
        "activations",
        figure,
        budget.profile,
        "Peak activation memory (profiling), of {tokens:,} tokens and sampling for {sequences:,} sequences, agrees "
        "within the {share:.0%} that are usual.",
        "Peak activation memory (profiling) differs from ours, which is of {tokens:,} tokens and sampling for "
        "{sequences:,} sequences: {why}.",
        run | {"share": PROFILE, "why": _why_profile(log, ours)},
        agrees=abs(figure - budget.profile) <= PROFILE * budget.profile + ROUNDING,
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
        return Message("the memory of experts besides their products depends on the kernel")
    return Message("another kernel, version or model than ours")


def _of_overhead(term: str, figure: int, counted: tuple[int, int], agree: str, differ: str) -> Difference:
    """A part of the overhead, which has no closed form."""
    low, high = counted
    return in_range(term, figure, (low, (low + high) // 2, high), agree, differ, {}, ROUNDING)


def _budget(log: Log, figure: int, ours: Report) -> Difference:
    """Available cache memory by vLLM's settings and the GPU's total, on the nearest GPU; its range is that
    of libraries and CUDA graphs, and of the formula of profiling."""
    budget = min(ours.kv_budget, key=lambda budget: abs(budget.bytes - figure))
    error = round(PROFILE * budget.profile)
    return in_range(
        "KV budget",
        figure,
        (budget.bytes_low - error, budget.bytes, budget.bytes_high + error),
        "By its settings vLLM leaves {low:.2f} to {high:.2f} GiB for the cache; the log's {size:.2f} GiB are within "
        "the range.",
        "By its settings vLLM leaves {low:.2f} to {high:.2f} GiB for the cache, but {size:.2f} GiB in the log: {why}.",
        {"why": _why_budget(log, budget, ours)},
        ROUNDING,
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
    who, in_use, memory = Message("The process"), failure.in_use, ours.memory
    if in_use is None and failure.allocated is not None:  # as before torch 2.1
        who, in_use = Message("PyTorch"), failure.allocated + (failure.reserved or 0)
    if in_use is None:
        return
    sentence = (
        "{who} had {in_use:.2f} GiB in use and asked for {tried:.2f} GiB more; we compute {low:.2f} to {high:.2f} GiB "
        "for this workload."
    )
    if failure.free is not None:
        sentence = (
            "{who} had {in_use:.2f} GiB in use and asked for {tried:.2f} GiB more with {free:.2f} GiB free; we compute "
            "{low:.2f} to {high:.2f} GiB for this workload."
        )
    values = {"who": who, "in_use": in_use / GIB, "tried": failure.tried / GIB, "free": (failure.free or 0) / GIB}
    wanted, range_of_ours = in_use + failure.tried, (memory.low, memory.total, memory.high)
    yield in_range("memory", wanted, range_of_ours, sentence, sentence, values)


# Memory that an engine with a share of the free memory leaves for its cache and outside it, and its CUDA graphs.


def shared_rows(
    log: Log, known: StartupLog, candidates: Mapping[Message, LoadedWeights], ours: Report
) -> Iterator[Difference]:
    """Bytes that the share leaves for the pools next to our weights, and bytes that are free then. Libraries take a
    part while weights are loaded."""
    free, share = log.free, log.settings.mem_fraction_static
    if not known.share_of_free or free is None or log.kv_bytes is None or share is None:
        return
    weights = candidates[nearest(log, candidates)].total
    close = round(CLOSE * weights) + ROUNDING

    values: dict[str, Any] = {"share": share, "free": free / GIB}

    def left_over(term: str, stated: int, left: int, agree: str, differ: str) -> Difference:
        ours = left - known.loading_libraries - close, left, left + close
        return in_range(term, stated, ours, agree, differ, values)

    yield left_over(
        "KV budget",
        log.kv_bytes + (log.state_bytes or 0),
        int(free * share) - weights,
        "Its share of {share:g} of {free:.2f} GiB leaves {low:.2f} to {high:.2f} GiB beside our weights; the log's "
        "{size:.2f} GiB of cache are within the range.",
        "Its share of {share:g} of {free:.2f} GiB leaves {low:.2f} to {high:.2f} GiB beside our weights, but the log's "
        "cache takes {size:.2f} GiB: its weights differ, a draft model has a part, or flags limit the tokens.",
    )
    if log.left is not None:
        tables = known.tables(log.settings, ours.scenario.workload.context)
        values["table"] = tables / GIB
        yield left_over(
            "left",
            log.left,
            int(free * (1 - share)) - tables,
            "Outside of its share and of a table of requests of {table:.2f} GiB, {low:.2f} to {high:.2f} GiB stay free "
            "for a pass and CUDA graphs; the log's {size:.2f} GiB are within the range.",
            "Outside of its share and of a table of requests of {table:.2f} GiB, {low:.2f} to {high:.2f} GiB stay free "
            "for a pass and CUDA graphs, but {size:.2f} GiB in the log: another program uses this GPU, or flags limit "
            "the tokens.",
        )


def graph_rows(log: Log, known: StartupLog, ours: Report) -> Iterator[Difference]:
    """The largest batch that a CUDA graph is captured for, by the rule of the version that ours were read in."""
    if log.graph_batch is None or log.free is None:
        return
    batches = known.graph_batches(log.settings, log.free, ours.scenario.layout.tp)
    if not batches:
        return
    yield compared(
        "graph batch",
        log.graph_batch,
        batches[-1],
        "CUDA graphs are captured for {n:,} batches, up to {most:,} sequences.",
        "CUDA graphs are captured for batches up to {stated:,} sequences; {engine} {version} captures {n:,}, up to "
        "{most:,}, on such a GPU: another version, a flag, or fewer requests at once.",
        {"n": len(batches), "most": batches[-1], "engine": known.engine.title, "version": known.engine.versions},
        agrees=log.graph_batch == batches[-1],
    )
