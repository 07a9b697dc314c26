"""Start of a server: the words of its command line."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from shlex import join
from typing import ClassVar, Literal, NamedTuple

from calc.errors import Frozen, Message
from calc.formats import CacheFormat, Precision, WeightFormat
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.sizes import Limits
from calc.serving.engines.started import StartedEngine
from calc.serving.workload import Workload

LOCAL = "./model"
"""Folder of a model that is no checkpoint of the Hub, in a command."""
ServerRole = Literal["prefill", "decode"]
"""Role of a server where the two run on separate GPUs."""
FP8 = ("fp8", "fp8-channel", "fp8-tensor")
DTYPES: Mapping[WeightFormat, str] = {"fp32": "float32", "fp16": "float16"}
"""Types that vLLM and SGLang load a checkpoint in, by their words for `--dtype`."""


class ServerStart(NamedTuple):
    """A model to be served."""

    model: str
    precision: Precision
    layout: Layout
    length: int  # tokens of a sequence
    sequences: int = 1
    sparse: bool = False  # with routed experts
    positions: int | None = None  # tokens that the model was made for

    @classmethod
    def of(
        cls, model: str, architecture: Architecture, precision: Precision, layout: Layout, length: int, batch: int = 1
    ) -> "ServerStart":
        """Start of a model of this architecture under a name."""
        sparse, positions = bool(architecture.experts), architecture.max_positions
        return cls(model, precision, layout, length, batch, sparse, positions)


class Launch(Frozen):
    words: tuple[str, ...]
    notes: tuple[Message, ...] = ()  # what the command can't say

    def with_flags(self, flags: Sequence[str]) -> "Launch":
        """The command with flags that stand for those of the same names in it."""
        changed = {flag.partition(" ")[0] for flag in flags}
        words, stays = list[str](), True
        for word in self.words:
            stays = word not in changed if word.startswith("--") else stays
            words += [word] if stays else []
        return self.model_copy(update={"words": (*words, *chain.from_iterable(flag.split(" ") for flag in flags))})

    @property
    def text(self) -> str:
        """Command for a shell, a flag a line."""
        return join(self.words).replace(" --", " \\\n  --")


class DisaggregatedLaunch(Frozen):
    """Commands of disaggregated serving: a prefill server, a decode server, and the router to pairs of them."""

    prefill: Launch
    decode: Launch
    router: Launch


class RoleFlags(Frozen):
    """Flags of an engine's prefill servers, of its decode servers, and of the router to pairs of them."""

    flags: Mapping[ServerRole, tuple[str, ...]]
    router: tuple[str, ...]
    port: int  # of each server
    notes: tuple[Message, ...] = ()
    without: tuple[str, ...] = ()  # options with which no such server starts

    def launched(self, servers: Mapping[ServerRole, Launch], workers: Mapping[ServerRole, int]) -> DisaggregatedLaunch:
        """Servers of each side, and the router of so many."""
        sides = {
            side: Launch(words=(*launch.words, *self.flags[side]), notes=(*launch.notes, *self.notes))
            for side, launch in servers.items()
        }
        addresses = (
            (f"--{side}", f"http://{side}-{n}:{self.port}")
            for side, count in workers.items()
            for n in range(1, count + 1)
        )
        named = Message("Hosts are named prefill-1, decode-1 and so on: write your own.")
        router = Launch(words=(*self.router, *chain.from_iterable(addresses)), notes=(named,))
        return DisaggregatedLaunch(prefill=sides["prefill"], decode=sides["decode"], router=router)


def parallel_flags(sizes: Mapping[str, int]) -> Iterator[str]:
    """Flags of the parallel degrees that are more than 1."""
    for flag, size in sizes.items():
        if size > 1:
            yield from (flag, str(size))


Spelling = Mapping[str, tuple[str, ...]]
"""Words of options that are spelled otherwise than by their own names; none for those that are no flags."""


def spelled(name: str, value: object, spelling: Spelling) -> tuple[str, ...]:
    """Words of an option that has a value; a switch is on, or off by its other name."""
    words = spelling.get(name, (f"--{name.replace('_', '-')}",))
    if isinstance(value, bool):
        return words if value else tuple(word.replace("--", "--no-", 1) for word in words)
    return (*words, str(value)) if words else ()


def set_flags(options: Frozen, spelling: Spelling) -> Iterator[str]:
    """Words of the options that are not at their defaults."""
    for name, value in options:
        if value != type(options).model_fields[name].default:
            yield from spelled(name, value, spelling)


def quantized(precision: Precision) -> tuple[tuple[str, ...], tuple[Message, ...]]:
    """Flags with which 16-bit weights are loaded in fp8 or another type, and those that other formats need."""
    weights = precision.weights
    if precision.checkpoint is not None or (weights == "bf16" and precision.replaces is None):
        return (), ()
    if weights in FP8 and precision.replaces is None:
        return ("--quantization", "fp8"), ()
    if weights in DTYPES and precision.replaces is None:
        return ("--dtype", DTYPES[weights]), ()
    return (), (Message("Name a checkpoint whose weights are stored in {format}.", format=precision.weights),)


def cache_dtype_flags(precision: Precision, spelling: Mapping[CacheFormat, str]) -> tuple[str, ...]:
    """The flag of the cache's format by an engine's words for it: of one that is quantized, and of 16 bits where the
    checkpoint asks for another, or the model computes in 32."""
    usual = precision.kv in ("bf16", "fp16") and precision.cache_stated is None and precision.weights != "fp32"
    return () if usual or precision.kv not in spelling else ("--kv-cache-dtype", spelling[precision.kv])


def option_combinations(options: Frozen, changes: Mapping[str, Sequence[object]]) -> Iterator[dict[str, object]]:
    """Values of those options that are not set, from mild to strong, in all combinations: one option before two, two
    before three; of each the mildest value first."""
    possible = {name: values for name, values in changes.items() if values and not getattr(options, name)}
    for count in range(1, len(possible) + 1):
        for names in combinations(possible, count):
            for values in product(*(possible[name] for name in names)):
                yield dict(zip(names, values, strict=True))


class Image(Frozen):
    """The makers' container images of a server by platform, or by chip where it has one of its own; the port that it
    serves at, and the words that make it listen to others."""

    names: Mapping[str, str]
    port: int
    listens: tuple[str, ...] = ()

    def name(self, gpu: GPU) -> str | None:
        return self.names.get(gpu.capability or "") or self.names.get(gpu.platform or "")


class Launcher(StartedEngine):
    """The command, and the flags that change what fits."""

    step_option: ClassVar[str]
    """The option that limits the tokens of a forward pass; those of sequences and of the GPU's share follow."""
    sequences_option: ClassVar[str | None] = None
    share_option: ClassVar[str | None] = None
    disaggregation: ClassVar[RoleFlags | None] = None
    """Prefill and decode on separate GPUs; None: not offered."""
    image: ClassVar[Image | None] = None
    disk_tier: ClassVar[str | None] = None
    """Program and setting that keep caches of requests on a disk."""
    spelling: ClassVar[Spelling] = {}

    def flags(self, changes: Mapping[str, object]) -> tuple[str, ...]:
        """Options as its command line spells them, without those that are no flags."""
        words = (spelled(name, value, self.spelling) for name, value in changes.items())
        return tuple(" ".join(flag) for flag in words if flag)

    @abstractmethod
    def remedies(self, limits: Limits, workload: Workload) -> Iterator[dict[str, object]]:
        """Options that are not set and may make a model fit; the least change first, the greatest last."""

    def launch(self, start: ServerStart) -> Launch | None:
        """Command of a server; None: the engine is none."""
        return None
