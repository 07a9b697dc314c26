"""What differs between serving engines, behind one interface. Nothing outside this folder asks which engine it is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter, mul
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from calc.errors import ConfigError, Frozen, Message
from calc.formats import CacheFormat, Native, Precision, WeightFormat
from calc.formats.stored import Piece, stored
from calc.hardware.division import nearest
from calc.hardware.engine_rules import EngineSupport, note, runs
from calc.hardware.format_rules import refused_format
from calc.hardware.gpu import GPU
from calc.hardware.overhead import OverheadItem, Range
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.derivation import NUMBERS, Numbers
from calc.model.named import Peak
from calc.serving.engines.cache import Cache, Pool
from calc.serving.engines.cache_rules import check_cache
from calc.serving.engines.launch import Launch
from calc.serving.workload import Workload

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine sets for one GPU: its own defaults unless a flag says otherwise."""

    step_tokens: int
    """Tokens of the largest forward pass."""
    sequences: int
    """Sequences that run at once."""
    share: float | None
    """Of the GPU's memory, set aside at start; None: the engine takes what it needs when it needs it."""
    in_flight_tokens: int
    """Tokens that may be scheduled and not yet settled, for which layers with a window keep room."""
    kept_free: int = 0
    """Bytes of what is set aside that the cache does not get."""
    tables: int = 0
    """Bytes of what is not set aside that tables of the requests take."""


class Budget(NamedTuple):
    """How an engine divides a GPU at start, in bytes."""

    requested: int
    """What it takes."""
    allocated: Mapping[str, int]
    """What it takes of that before the cache, by name."""
    outside: int
    """Overhead that is no part of it."""
    shortage: int
    """By how much the GPU has too little for that and for what lies outside; 0 where it has enough."""

    @property
    def cache(self) -> int:
        """What is left for the cache; below zero by how much too little there is."""
        return self.requested - sum(self.allocated.values())


@dataclass(frozen=True, slots=True)
class LoadedWeights:
    """Bytes of weights on one rank, as the engine holds them."""

    weights: int = 0  # quantized or not, without what follows
    scales: int = 0  # scales, zero points, indices of groups
    draft: int = 0  # layers that only speculate, with their scales
    vision: int = 0  # the vision encoder, in 16 bits
    absorbed: int = 0  # vLLM keeps latent attention's up-projection once more in 16 bits where it is quantized
    rotary: int = 0  # table of sines and cosines
    padding: int = 0  # rows and columns that kernels add
    rounding: int = 0  # what PyTorch's allocator adds to a tensor

    @property
    def total(self) -> int:
        return sum(PARTS(self))

    @classmethod
    def sum(cls, parts: "Iterable[tuple[int, LoadedWeights]]") -> "LoadedWeights":
        """All of them, each so many times."""
        counts, rows = zip(*((count, PARTS(part)) for count, part in parts), strict=True)
        return cls(*(sum(map(mul, counts, column)) for column in zip(*rows, strict=True)))


