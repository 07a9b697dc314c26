"""The cache of a log against ours, in the engine's own pages; also that of an engine which refused to start."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from calc.errors import Message
from calc.hardware.gpus import gpus, usual_gpus
from calc.hardware.solver import largest
from calc.model.architecture import Architecture
from calc.serving.engines import LOGS
from calc.serving.engines.cache import Pool
from calc.serving.kv_cache import growth, state_bytes
from calc.serving.memory import Serving
from calc.serving.report import Report
from calc.units import GIB
from calc.verify.logs.log import ROUNDING, Difference, Log, compared, in_range, span

STEPS = (2048, 8192)
"""Tokens of a step of vLLM by default, on small GPUs and on large ones."""


class Case(NamedTuple):
    """One way in which the engine may have divided its cache."""

    pool: Pool
    step: int
    flags: tuple[str, ...]  # that the log does not state


class Pages(NamedTuple):
    """Divisions of the cache that the log leaves open."""

    serving: Serving
    length: int
    cases: tuple[Case, ...]

    @property
    def architecture(self) -> Architecture:
        return self.serving.architecture

    @property
    def growth(self) -> list[dict[int | None, int]]:
        """Bits cached per token on each stage, by window."""
        return [growth(stage.blocks, self.serving.precision.kv) for stage in self.serving.laid_out.stages]

    @property
    def is_per_token(self) -> bool:
        """Whether every token takes the same bytes: no layer has a window or a state."""
        states = any(state_bytes(stage.blocks) for stage in self.serving.laid_out.stages)
        return not states and all(set(bits) <= {None} for bits in self.growth)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of a token on the most loaded rank, where every layer keeps the whole context."""
        case, stages = self.cases[0], range(len(self.serving.laid_out.stages))
        block = case.pool.block_size(self.length)
        return max(case.pool.required_bytes(stage, 1, block) for stage in stages) // block

    @property
    def has_latents(self) -> bool:
        """Whether a layer caches a latent vector in place of keys and values (MLA)."""
        return any(mixer.absorbs for block in self.architecture.blocks for mixer in block.mixers)

    def tokens(self, case: Case, nbytes: int) -> int:
        """Tokens that the engine prints for a number of bytes on every stage."""
        return case.pool.tokens_of(nbytes, self.length)

    def request_bytes(self, case: Case) -> int:
        """Bytes of a request of the whole context on the stage that needs most."""
        stages = range(len(self.serving.laid_out.stages))
        return max(case.pool.required_bytes(stage, 1, self.length) for stage in stages)

    def requests(self, case: Case, tokens: int) -> tuple[float, float]:
        """Requests of the whole context that fit so many tokens as the engine prints them: of the fewest blocks for
        which it would, and of the most."""
        pool, length = case.pool, self.length
        most = largest(lambda blocks: pool.tokens(blocks, length) <= tokens, MOST_BLOCKS)
        fewer = largest(lambda blocks: pool.tokens(blocks, length) < tokens, MOST_BLOCKS)
        return pool.concurrency(min(fewer + 1, most), length), pool.concurrency(most, length)


MOST_BLOCKS = 2**40


def pages(serving: Serving, ours: Report) -> Pages:
    """The cases that are left open: the GPU, a step and flags that the log does not state."""
    workload, stated = ours.scenario.workload, sorted({budget.max_num_batched_tokens for budget in ours.kv_budget})
    known = [gpus()[budget.gpu] for budget in ours.kv_budget if budget.gpu in gpus()]
    engine, cases = serving.engine, []
    alternatives = LOGS[engine.name].alternatives(engine) if engine.name in LOGS else [engine]
    for gpu, engine in product(known or usual_gpus(), alternatives):
        unstated = engine.flags(dict(set(engine.options) - set(serving.engine.options)))
        limits = engine.limits(workload, gpu, serving.architecture, serving.layout)
        for step in stated or {limits.step_tokens, *STEPS}:
            in_flight = limits.in_flight_tokens * step // limits.step_tokens
            changed = replace(limits, step_tokens=step, in_flight_tokens=in_flight)
            cache = engine.cache(serving.laid_out, gpu, changed)
            if isinstance(cache, Pool):
                cases.append(Case(cache, step, unstated))
    return Pages(serving, workload.context, tuple(sorted(cases, key=lambda case: len(case.flags))))


