"""Several models on the same GPUs, each with a server of its own: who takes how much, in the order of their start.

vLLM's share is one of the whole GPU, and that much must be free when it starts (`request_memory` of
`v1/worker/utils.py`); what it then measures is its own. So servers start one after another, each with the least share
with which it holds its requests, and what earlier ones hold is not free for later ones.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

from calc.budget import budget
from calc.errors import ConfigError, Frozen, Message, shown
from calc.formats import native
from calc.formats.format_names import WeightFormat
from calc.hardware.gpu import GPU
from calc.hardware.overhead import HIGH, Overhead
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.engine import Engine
from calc.serving.engines.launch import spelled_flags
from calc.serving.engines.rules import Question
from calc.serving.memory import Allocation, Serving
from calc.serving.report import placed
from calc.serving.verdict import reason
from calc.serving.workload import Workload
from calc.units import GIB

HUNDREDTHS = 100
MOST_MODELS = 16
"""Servers that are laid on the same GPUs at most."""


class Server(NamedTuple):
    """One of the models that share the GPUs, and what is asked of it."""

    name: str
    config: Mapping[str, Any]
    engine: Engine
    workload: Workload
    weights: WeightFormat | None = None


class GPUShare(Frozen):
    """What one server takes of each GPU, in bytes at the high end of the overhead."""

    model: str
    verdict: str  # "fits", or "does not fit" where what is free is too little or no share would do
    share: float | None  # of the GPU's memory, which the flag says; None where none would do
    flags: tuple[str, ...]
    free: int  # before it starts
    weights: int
    kv_cache: int  # that it sets aside: what the share leaves
    other: int  # the largest pass and overhead
    taken: int
    reason: Message | None = None  # where it does not fit


class SharedGPUs(Frozen):
    """Servers on the same GPUs, in the order of their start."""

    gpu: str
    gpus: int
    usable: int  # bytes of each GPU
    servers: tuple[GPUShare, ...]
    left: int  # bytes that stay free on each GPU once those that fit have started

    @property
    def fits(self) -> bool:
        """Whether all of them start."""
        return all(server.verdict == "fits" for server in self.servers)


@budget()
def share_gpus(servers: Sequence[Server], gpu: GPU, layout: Layout | None = None) -> SharedGPUs:
    """How servers share GPUs of a kind, each over all of them. Raises ConfigError for what is not covered."""
    layout = layout or Layout()
    check(servers, layout)
    shares, free = list[GPUShare](), gpu.usable_bytes
    for server in servers:
        shares.append(share := started(server, gpu, layout, free))
        free -= share.taken
    return SharedGPUs(gpu=gpu.id, gpus=layout.gpus, usable=gpu.usable_bytes, servers=tuple(shares), left=free)


def check(servers: Sequence[Server], layout: Layout) -> None:
    """Raise ConfigError for servers that are not shared out here."""
    if len(servers) > MOST_MODELS:
        message = Message(
            "{n:,} models are more than the {most:,} that share GPUs here.", n=len(servers), most=MOST_MODELS
        )
        raise ConfigError(message, "with")
    for engine in (server.engine for server in servers):
        if engine.free_at_start is None or engine.share_option is None:
            sentence = "Several models share GPUs under vLLM from 0.8 on only, which measures at start what is free."
            raise ConfigError(Message(sentence), "engine", ["vllm"])
        if getattr(engine.options, engine.share_option) is not None:
            sentence = "{flag} is what is looked for where several models share GPUs: leave it out."
            raise ConfigError(Message(sentence, flag=engine.share_option), engine.share_option)
    if layout.gpus != layout.tp:
        sentence = "Models that share GPUs are spread over them by tensor parallelism (tp) only."
        raise ConfigError(Message(sentence), "tp")


def started(server: Server, gpu: GPU, layout: Layout, free: int) -> GPUShare:
    """What a server takes that starts when so many bytes are free on each GPU."""
    allocation = of_server(server, gpu, layout)
    if allocation.refusal is not None or allocation.request_refusal is not None:
        return unfit(server, free, reason(allocation))
    pool = allocation.requirements.pool
    if pool is not None and pool.stated_bytes(allocation.most_loaded) is not None:
        sentence = "The cache of {model} has a stated size; where models share GPUs a share is looked for instead."
        raise ConfigError(Message(sentence, model=shown(server.name)), "kv_cache_memory_bytes")
    share = least_share(allocation)
    if share is None:
        return unfit(server, free, reason(allocation))
    chosen = with_share(allocation, share)
    taken, cache = taken_bytes(chosen), cache_bytes(chosen)
    if (need := max(taken, ceil(share * gpu.usable_bytes))) > free:
        sentence = "It needs {need:.2f} GiB of each GPU, of which {free:.2f} GiB are free when it starts."
        return unfit(server, free, Message(sentence, need=need / GIB, free=free / GIB))
    memory, option = chosen.memory, allocation.serving.engine.share_option
    assert option is not None
    weights = memory.weights + memory.vision
    return GPUShare(
        model=server.name,
        verdict="fits",
        share=share,
        flags=spelled_flags({option: share}),
        free=free,
        weights=weights,
        kv_cache=cache,
        other=taken - weights - cache,
        taken=taken,
    )


def of_server(server: Server, gpu: GPU, layout: Layout) -> Allocation:
    """What a GPU holds of a model with the engine's own share. Raises ConfigError where it can't be laid out so."""
    architecture = Architecture.from_config(server.config)
    workload = placed(server.workload, architecture)
    server.engine.check(Question(architecture, workload=workload))
    precision = server.engine.precision(native(server.config), server.weights)
    return Serving.of(architecture, server.engine, precision, layout, Overhead()).on(gpu, workload)


def unfit(server: Server, free: int, why: Message) -> GPUShare:
    """A server that does not start, and takes nothing."""
    zero = dict.fromkeys(("weights", "kv_cache", "other", "taken"), 0)
    return GPUShare(model=server.name, verdict="does not fit", share=None, flags=(), free=free, reason=why, **zero)


def with_share(allocation: Allocation, share: float) -> Allocation:
    """The allocation under another share of the GPU."""
    engine = allocation.serving.engine
    assert engine.share_option is not None
    return allocation.under(engine.with_options(**{engine.share_option: share}))


def least_share(allocation: Allocation) -> float | None:
    """The least share, in hundredths, with which a server holds its requests whatever overhead takes; None where none
    does. One that sets nothing aside gets what it takes."""
    if not allocation.sets_aside:
        share = -(-HUNDREDTHS * taken_bytes(allocation) // allocation.gpu.usable_bytes) / HUNDREDTHS
        return share if share <= 1 else None

    def is_enough(hundredths: int) -> bool:
        """Whether no greater share would do better: it does, or leaves too little for what lies outside."""
        there = with_share(allocation, hundredths / HUNDREDTHS)
        return there.surely_fits or there.room(HIGH).budgets[there.most_loaded].shortage > 0

    shares = range(1, HUNDREDTHS + 1)
    place = bisect_left(shares, True, key=is_enough)
    share = shares[min(place, HUNDREDTHS - 1)] / HUNDREDTHS
    return share if with_share(allocation, share).surely_fits else None


def cache_bytes(allocation: Allocation) -> int:
    """Bytes of the cache that are set aside; 0 where nothing is."""
    if not allocation.sets_aside:
        return 0
    return max(0, allocation.room(HIGH).budgets[allocation.most_loaded].cache)


def taken_bytes(allocation: Allocation) -> int:
    """Bytes of a GPU that are no longer free once a server runs, at the high end of the overhead."""
    if not allocation.sets_aside:
        return allocation.memory.high
    at_start = allocation.room(HIGH).budgets[allocation.most_loaded]
    return at_start.requested + at_start.outside
