"""Sizes and limits of a model on its ranks under an engine, as plain values."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter, mul
from typing import NamedTuple, TypeVar

from calc.errors import Frozen
from calc.formats import Precision
from calc.hardware.overhead import OverheadItem
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.named import Peak

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that an engine sets for one GPU: its own defaults unless a flag says otherwise."""

    step_tokens: int
    """Tokens of the largest forward pass."""
    sequences: int
    """Sequences that run at once."""
    share: float | None
    """Share of the GPU's memory that is set aside at start; None: the engine takes what it needs when it needs it."""
    in_flight_tokens: int
    """Tokens that may be scheduled and not yet settled, for which layers with a window keep room."""
    reserved_free: int = 0
    """Bytes of what is set aside that the cache does not get."""
    encoder_bytes: int = 0
    """Bytes of images, and of their embeddings, that are there in the largest forward pass."""
    image_patches: int = 0
    """Patches of images that pass a vision encoder before."""
    image_tokens: int = 0
    """Tokens of a prompt that the largest image or video is."""
    least_step: int = 1
    """Tokens of the smallest step under which the largest image or video passes."""
    tables: int = 0
    """Bytes of what is not set aside that tables of the requests take."""
    poll: int = 1
    """Decode steps between looks for new requests."""
    step_copies: int = 1
    """Copies of the attention that share the tokens that a flag states for the largest forward pass."""

    @property
    def stated_step(self) -> int:
        """Tokens of the largest forward pass as the engine's flag states them."""
        return self.step_tokens * self.step_copies


class GPUAtStart(NamedTuple):
    """Bytes on a GPU when an engine divides it."""

    total: int
    """Memory that the driver offers."""
    loaded: int
    """Weights, as they are loaded."""
    working: int
    """Bytes of a pass."""
    stated: int | None
    """Bytes that flags ask for the cache, if they do."""
    overhead: Mapping[OverheadItem, int]
    """All else, loading apart."""


class Budget(NamedTuple):
    """Division of a GPU by an engine at start, in bytes."""

    requested: int
    """Bytes it takes."""
    allocated: Mapping[str, int]
    """Bytes of that before the cache, by name."""
    outside: int
    """Overhead that is no part of it."""
    shortage: int
    """Bytes that the GPU lacks for that and for what lies outside; 0 where it has enough."""

    @property
    def cache(self) -> int:
        """Bytes left for the cache; below zero by how much too little there is."""
        return self.requested - sum(self.allocated.values())


class HostCache(Frozen):
    """A KV cache in the host's memory, pinned, besides the GPUs' own: prefixes of requests that are not computed again.
    Bytes of a rank are those of the rank with the most."""

    blocks: int
    block_bytes: int  # of one on all ranks of a copy
    bytes_per_rank: int
    bytes: int  # of all ranks and data-parallel copies
    tokens: int  # of a copy
    concurrency: float  # requests of the whole context whose cache it holds, of a copy


@dataclass(frozen=True, slots=True)
class LoadedWeights:
    """Bytes of weights on one rank, as the engine holds them."""

    weights: int = 0  # quantized or not, without what follows
    scales: int = 0  # scales, zero points, indices of groups
    draft: int = 0  # layers that only speculate, with their scales
    vision: int = 0  # the vision encoder, in 16 bits
    absorbed: int = 0  # vLLM keeps latent attention's up-projection once more in 16 bits where it is quantized
    adapters: int = 0  # slots for LoRA adapters, in 16 bits
    rotary: int = 0  # table of sines and cosines
    padding: int = 0  # rows and columns that kernels add, and keys that stand in the place of values too
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
    first: bool
    last: bool
    weights: int = 0  # bytes as stored, with the draft layer's
    vision: int = 0
    loaded: LoadedWeights = LoadedWeights()


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


class DeviceBuffers(Frozen):
    """Bytes on a GPU or on the host under an engine that plans all its memory."""

    device: str  # gpu0, gpu1, ... or host
    model: int
    context: int
    compute: int

    @property
    def total(self) -> int:
        return self.model + self.context + self.compute