def cache_rows(log: Log, cache: Pages) -> Iterator[Difference]:
    """All that the log says of its cache; nothing where the engine has none in pages."""
    if not cache.cases:
        return
    has_bytes = log.kv_bytes is not None and log.kv_bytes > 0
    if has_bytes and log.kv_tokens:
        if cache.is_per_token:
            yield from _per_token(log, log.kv_bytes or 0, log.kv_tokens, cache)
        else:  # of one kind of layer, or, of vLLM since 0.21, the requests times their length
            yield held_in_pages(
                "tokens",
                log.kv_tokens,
                log,
                cache,
                cache.tokens,
                "{pages} the log's {size:.2f} GiB of cache hold {span} tokens; its {tokens:,} are within the range.",
                "{pages} the log's {size:.2f} GiB of cache hold {span} tokens, but it has {tokens:,}: another step, "
                "version, cache format or model than ours.",
            )
    if log.states and log.state_bytes:
        yield from _states(log, log.states, log.state_bytes, cache)
    if log.kv_needed and log.settings.max_model_len == cache.length:
        yield _single_request(log.kv_needed, cache)
    if log.concurrency and log.concurrency_length == cache.length and log.kv_tokens:
        yield _concurrency(log.concurrency, log.kv_tokens, block_size(log, cache), cache)
    if has_bytes and log.estimated_max_model_len is not None:
        yield _max_length(log, log.estimated_max_model_len, cache)
    if has_bytes and log.state_blocks is not None:
        yield held_in_pages(
            "state blocks",
            log.state_blocks,
            log,
            cache,
            blocks_of,
            "{pages} the log's {size:.2f} GiB of cache are {span} blocks; its {stated:,} are within the range.",
            "{pages} the log's {size:.2f} GiB of cache are {span} blocks, but it has {stated:,}: another version, "
            "cache format, layout or model than ours.",
        )
    if (stated := log.attention_block) is not None:  # tokens whose keys and values take as much as a recurrent state
        sizes = [case.pool.block_size(cache.length) for case in cache.cases]
        ours = min(sizes, key=lambda size: abs(size - stated))
        yield compared(
            "attention block",
            stated,
            ours,
            "A block of attention has {tokens:,} tokens in both.",
            "A block of attention has {stated:,} tokens in the log and {ours:,} in ours: another cache format, layout, "
            "draft or model than ours.",
            {"tokens": stated, "ours": ours},
            agrees=ours == stated,
        )


def rounding_of(log: Log) -> int:
    """Bytes by which the cache's may be off."""
    return ROUNDING * (LOGS[log.engine].cache_sizes if log.engine in LOGS else 1)


def block_size(log: Log, cache: Pages) -> int:
    """Tokens of a block: FlashMLA asks for 64."""
    return log.settings.block_size or (64 if cache.has_latents else cache.cases[0].pool.block_size(cache.length))


def _per_token(log: Log, kv_bytes: int, tokens: int, cache: Pages) -> Iterator[Difference]:
    """Bytes per token, and the tokens that the log's bytes hold at ours. A cache has whole blocks."""
    size, block = cache.bytes_per_token, block_size(log, cache)
    rounding = rounding_of(log)
    low, high = (kv_bytes - rounding) / (tokens + block) / size, (kv_bytes + rounding) / tokens / size
    agrees, hold = low <= 1 <= high, kv_bytes // size // block * block
    yield compared(
        "bytes per token",
        round(kv_bytes / tokens),
        size,
        "The cache takes {bytes:,} bytes a token and rank in both.",
        "Bytes per token and rank: {stated:,} in the log, {computed:,} ours: {why}.",
        {"bytes": size, "computed": size, "why": _why_per_token(low, high, cache)},
        agrees=agrees,
    )
    sentence = "At our bytes per token the log's {size:.2f} GiB of cache hold {tokens:,} tokens."
    values = {"size": kv_bytes / GIB, "tokens": hold}
    yield compared("tokens", tokens, hold, sentence, sentence, values, agrees=agrees)


def _why_per_token(low: float, high: float, cache: Pages) -> Message:
    """Why the log's bytes per token are between `low` and `high` times ours."""
    layers, layout, latent = cache.architecture.num_layers, cache.serving.layout, cache.has_latents
    ranks = next((n for n in range(2, layout.tp + 1) if latent and low <= 1 / n <= high), None)
    if latent and low <= 640 / 576 <= high:
        return Message("vLLM before 0.8 pads the latent to 640 elements a layer")
    if low <= (layers + 1) / layers <= high:
        return Message("a draft layer (EAGLE, multi-token prediction) has a cache of its own")
    if ranks is not None:
        return Message("the tokens of {ranks} ranks are counted together (decode context parallel)", ranks=ranks)
    if low <= 2 <= high:
        return Message("the log's cache has twice the bits of our {format}", format=cache.serving.precision.kv)
    if low <= 0.5 <= high:
        return Message("the log's cache has half the bits of our {format}", format=cache.serving.precision.kv)
    if layout.gpus > 1 and low > 1:
        return Message(
            "the tokens are those of the rank with the most memory in use, and the bytes may be those of a rank with "
            "more room"
        )
    return Message("another cache format, layout or model than ours")


