"""Several models on the same GPUs, each with a server of its own: who takes how much, in the order of their start.

vLLM's share is one of the whole GPU, and that much must be free when it starts (`request_memory` of
`v1/worker/utils.py`); what it then measures is its own. So servers start one after another, each with the least share
with which it holds its requests, and what earlier ones hold is not free for later ones.

Servers may take turns instead: all but one sleep. A server that sleeps gives back its weights and its cache and keeps
what is in no pool of vLLM's allocator (`device_allocator/cumem.py`); at level 1 its weights wait in host memory, at
level 2 they are read anew (docs.vllm.ai, sleep mode).
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import chain
from math import ceil
from typing import Any, NamedTuple

from calc.budget import budget
from calc.errors import ConfigError, Frozen, Message, shown
from calc.formats import native
from calc.formats.format_names import WEIGHT_FORMATS, CacheFormat, WeightFormat
from calc.hardware.gpu import GPU
from calc.hardware.overhead import HIGH, MIDDLE, Overhead, OverheadItem
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.options import made, options
from calc.serving.engines.engine import Engine
from calc.serving.engines.launch import Launch, ServerStart
from calc.serving.engines.rules import Question
from calc.serving.memory import Allocation, Serving
from calc.serving.report import within_positions
from calc.serving.verdict import reason
from calc.serving.workload import Workload
from calc.units import GIB

HUNDREDTHS = 100
MOST_MODELS = 16
"""Servers that are laid on the same GPUs at most."""
STAYS: tuple[OverheadItem, ...] = ("cuda_graphs", "libraries")
"""Overhead that an engine keeps while it sleeps (vLLM, device_allocator/cumem.py: only weights and cache are in pools
that are given back; issue 47654), besides the CUDA context of its process."""
PORT = 8000
"""Port of the first server; the others listen at the next ones."""
WEIGHTS = "weights"
SETTABLE = ("context", "batch", WEIGHTS)
"""Fields that may follow the name of a model."""


class Neighbour(Frozen):
    """A model next to another on the same GPUs, as a link and the command line say it:
    `BAAI/bge-m3,context=512,batch=8,weights=fp8`."""

    model: str
    workload: Workload = Workload()
    weights: WeightFormat | None = None

    @classmethod
    def read(cls, text: str) -> "Neighbour":
        """Raises ConfigError."""
        model, *pairs = text.split(",")
        stated = dict(map(stated_field, pairs))
        return cls(model=model, weights=stated.pop(WEIGHTS, None), workload=made(Workload, stated))

    @property
    def written(self) -> str:
        """Text for `read`."""
        given = {name: getattr(self.workload, name) for name in ("context", "batch")} | {WEIGHTS: self.weights}
        usual = Workload()
        changed = (f"{name}={value}" for name, value in given.items() if value != getattr(usual, name, None))
        return ",".join([self.model, *changed])


def stated_field(text: str) -> tuple[str, Any]:
    """Field and value that follow a model. Raises ConfigError."""
    name, equals, value = text.partition("=")
    if not equals or name not in SETTABLE or (name == WEIGHTS and value not in WEIGHT_FORMATS):
        sentence = "{pair} is not context=N, batch=N or weights=FORMAT, which may follow a model after a comma."
        raise ConfigError(Message(sentence, pair=shown(text)), "share_with")
    if name == WEIGHTS:
        return name, value
    try:
        return name, options(Workload)[name].parse(value)
    except ValueError:
        message = Message("{name} is {value}; it must be a whole number.", name=name, value=shown(value))
        raise ConfigError(message, "share_with") from None


class Server(NamedTuple):
    """One of the models that share the GPUs, and what is asked of it."""

    name: str
    config: Mapping[str, Any]
    engine: Engine
    workload: Workload
    weights: WeightFormat | None = None
    kv: CacheFormat | None = None
    served: str | None = None  # in its command; None: its name


class GPUShare(Frozen):
    """Memory of one server on each GPU, in bytes."""

    model: str
    verdict: str  # "fits", or "does not fit" where what is free is too little or no share would do
    share: float | None  # of the GPU's memory, which the flag says; None where none would do
    flags: tuple[str, ...]
    free: int  # before it starts, or wakes
    weights: int
    kv_cache: int  # that it sets aside: what the share leaves in the middle of the overhead's range
    other: int  # the largest pass and overhead
    taken: int  # at the high end of the overhead
    asleep: int | None = None  # that it keeps while another is awake; None: it never sleeps
    reason: Message | None = None  # where it does not fit
    launch: Launch | None = None  # how it is started, once those before it run


class SharedGPUs(Frozen):
    """Servers on the same GPUs, in the order of their start."""

    gpu: str
    gpus: int
    usable: int  # bytes of each GPU
    servers: tuple[GPUShare, ...]
    left: int  # bytes that stay free on each GPU once those that fit have started, whichever of them is awake
    sleep_level: int = 0  # of all but one of them; 0: all are awake
    host: int = 0  # bytes of host memory for the weights of those that sleep

    @property
    def fits(self) -> bool:
        """Whether all of them start."""
        return self.started == len(self.servers)

    @property
    def started(self) -> int:
        """Number of servers that start."""
        return sum(server.verdict == "fits" for server in self.servers)


@budget()
def share_gpus(
    servers: Sequence[Server],
    gpu: GPU,
    layout: Layout | None = None,
    overhead: Overhead | None = None,
    sleep_level: int = 0,
) -> SharedGPUs:
    """Shares of GPUs of a kind among servers, each over all of them; with a sleep level all but one sleep. Raises
    ConfigError for what is not covered."""
    layout = layout or Layout()
    check(servers, layout)
    allocations = [of_server(server, gpu, layout, overhead or Overhead()) for server in servers]
    asleep = [asleep_bytes(allocation) if sleep_level else 0 for allocation in allocations]
    shares, free = list[GPUShare](), gpu.usable_bytes - sum(asleep)
    for port, (server, allocation, own) in enumerate(zip(servers, allocations, asleep, strict=True), PORT):
        share = started(server, allocation, free + own, port, sleeps=sleep_level > 0)
        shares.append(share.model_copy(update={"asleep": own}) if sleep_level else share)
        free -= 0 if sleep_level else share.taken
    weights = sorted(share.weights for share in shares)
    return SharedGPUs(
        gpu=gpu.id,
        gpus=layout.gpus,
        usable=gpu.usable_bytes,
        servers=tuple(shares),
        left=min(share.free - share.taken for share in shares),
        sleep_level=sleep_level,
        host=layout.gpus * sum(weights[1:]) if sleep_level == 1 else 0,
    )


def asleep_bytes(allocation: Allocation) -> int:
    """Bytes of a GPU that a server keeps while it sleeps, at the high end of the overhead."""
    known = allocation.stages[allocation.most_loaded].sizes
    return sum(known[item][1] for item in ("cuda_context", *STAYS) if item in known)


def check(servers: Sequence[Server], layout: Layout) -> None:
    """Raise ConfigError for servers that are not shared out here."""
    if len(servers) > MOST_MODELS:
        message = Message(
            "{n:,} models are more than the {most:,} that share GPUs here.", n=len(servers), most=MOST_MODELS
        )
        raise ConfigError(message, "share_with")
    for engine in (server.engine for server in servers):
        if engine.free_at_start is None or engine.share_option is None:
            sentence = "Several models share GPUs under vLLM from 0.8 on only, which measures at start what is free."
            raise ConfigError(Message(sentence), "engine", ["vllm"])
        if getattr(engine.options, engine.share_option) is not None:
            sentence = "{flag} is sought where several models share GPUs: leave it out."
            raise ConfigError(Message(sentence, flag=engine.share_option), engine.share_option)
    if layout.gpus != layout.tp:
        sentence = "Models that share GPUs are spread over them by tensor parallelism (tp) only."
        raise ConfigError(Message(sentence), "tp")


def started(server: Server, allocation: Allocation, free: int, port: int, *, sleeps: bool) -> GPUShare:
    """Share of a server that starts when so many bytes are free on each GPU, and listens at a port; `sleeps`: by turns
    with others."""
    if allocation.refusal is not None or allocation.request_refusal is not None:
        return unfit(server, free, reason(allocation))
    pool = allocation.requirements.pool
    if pool is not None and pool.stated_bytes(allocation.most_loaded) is not None:
        sentence = "The cache of {model} has a fixed size; where models share GPUs a share is sought instead."
        raise ConfigError(Message(sentence, model=shown(server.name)), "kv_cache_memory_bytes")
    share = least_share(allocation)
    if share is None:
        return unfit(server, free, reason(allocation))
    chosen = with_share(allocation, share)
    taken, cache = taken_bytes(chosen), cache_bytes(chosen)
    if (need := max(taken, ceil(share * allocation.gpu.usable_bytes))) > free:
        sentence = "It needs {need:.2f} GiB of each GPU, of which {free:.2f} GiB are free when it starts."
        return unfit(server, free, Message(sentence, need=need / GIB, free=free / GIB))
    memory, option = chosen.memory, allocation.serving.engine.share_option
    assert option is not None
    weights = memory.weights + memory.vision
    return GPUShare(
        model=server.name,
        verdict="fits",
        share=share,
        flags=allocation.serving.engine.flags({option: share}),
        free=free,
        weights=weights,
        kv_cache=cache,
        other=taken - weights - cache,
        taken=taken,
        launch=launch(server.served or server.name, chosen, port, sleeps=sleeps),
    )


def launch(model: str, allocation: Allocation, port: int, *, sleeps: bool) -> Launch | None:
    """Command of a server, at a port of its own."""
    serving = allocation.serving
    context = allocation.workload.context
    start = ServerStart.of(model, serving.architecture, serving.precision, serving.layout, context)
    started = serving.engine.launch(start)
    more = ("--port", str(port)) if port != PORT else (), ("--enable-sleep-mode",) if sleeps else ()
    return started and started.model_copy(update={"words": (*started.words, *chain.from_iterable(more))})


def of_server(server: Server, gpu: GPU, layout: Layout, overhead: Overhead) -> Allocation:
    """Allocation of a model with the engine's own share. Raises ConfigError where it can't be laid out so."""
    architecture = Architecture.from_config(server.config)
    workload = within_positions(server.workload, architecture)
    server.engine.check(Question(architecture, workload=workload))
    precision = server.engine.precision(native(server.config), server.weights, server.kv)
    return Serving.of(architecture, server.engine, precision, layout, overhead).on(gpu, workload)


def unfit(server: Server, free: int, why: Message) -> GPUShare:
    """A server that does not start, and takes nothing."""
    zero = dict.fromkeys(("weights", "kv_cache", "other", "taken"), 0)
    return GPUShare(model=server.name, verdict="does not fit", share=None, flags=(), free=free, reason=why, **zero)


def with_share(allocation: Allocation, share: float) -> Allocation:
    """The allocation under another share of the GPU."""
    engine = allocation.serving.engine
    assert engine.share_option is not None
    return allocation.with_engine(engine.with_options(**{engine.share_option: share}))


def least_share(allocation: Allocation) -> float | None:
    """The least share, in hundredths, with which a server fits as Weigh says it: it surely starts, and holds its
    requests in the middle of the overhead's range; None where none does. One that sets nothing aside gets what it
    takes."""
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
    """Bytes of the cache that are set aside, in the middle of the overhead's range; 0 where nothing is."""
    if not allocation.sets_aside:
        return 0
    return max(0, allocation.room(MIDDLE).budgets[allocation.most_loaded].cache)


def taken_bytes(allocation: Allocation) -> int:
    """Bytes of a GPU that are no longer free once a server runs, at the high end of the overhead."""
    if not allocation.sets_aside:
        return allocation.memory.high
    at_start = allocation.room(HIGH).budgets[allocation.most_loaded]
    return at_start.requested + at_start.outside
