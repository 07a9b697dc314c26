"""Why a server did not start, in a sentence with the log's own figures."""

from calc.errors import Message
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
    return Message(
        "The server did not start: it asks for {share:g} of the GPU's {total:.2f} GiB, and {free:.2f} GiB were free: "
        "short by {short:.2f} GiB.",
        share=share,
        total=log.total / GIB,
        free=log.free / GIB,
        short=max(0.0, log.total * share - log.free) / GIB,
    )


def _state_blocks(log: Log) -> Message:
    sequences = log.settings.max_num_seqs
    if log.state_blocks is None or sequences is None:
        return Message("The server did not start: it has fewer blocks for recurrent states than sequences.")
    return Message(
        "The server did not start: `max_num_seqs` is {sequences:,}, and {blocks:,} blocks are left for recurrent "
        "states, of which each sequence takes one: short by {short:,}.",
        sequences=sequences,
        blocks=log.state_blocks,
        short=sequences - log.state_blocks,
    )


def _length(log: Log) -> Message:
    length = log.settings.max_model_len
    if length is None:
        return Message("The server did not start: the cache does not hold one request of the length allowed.")
    if log.kv_needed is not None and log.kv_bytes is not None:
        return Message(
            "The server did not start: a request of {length:,} tokens needs {needed:.2f} GiB of cache, and {left:.2f} "
            "GiB are left for it: short by {short:.2f} GiB.",
            length=length,
            needed=log.kv_needed / GIB,
            left=log.kv_bytes / GIB,
            short=(log.kv_needed - log.kv_bytes) / GIB,
        )
    if log.kv_tokens is not None:
        return Message(
            "The server did not start: requests may have {length:,} tokens, and the cache holds {tokens:,}: short by "
            "{short:,}.",
            length=length,
            tokens=log.kv_tokens,
            short=length - log.kv_tokens,
        )
    return Message("The server did not start: the cache does not hold a request of {length:,} tokens.", length=length)


def _no_cache(log: Log) -> Message:
    share = log.settings.mem_fraction_static
    if share is not None and log.free is not None and log.weights is not None:
        return Message(
            "The server did not start: it takes {share:g} of the {free:.2f} GiB that were free, and loading took "
            "{weights:.2f} GiB: short by {short:.2f} GiB before there is any cache.",
            share=share,
            free=log.free / GIB,
            weights=log.weights / GIB,
            short=max(0.0, log.weights - share * log.free) / GIB,
        )
    if log.kv_bytes is not None and log.kv_bytes < 0:
        return Message(
            "The server did not start: weights and working memory take {short:.2f} GiB more than its share of the GPU, "
            "and nothing is left for the cache.",
            short=-log.kv_bytes / GIB,
        )
    return Message("The server did not start: its share of the GPU leaves nothing for the cache.")


def _out_of_memory(log: Log) -> Message:
    failure = log.out_of_memory
    if failure is None:
        return Message("The GPU ran out of memory, and the server died.")
    if failure.free is None:
        return Message(
            "The GPU ran out of memory: PyTorch asked for {tried:.2f} GiB, and the server died.",
            tried=failure.tried / GIB,
        )
    return Message(
        "The GPU ran out of memory: PyTorch asked for {tried:.2f} GiB, {free:.2f} GiB were free: short by {short:.2f} "
        "GiB.",
        tried=failure.tried / GIB,
        free=failure.free / GIB,
        short=max(0, failure.tried - failure.free) / GIB,
    )
