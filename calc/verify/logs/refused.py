"""The cache that an engine prints when it refuses to start, next to ours for the same bytes."""

from collections.abc import Callable, Iterator
from typing import Any

from calc.errors import Message
from calc.units import GIB
from calc.verify.logs.cached import Case, Pages, pages_of, rounding_of
from calc.verify.logs.difference import Difference, Term, span
from calc.verify.logs.log import Log


def refused_rows(log: Log, cache: Pages) -> Iterator[Difference]:
    """The longest request, the blocks for recurrent states, and the tokens of a block of attention."""
    if log.kv_bytes is not None and log.kv_bytes > 0:
        if log.estimated_max_model_len is not None:
            yield _max_length(log, log.estimated_max_model_len, log.kv_bytes, cache)
        if log.state_blocks is not None:
            yield _state_blocks(log.state_blocks, log.kv_bytes, rounding_of(log), cache)
    if log.attention_block is not None:
        yield _attention_block(log.attention_block, cache)


def _of_bytes(
    term: Term, stated: int, nbytes: int, rounding: int, cache: Pages, count: Callable[[Case, int], int]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Fields of a row of what so many bytes hold, in the case that is nearest, and the values of its sentence."""
    case = min(cache.cases, key=lambda case: abs(count(case, nbytes) - stated))
    low, high = count(case, nbytes - rounding), count(case, nbytes + rounding)
    fields: dict[str, Any] = {"term": term, "log": stated, "ours": count(case, nbytes), "low": low, "high": high}
    fields["agrees"] = low <= stated <= high
    words: dict[str, Any] = {"pages": pages_of(case, cache.serving.engine.title), "size": nbytes / GIB}
    return fields, words | {"span": span(low, high), "stated": stated}


def _max_length(log: Log, stated: int, nbytes: int, cache: Pages) -> Difference:
    """Early versions count on every block: both count where the log does not state its version."""

    def length(case: Case, nbytes: int) -> int:
        blocks = case.pool.blocks([nbytes] * len(case.pool.block_bytes))
        whole = log.version is None and case.pool.cached_length(blocks, cache.length) == stated
        return case.pool.cached_length(blocks if whole else case.pool.usable_blocks(blocks), cache.length)

    fields, words = _of_bytes("max length", stated, nbytes, rounding_of(log), cache, length)
    if fields["agrees"]:
        sentence = Message(
            "{pages} the log's {size:.2f} GiB of cache hold a request of {span} tokens; its {stated:,} "
            "are within the range.",
            **words,
        )
    else:
        sentence = Message(
            "{pages} the log's {size:.2f} GiB of cache hold a request of {span} tokens, but it says "
            "{stated:,}: another step, version, cache format or model than ours.",
            **words,
        )
    return Difference(unit="tokens", sentence=sentence, **fields)


def _state_blocks(stated: int, nbytes: int, rounding: int, cache: Pages) -> Difference:
    def blocks(case: Case, nbytes: int) -> int:
        return case.pool.blocks([nbytes] * len(case.pool.block_bytes))

    fields, words = _of_bytes("state blocks", stated, nbytes, rounding, cache, blocks)
    if fields["agrees"]:
        sentence = Message(
            "{pages} the log's {size:.2f} GiB of cache are {span} blocks; its {stated:,} are within the range.", **words
        )
    else:
        sentence = Message(
            "{pages} the log's {size:.2f} GiB of cache are {span} blocks, but it has {stated:,}: another "
            "version, cache format, layout or model than ours.",
            **words,
        )
    return Difference(unit="sequences", sentence=sentence, **fields)


def _attention_block(stated: int, cache: Pages) -> Difference:
    """The tokens whose keys and values take as much as a recurrent state."""
    sizes = [case.pool.block_size(cache.length) for case in cache.cases]
    ours = min(sizes, key=lambda size: abs(size - stated))
    if ours == stated:
        sentence = Message("A block of attention has {tokens:,} tokens in both.", tokens=stated)
    else:
        sentence = Message(
            "A block of attention has {stated:,} tokens in the log and {ours:,} in ours: another cache format, layout, "
            "draft or model than ours.",
            stated=stated,
            ours=ours,
        )
    return Difference(
        term="attention block", unit="tokens", log=stated, ours=ours, agrees=ours == stated, sentence=sentence
    )