PARTS = attrgetter(*(field.name for field in fields(LoadedWeights)))


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage of one tensor-parallel rank: its weights and its layers. Stages that weigh the same are equal
    objects."""

    blocks: tuple[Block, ...]
    weights: int  # bytes as stored, with the draft layer's
    vision: int
    first: bool
    last: bool
    loaded: LoadedWeights


@dataclass(frozen=True, slots=True)
class LaidOut:
    """A model on its ranks, as an engine needs it to say what they hold."""

    whole: Architecture  # with the draft layer that is loaded
    rank: Architecture
    stages: tuple[Stage, ...]
    ranges: tuple[range, ...]  # layers of each stage
    layout: Layout
    precision: Precision

    def of_each_stage(self, value_of: Callable[[int], Value]) -> tuple[Value, ...]:
        """A value of every stage, by its number, computed once for equal stages."""
        if len(self.stages) == 1:
            return (value_of(0),)
        values: dict[int, Value] = {}
        for index, stage in enumerate(self.stages):
            if id(stage) not in values:
                values[id(stage)] = value_of(index)
        return tuple(values[id(stage)] for stage in self.stages)


class StagePeak(NamedTuple):
    """Memory of a stage where it may be highest: bytes of cache at that point, and the working memory on top."""

    cache: int
    working: Peak

    @property
    def bytes(self) -> int:
        return self.cache + int(self.working.bytes)


class Engine(ABC):
    """One serving engine, started with its options."""

    name: ClassVar[str]
    """How options, links and folders call it."""
    title: ClassVar[str]
    support: ClassVar[EngineSupport]
    """The GPUs and formats that it runs on."""
    versions: ClassVar[str]
    """What its rules were read in."""
    step_option: ClassVar[str]
    """The option that limits the tokens of a forward pass; those of sequences and of the GPU's share follow."""
    sequences_option: ClassVar[str | None] = None
    share_option: ClassVar[str | None] = None

    weight_formats: ClassVar[tuple[WeightFormat, ...]] = ()
    """Formats of weights that it is usually given to save memory, the largest first."""
    cache_formats: ClassVar[tuple[CacheFormat, ...]] = ()
    """The same of the cache."""
    cache_from: ClassVar[frozenset[str]] = frozenset()
    """Tools of quantization whose word on the format of the KV cache it takes where no flag says another."""
    offloads: ClassVar[bool] = False
    """Whether it may leave a part of the model on the host."""

    options_type: ClassVar[type[Frozen]]
    """Its flags, with limits, defaults and help."""

    draft_option: ClassVar[str | None] = None
    """The flag that names a draft model, which is then loaded too."""

    def __init__(self, options: Any = None, draft_model: Architecture | None = None) -> None:
        """`draft_model` is the one that the flags name."""
        self.options, self.draft_model = options or self.options_type(), draft_model

    def with_options(self, **changes: object) -> Self:
        """The same engine with some flags set otherwise."""
        return type(self)(self.options_type.model_validate(self.options.model_dump() | changes), self.draft_model)

    def sized_for(self, sequences: int, architecture: Architecture) -> Self:
        """The same for a server that is known to answer at most so many requests at once, where that leaves more
        memory."""
        return self

    def loads_same_weights(self, other: Self) -> bool:
        """Whether GPUs hold the same weights under the flags of another."""
        return True

    def settled(self, laid_out: LaidOut, gpu: GPU, workload: Workload, overhead: int) -> Self:
        """The same engine with what it decides by itself at start, with so many bytes of overhead on a GPU."""
        return self

    @classmethod
    def precision(
        cls, checkpoint: Native, weights: WeightFormat | None = None, kv: CacheFormat | None = None
    ) -> Precision:
        """Storage of weights and cache as it loads a checkpoint, unless other formats are chosen."""
        return Precision.stored_as(checkpoint, weights, kv, cls.cache_from)

    # what it accepts

    def refusal(self, architecture: Architecture, precision: Precision) -> Message | None:
        """Why it does not take these formats and options for this model; None where it does."""
        return None

    @classmethod
    def keeps(cls, weights: WeightFormat) -> bool:
        """Whether it computes with weights as this format stores them, neither unpacking nor refusing them."""
        return True

    @abstractmethod
    def stages(self, layers: int, pp: int) -> Iterator[range]:
        """The layers of each pipeline stage."""

    @abstractmethod
    def vocabulary(self, rows: int, tp: int) -> int:
        """Rows of the embedding, and of the head, on one of tp ranks."""

    def unaccepted(self, architecture: Architecture, precision: Precision, layout: Layout) -> Message | None:
        """Why a rule of its own forbids to share layers over so many ranks; None where none does."""
        return None

    def unshared(self, architecture: Architecture, layout: Layout) -> Message | None:
        """Why dcp of its tensor-parallel ranks do not share the tokens of a cache; None where they do."""
        return Message("{engine} does not share cached tokens over ranks (dcp).", engine=self.title)

    def layout_refusal(self, architecture: Architecture, precision: Precision, layout: Layout) -> Message | None:
        """Why it does not share layers over so many ranks, by any rule."""
        return layout.undivided(architecture) or self.unaccepted(architecture, precision, layout)

    def check_layout(self, architecture: Architecture, precision: Precision, layout: Layout) -> None:
        """Raise ConfigError where it does not accept a layout, with the nearest that it does."""

        def accepts(tp: int) -> bool:
            return self.layout_refusal(architecture, precision, layout.of_degree(tp)) is None

        if (sentence := self.layout_refusal(architecture, precision, layout)) is not None:
            raise ConfigError(sentence, "tp", nearest(layout.tp, accepts))
        layout.check(architecture)

        def shared(dcp: int) -> bool:
            return dcp == 1 or self.unshared(architecture, layout.model_copy(update={"dcp": dcp})) is None

        if not shared(layout.dcp) and (sentence := self.unshared(architecture, layout)) is not None:
            raise ConfigError(sentence, "dcp", nearest(layout.dcp, shared))

    def check(self, architecture: Architecture, precision: Precision, layout: Layout) -> None:
        """Raise ConfigError where the model can't be served so."""
        self.check_layout(architecture, precision, layout)
        if (sentence := self.refusal(architecture, precision)) is not None:
            raise ConfigError(sentence, "engine")
        check_cache(architecture, precision.kv)

    # what it loads

    @property
    def loads_vision(self) -> bool:
        """Whether a vision encoder is loaded with the language model."""
        return True

    @property
    def loads_draft(self) -> bool:
        """Whether a draft layer is loaded too."""
        return False

    def with_draft(self, architecture: Architecture) -> Architecture:
        """The model with the draft layer that is to be loaded. Raises ConfigError where there is none."""
        return architecture

    def left_out(self) -> Iterator[Message]:
        """What its options start that is not counted."""
        return iter(())

    def file(self, architecture: Architecture, precision: Precision, rank: Architecture) -> list[Piece]:
        """The tensors of a rank, each with the format of the file that it is read from."""
        return stored(architecture, precision, rank)

    def stored(self, architecture: Architecture, precision: Precision, rank: Architecture) -> list[Piece]:
        """The tensors of a rank that GPUs hold."""
        return self.file(architecture, precision, rank)

    @abstractmethod
    def loaded(self, rank: Architecture, pieces: Sequence[Piece], stage: range, layout: Layout) -> LoadedWeights:
        """What some tensors take on one rank of a pipeline stage once they are loaded."""

    def draft(self, precision: Precision) -> tuple[Architecture, Precision, int] | None:
        """The model that guesses tokens for one of a precision, how it is stored, and the tokens that it guesses at
        once."""
        return None

    def draft_weights_per_stage(self, architecture: Architecture, precision: Precision, stages: int) -> tuple[int, ...]:
        """Bytes of a draft model's weights on a GPU, by pipeline stage [stages]."""
        return (0,) * stages

    def tables(self, rank: Architecture) -> LoadedWeights:
        """Bytes of the tables that it makes on each stage, which the checkpoint does not have."""
        return LoadedWeights()

    def loading(self, stage: Stage) -> int:
        """Bytes that it adds to the stored weights: tables, padding, rounding, what it keeps twice or unpacks."""
        return stage.loaded.total - stage.weights - stage.vision

    # what it holds

    @abstractmethod
    def limits(self, workload: Workload, gpu: GPU, architecture: Architecture, layout: Layout) -> Limits:
        """One for each GPU, used everywhere."""

    def refused(self, workload: Workload, limits: Limits) -> Message | None:
        """Why what is set up at start does not take these sequences, whatever memory there is."""
        return None

    def refusals(self, gpu: GPU, laid_out: LaidOut) -> Iterator[Message]:
        """Why it does not run such a rank, on whatever stage, on this GPU, whatever memory there is: for the GPU, for
        the format of the weights, and by the engine's own rules."""
        if not runs(gpu, self.support) and (why := note(gpu, self.support)) is not None:
            yield why
        if (why := refused_format(gpu, self.support, laid_out.precision.weights)) is not None:
            yield why

    @abstractmethod
    def cache(self, laid_out: LaidOut, gpu: GPU, limits: Limits) -> Cache | None:
        """How the cache is kept; None for a model that keeps nothing."""

    def cache_over(self, stages: Sequence[range], laid_out: LaidOut, gpu: GPU, limits: Limits) -> Pool | None:
        """The cache that is set aside of a rank whose layers are cut into such pipeline stages, of engines that know it
        before these are laid out."""
        return None

    def peaks(self, laid_out: LaidOut, stage: int, limits: Limits, write: Numbers = NUMBERS) -> list[Peak]:
        """Working memory of the largest forward pass of a stage; formulas, where `write` makes symbols of sizes. Of
        engines whose passes do not depend on the workload; others give `stage_peaks`."""
        raise NotImplementedError(self.name)

    def stage_peaks(
        self,
        laid_out: LaidOut,
        stage: int,
        cache: Cache | None,
        limits: Limits,
        workload: Workload,
        write: Numbers = NUMBERS,
    ) -> list[StagePeak]:
        """Memory of a stage wherever it may be highest: by default at any peak of working memory, for the cache is
        there all the time."""
        cached = 0 if cache is None else cache.required_bytes(stage, workload.batch, workload.context)
        return [StagePeak(cached, peak) for peak in self.peaks(laid_out, stage, limits, write)]

    @abstractmethod
    def overhead(self, gpus: int) -> Mapping[OverheadItem, Range]:
        """The usual range of each thing that no formula closes: GiB, and percent for fragmentation."""

    def budget(
        self,
        total: int,
        limits: Limits,
        loaded: int,
        working: int,
        stated: int | None,
        overhead: Mapping[OverheadItem, int],
    ) -> Budget:
        """How a GPU of `total` bytes is divided that holds so many bytes of loaded weights and of working memory, and
        so much overhead, loading apart; `stated` are bytes that flags ask for the cache. Only asked of engines that set
        memory aside at start."""
        raise NotImplementedError(self.name)

    @abstractmethod
    def remedies(self, limits: Limits, workload: Workload) -> Iterator[dict[str, object]]:
        """Options that are not set and may make a model fit; the least change first, the greatest last."""

    def offloaded(self, laid_out: LaidOut, gpu: GPU, workload: Workload, overhead: int) -> dict[str, object] | None:
        """Options that leave as much on the host as it takes for the rest to fit with so many bytes of overhead; None
        where it does not do that, or nothing does."""
        return None

    def launch(self, model: str, precision: Precision, layout: Layout, length: int) -> Launch | None:
        """How it is started as a server that takes sequences of so many tokens; None: it is none."""
        return None
