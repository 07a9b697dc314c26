"""Why a server did not start, in a sentence with the log's own figures; and the least changes with which it would have,
as far as its log says."""

from collections.abc import Iterator
from math import ceil, floor
from typing import Any

from calc.errors import Frozen, Message
from calc.units import GIB
from calc.verify.logs.log import Log


def shortage(log: Log) -> Message:
    """The shortage that a refusal states: which memory, and by how much as far as the log says."""
    match log.refusal:
        case "free-memory":
            return _free_memory(log)
        case "state-blocks":
            return _state_blocks(log)
        case "length":
            return _length(log)
        case "no-cache":
            return _no_cache(log)
        case "out-of-memory":
            return _out_of_memory(log)
    if log.kv_tokens:
        return Message(
            "The server died after it had set its cache aside, and these lines do not say that memory was short."
        )
    return Message("The server did not start, and these lines do not say why: the reason stands above them.")


def _free_memory(log: Log) -> Message:
    share = log.settings.gpu_memory_utilization
    if log.free is None or log.total is None or share is None:
        return Message("The server did not start: less memory was free than the share of the GPU that it asks for.")
    sentence = (
        "The server did not start: it asks for {share:g} of the GPU's {total:.2f} GiB, and {free:.2f} GiB were free: "
        "short by {short:.2f} GiB."
    )
    short = max(0.0, log.total * share - log.free) / GIB
    return Message(sentence, share=share, total=log.total / GIB, free=log.free / GIB, short=short)


def _state_blocks(log: Log) -> Message:
    sequences, blocks = log.settings.max_num_seqs, log.state_blocks
    if blocks is None or sequences is None:
        return Message("The server did not start: it has fewer blocks for recurrent states than sequences.")
    sentence = (
        "The server did not start: `max_num_seqs` is {sequences:,}, and {blocks:,} blocks are left for recurrent "
        "states, of which each sequence takes one: short by {short:,}."
    )
    return Message(sentence, sequences=sequences, blocks=blocks, short=sequences - blocks)


def _length(log: Log) -> Message:
    length, left = log.settings.max_model_len, log.kv_bytes
    if length is None:
        return Message("The server did not start: the cache does not hold one request of the length allowed.")
    if log.kv_needed is not None and left is not None:
        sentence = (
            "The server did not start: a request of {length:,} tokens needs {needed:.2f} GiB of cache, and {left:.2f} "
            "GiB are left for it: short by {short:.2f} GiB."
        )
        short = (log.kv_needed - left) / GIB
        return Message(sentence, length=length, needed=log.kv_needed / GIB, left=left / GIB, short=short)
    if log.kv_tokens is not None:
        sentence = (
            "The server did not start: requests may have {length:,} tokens, and the cache holds {tokens:,}: short by "
            "{short:,}."
        )
        return Message(sentence, length=length, tokens=log.kv_tokens, short=length - log.kv_tokens)
    return Message("The server did not start: the cache does not hold a request of {length:,} tokens.", length=length)


def _no_cache(log: Log) -> Message:
    share, free, weights = log.settings.mem_fraction_static, log.free, log.weights
    if share is not None and free is not None and weights is not None:
        sentence = (
            "The server did not start: it takes {share:g} of the {free:.2f} GiB that were free, and loading took "
            "{weights:.2f} GiB: short by {short:.2f} GiB before there is any cache."
        )
        short = max(0.0, weights - share * free) / GIB
        return Message(sentence, share=share, free=free / GIB, weights=weights / GIB, short=short)
    if log.kv_bytes is not None and log.kv_bytes < 0:
        sentence = (
            "The server did not start: weights and working memory take {short:.2f} GiB more than its share of the GPU, "
            "and nothing is left for the cache."
        )
        return Message(sentence, short=-log.kv_bytes / GIB)
    return Message("The server did not start: its share of the GPU leaves nothing for the cache.")


def _out_of_memory(log: Log) -> Message:
    if (failure := log.out_of_memory) is None:
        return Message("The GPU ran out of memory, and the server died.")
    sentence = "The GPU ran out of memory: PyTorch asked for {tried:.2f} GiB, and the server died."
    if (free := failure.free) is not None:
        sentence = (
            "The GPU ran out of memory: PyTorch asked for {tried:.2f} GiB, {free:.2f} GiB were free: short by "
            "{short:.2f} GiB."
        )
    short = max(0, failure.tried - (free or 0)) / GIB
    return Message(sentence, tried=failure.tried / GIB, free=(free or 0) / GIB, short=short)


class Remedy(Frozen):
    """One change of what the log states, and the flag that makes it."""

    what: Message
    changes: dict[str, Any]  # by the fields of LogSettings


def remedies(log: Log, weights: int, request: int) -> tuple[Remedy, ...]:
    """Each with the log's own figures, as far as it states them. `weights` are bytes of ours on one GPU, which must fit
    what is free; `request`, those of the cache of one request, where the log does not say."""
    return tuple(_remedies(log, weights, request))


def _remedies(log: Log, weights: int, request: int) -> Iterator[Remedy]:
    if log.refusal == "free-memory":
        share = free_share(log)
        if share is not None and log.total is not None and share * log.total > weights:
            yield remedy("gpu_memory_utilization", share)
    elif log.refusal == "state-blocks" and log.state_blocks:
        yield remedy("max_num_seqs", log.state_blocks)
    elif log.refusal == "length":
        if log.kv_needed is not None and (share := share_with_cache(log, log.kv_needed)) is not None:
            yield remedy("gpu_memory_utilization", share)
        longest = log.estimated_max_model_len or log.kv_tokens
        if longest:
            yield remedy("max_model_len", longest)
    elif log.refusal == "no-cache":
        if (share := share_with_cache(log, request)) is not None:
            yield remedy("gpu_memory_utilization", share)
        if (fraction := static_fraction(log, request)) is not None:
            yield remedy("mem_fraction_static", fraction)


def remedy(setting: str, value: float) -> Remedy:
    """Another value of a setting, whose flag the engines spell as the field."""
    flag, written = f"--{setting.replace('_', '-')}", value if isinstance(value, int) else f"{value:g}"
    return Remedy(what=Message("`{flag} {value}`", flag=flag, value=written), changes={setting: value})


def free_share(log: Log) -> float | None:
    """The largest share of the GPU, in whole per cents, that was free at the start; None: not stated."""
    if log.free is None or not log.total:
        return None
    return floor(100 * log.free / log.total) / 100


def share_with_cache(log: Log, cache: int) -> float | None:
    """The least share, in whole per cents, that leaves so many bytes of cache; None where less is free, or the log does
    not state what it left."""
    share, most = log.settings.gpu_memory_utilization, free_share(log)
    if share is None or most is None or not log.total or log.kv_bytes is None:
        return None
    enough = ceil(100 * (share + (cache - log.kv_bytes) / log.total)) / 100
    return enough if share < enough <= most else None


def static_fraction(log: Log, cache: int) -> float | None:
    """SGLang's least share, in whole per cents of what is free before it loads, that holds what loading took and so
    many bytes of cache (`_profile_available_bytes`); None where there is none, or the log does not state it."""
    share = log.settings.mem_fraction_static
    if share is None or log.weights is None or not log.free:
        return None
    enough = ceil(100 * (log.weights + cache) / log.free) / 100
    return enough if share < enough < 1 else None
