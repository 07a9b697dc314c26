"""Memory that an engine with a share of the free memory leaves for its cache and outside it, and its CUDA graphs."""

from collections.abc import Iterator
from typing import Any

from calc.errors import Message
from calc.serving.engines.startup_log import StartupLog
from calc.serving.report import Report
from calc.units import GIB
from calc.verify.logs.difference import Difference
from calc.verify.logs.log import CLOSE, ROUNDING, Log


def shared_rows(log: Log, known: StartupLog, weights: int, ours: Report) -> Iterator[Difference]:
    """Bytes that the share leaves for the pools next to our weights, and bytes that are free then. Libraries take a
    part while weights are loaded."""
    share = log.settings.mem_fraction_static
    if log.free is None or log.kv_bytes is None or share is None:
        return
    close = round(CLOSE * weights) + ROUNDING
    words: dict[str, Any] = {"share": share, "free": log.free / GIB}
    yield _budget(log.kv_bytes + (log.state_bytes or 0), int(log.free * share) - weights, close, known, words)
    if log.left is not None:
        tables = known.tables(log.settings, ours.scenario.workload.context)
        yield _left(log.left, int(log.free * (1 - share)) - tables, close, known, words | {"table": tables / GIB})


def _budget(stated: int, left: int, close: int, known: StartupLog, words: dict[str, Any]) -> Difference:
    low, high = left - known.loading_libraries - close, left + close
    agrees = low <= stated <= high
    words |= {"low": low / GIB, "high": high / GIB, "size": stated / GIB}
    if agrees:
        sentence = Message(
            "Its share of {share:g} of {free:.2f} GiB leaves {low:.2f} to {high:.2f} GiB beside our weights; the "
            "log's {size:.2f} GiB of cache are within the range.",
            **words,
        )
    else:
        sentence = Message(
            "Its share of {share:g} of {free:.2f} GiB leaves {low:.2f} to {high:.2f} GiB beside our weights, but "
            "the log's cache takes {size:.2f} GiB: its weights differ, a draft model has a part, or flags limit "
            "the tokens.",
            **words,
        )
    return Difference(
        term="KV budget", unit="bytes", log=stated, ours=left, low=low, high=high, agrees=agrees, sentence=sentence
    )


def _left(stated: int, left: int, close: int, known: StartupLog, words: dict[str, Any]) -> Difference:
    low, high = left - known.loading_libraries - close, left + close
    agrees = low <= stated <= high
    words |= {"low": low / GIB, "high": high / GIB, "size": stated / GIB}
    if agrees:
        sentence = Message(
            "Outside of its share and of a table of requests of {table:.2f} GiB, {low:.2f} to {high:.2f} GiB stay "
            "free for a pass and CUDA graphs; the log's {size:.2f} GiB are within the range.",
            **words,
        )
    else:
        sentence = Message(
            "Outside of its share and of a table of requests of {table:.2f} GiB, {low:.2f} to {high:.2f} GiB stay "
            "free for a pass and CUDA graphs, but {size:.2f} GiB in the log: another program uses this GPU, or "
            "flags limit the tokens.",
            **words,
        )
    return Difference(
        term="left", unit="bytes", log=stated, ours=left, low=low, high=high, agrees=agrees, sentence=sentence
    )


def graph_rows(log: Log, known: StartupLog, ours: Report) -> Iterator[Difference]:
    """The largest batch that a CUDA graph is captured for, by the rule of the version that ours were read in."""
    if log.graph_batch is None or log.free is None:
        return
    batches = known.graph_batches(log.settings, log.free, ours.scenario.layout.tp)
    if not batches:
        return
    words: dict[str, Any] = {"n": len(batches), "most": batches[-1], "engine": known.engine.title}
    words |= {"version": known.engine.versions, "stated": log.graph_batch}
    agrees = log.graph_batch == batches[-1]
    if agrees:
        sentence = Message("CUDA graphs are captured for {n:,} batches, up to {most:,} sequences.", **words)
    else:
        sentence = Message(
            "CUDA graphs are captured for batches up to {stated:,} sequences; {engine} {version} captures {n:,}, up to "
            "{most:,}, on such a GPU: another version, a flag, or fewer requests at once.",
            **words,
        )
    yield Difference(
        term="graph batch", unit="sequences", log=log.graph_batch, ours=batches[-1], agrees=agrees, sentence=sentence
    )
