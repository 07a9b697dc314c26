"""The least changes with which a server that died would have started, as far as its log says."""

from collections.abc import Iterator
from math import ceil, floor
from typing import Any

from calc.errors import Frozen, Message
from calc.verify.logs.log import Log


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
            yield _share(share)
    elif log.refusal == "state-blocks" and log.state_blocks:
        yield Remedy(
            what=Message("`--max-num-seqs {n}`", n=log.state_blocks), changes={"max_num_seqs": log.state_blocks}
        )
    elif log.refusal == "length":
        if (share := enough_share(log)) is not None:
            yield _share(share)
        longest = log.estimated_max_model_len or log.kv_tokens
        if longest:
            yield Remedy(what=Message("`--max-model-len {n}`", n=longest), changes={"max_model_len": longest})
    elif log.refusal == "no-cache":
        if (share := share_with_cache(log, request)) is not None:
            yield _share(share)
        if (fraction := static_fraction(log, request)) is not None:
            what = Message("`--mem-fraction-static {share:g}`", share=fraction)
            yield Remedy(what=what, changes={"mem_fraction_static": fraction})


def _share(share: float) -> Remedy:
    return Remedy(
        what=Message("`--gpu-memory-utilization {share:g}`", share=share), changes={"gpu_memory_utilization": share}
    )


def free_share(log: Log) -> float | None:
    """The largest share of the GPU, in whole per cents, that was free at the start; None: not stated."""
    if log.free is None or not log.total:
        return None
    return floor(100 * log.free / log.total) / 100


def enough_share(log: Log) -> float | None:
    """The least share, in whole per cents, that leaves enough cache for a request; None where less is free, or the log
    does not state what it takes."""
    return None if log.kv_needed is None else share_with_cache(log, log.kv_needed)


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