def _states(log: Log, states: int, nbytes: int, cache: Pages) -> Iterator[Difference]:
    """The pool of recurrent states: what the convolutions look back on, and the states proper."""
    stages = range(len(cache.serving.laid_out.stages))
    ours = max((cache.cases[0].pool.states_bytes(stage, states) or 0 for stage in stages), default=0)
    if not ours:
        return
    yield compared(
        "states",
        nbytes,
        ours,
        "{states:,} recurrent states, and one for padding, take as much in both.",
        "{states:,} recurrent states, and one for padding, take {stated:.2f} GiB in the log and {computed:.2f} GiB in "
        "ours: states in other bits, those of speculation, or another model.",
        {"states": states, "stated": nbytes / GIB, "computed": ours / GIB},
        agrees=abs(nbytes - ours) <= rounding_of(log),
    )


def _single_request(needed: int, cache: Pages) -> Difference:
    """Bytes that vLLM needs for a request of the whole context, when it refuses to start."""
    case = min(cache.cases, key=lambda case: abs(cache.request_bytes(case) - needed))
    per_request = cache.request_bytes(case)
    differ = "The cache of a request differs: another cache format, layout or model than ours."
    if not cache.is_per_token:
        differ = (
            "The cache of a request differs: windows hold the tokens of a step too, {step:,} in ours, and the log's "
            "step, version, cache format or model may be another."
        )
    return compared(
        "one request",
        needed,
        per_request,
        "A request of {tokens:,} tokens takes as much cache in the log as in ours.",
        differ,
        {"tokens": cache.length, "step": case.step},
        agrees=abs(per_request - needed) <= ROUNDING,
    )


def _concurrency(concurrency: float, tokens: int, block: int, cache: Pages) -> Difference:
    """Requests of the whole context, which have whole blocks, by the tokens of the same log: two decimals."""
    length = cache.length
    case = min(cache.cases, key=lambda case: abs(cache.requests(case, tokens)[0] - concurrency))
    low, high = cache.requests(case, tokens)
    known: dict[str, Any] = {"tokens": tokens, "requests": high, "length": length, "stated": concurrency}
    known["engine"] = cache.serving.engine.title
    ours = round(high * length)
    if cache.is_per_token:  # blocks of other sizes; early versions divide tokens by tokens
        low, high = low * length / (length + block), high * (length + cache.cases[0].pool.block_size(length)) / length
    differ = (
        "The log's {tokens:,} tokens of cache are {requests:,.2f} requests of {length:,} tokens in {engine}'s pages, "
        "but {stated:,.2f} in the log: another step, version or cache format than ours."
    )
    if cache.is_per_token:
        differ = (
            "The log's {tokens:,} tokens of cache are {requests:,.2f} requests of {length:,} tokens in {engine}'s "
            "pages, but {stated:,.2f} in the log: these lines are not of one rank and start."
        )
    return compared(
        "concurrency",
        round(concurrency * length),
        ours,
        "The log's {tokens:,} tokens of cache are {requests:,.2f} requests of {length:,} tokens in {engine}'s pages; "
        "the log's {stated:,.2f} agree.",
        differ,
        known,
        agrees=low - 0.005 <= concurrency <= high + 0.005,
    )


# What bytes of cache hold in the engine's pages: the tokens that it prints, and of an engine that refused to start the
# longest request and the blocks for recurrent states.


def held_in_pages(
    term: str, stated: int, log: Log, cache: Pages, count: Callable[[Case, int], int], agree: str, differ: str
) -> Difference:
    """The log's figure and that of its bytes of cache, which `count` gives, in the case that is nearest."""
    nbytes, rounding = log.kv_bytes or 0, rounding_of(log)
    case = min(cache.cases, key=lambda case: abs(count(case, nbytes) - stated))
    low, high = count(case, nbytes - rounding), count(case, nbytes + rounding)
    pages = Message("In {engine}'s pages", engine=cache.serving.engine.title)
    if case.flags:
        flags = " ".join(case.flags)
        pages = Message("In {engine}'s pages with {flags}", engine=cache.serving.engine.title, flags=flags)
    values = {"pages": pages, "size": nbytes / GIB, "span": span(low, high), "tokens": stated}
    return in_range(term, stated, (low, count(case, nbytes), high), agree, differ, values)


def blocks_of(case: Case, nbytes: int) -> int:
    """Blocks of so many bytes on every stage."""
    return case.pool.blocks([nbytes] * len(case.pool.block_bytes))


def _max_length(log: Log, stated: int, cache: Pages) -> Difference:
    """Early versions count on every block: both count where the log does not state its version."""

    def length(case: Case, nbytes: int) -> int:
        blocks = blocks_of(case, nbytes)
        whole = log.version is None and case.pool.cached_length(blocks, cache.length) == stated
        return case.pool.cached_length(blocks if whole else case.pool.usable_blocks(blocks), cache.length)

    return held_in_pages(
        "max length",
        stated,
        log,
        cache,
        length,
        "{pages} the log's {size:.2f} GiB of cache hold a request of {span} tokens; its {stated:,} are within the "
        "range.",
        "{pages} the log's {size:.2f} GiB of cache hold a request of {span} tokens, but it says {stated:,}: another "
        "step, version, cache format or model than ours.",
    )
