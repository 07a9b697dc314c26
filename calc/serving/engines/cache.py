"""Division of a GPU by an engine, and the plan of the KV cache and its states."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from math import inf
from typing import ClassVar, NamedTuple, Self

from calc.errors import Message
from calc.formats import CacheFormat
from calc.hardware.gpu import GPU
from calc.hardware.overhead import Overhead
from calc.hardware.parallel import Layout
from calc.hardware.solver import largest
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.serving.engines.sizes import Budget, DeviceBuffers, GPUAtStart, HostCache, LaidOut, Limits
from calc.serving.engines.started import StartedEngine
from calc.serving.kv_cache import cache_bytes, growth, length_bytes, state_bytes
from calc.serving.workload import Workload


class Cache(ABC):
    """The KV cache of every pipeline stage of a rank, as an engine keeps it."""

    @abstractmethod
    def required_bytes(self, stage: int, batch: int, length: int) -> int:
        """Bytes that so many sequences of so many tokens take on a stage."""

    def least_bytes(self, stage: int, batch: int, length: int) -> int:
        """Bytes of it that are there at every peak, as far as that is known beforehand."""
        return 0

    def buffers(self, batch: int, length: int) -> list[DeviceBuffers]:
        """Buffers of the model on each GPU and on the host, of engines that plan all of them."""
        return []

    def draft_buffers(self, batch: int, length: int) -> list[DeviceBuffers]:
        """Buffers of a draft model's context, or of draft layers' own one, on each GPU and on the host."""
        return []


class Pool(Cache):
    """A cache that is set aside at start. `budgets` are the bytes for it on each stage."""

    block_bytes: tuple[int, ...]
    """Bytes of a block on each stage; 0 where its layers keep nothing."""

    @property
    def is_additive(self) -> bool:
        """Whether a block takes on a stage the sum of what its layers take, wherever these stand."""
        return True

    @property
    def stated_blocks(self) -> int | None:
        """Its blocks where flags say how many, on however many stages; None: what it has room for."""
        return None

    @abstractmethod
    def block_size(self, length: int) -> int:
        """Tokens of the smallest block, for requests of up to that length."""

    @abstractmethod
    def request_blocks(self, length: int) -> int:
        """Blocks of a request of that length."""

    def required_bytes(self, stage: int, batch: int, length: int) -> int:
        return self.block_bytes_on(stage, batch * self.request_blocks(length))

    def least_bytes(self, stage: int, batch: int, length: int) -> int:
        """Lower bound of the bytes that its layers take, whatever the number of stages they are on: all blocks that
        flags state."""
        return self.block_bytes_on(stage, max(batch * self.request_blocks(length), self.stated_blocks or 0))

    def block_bytes_on(self, stage: int, blocks: int) -> int:
        return blocks * self.block_bytes[stage] + self.fixed_bytes(stage)

    def fixed_bytes(self, stage: int) -> int:
        """Bytes on a stage that do not depend on requests: what flags set aside for a number of them."""
        return 0

    def fixed_bytes_per_stage(self) -> int:
        """Fixed bytes on every stage, whatever the number of stages: set aside there for a number of requests."""
        return 0

    def profiled_bytes(self, stage: int) -> int:
        """Fixed bytes that the engine allocates while it profiles a pass, and counts with it."""
        return 0

    def stated_bytes(self, stage: int) -> int | None:
        """Bytes of the cache on a stage where flags state them; None: what the GPU has left."""
        return None

    def blocks(self, budgets: Sequence[int]) -> int:
        """Blocks that every stage has room for; 0 where the fixed bytes of a stage have none."""
        shares = self.shares(budgets)
        return 0 if min(shares)[0] < 0 else min(int(left // size) for left, size in shares if size)

    def shares(self, budgets: Sequence[int]) -> list[tuple[int, float]]:
        """Bytes left for blocks, and bytes of a block, on each stage [stages]."""
        sizes = enumerate(zip(budgets, self.block_bytes, strict=True))
        return [(budget - self.fixed_bytes(stage), size) for stage, (budget, size) in sizes]

    def concurrency(self, blocks: int, length: int) -> float:
        """Requests of that length that the blocks hold at once."""
        return blocks / self.request_blocks(length)

    def most_requests(self, budgets: Sequence[int]) -> float:
        """Upper bound of requests by what is not in blocks: recurrent states in a pool of their own."""
        return inf

    @abstractmethod
    def tokens(self, blocks: int, length: int) -> int:
        """Tokens that the blocks hold, as the engine prints them."""

    def tokens_of(self, nbytes: int, length: int) -> int:
        """Tokens that so many bytes on every stage hold, both as the engine prints them."""
        budgets = [nbytes + self.profiled_bytes(stage) for stage in range(len(self.block_bytes))]
        return self.tokens(self.blocks(budgets), length)

    def states_bytes(self, stage: int, states: int) -> int | None:
        """Bytes of a pool of so many recurrent states, where there is one."""
        return None

    def least_blocks(self, sequences: int) -> int:
        """Fewest blocks with which the engine starts for so many sequences at once, however long they are."""
        return 0

    def usable_blocks(self, blocks: int) -> int:
        """Blocks that the check at start counts on."""
        return blocks

    def cached_length(self, blocks: int, most: int) -> int:
        """Tokens of the longest request, up to `most`, that so many blocks hold; 0 where none does. The search starts
        on a line through the blocks of two very long requests, which grow evenly."""
        half, whole = self.request_blocks(most // 2), self.request_blocks(most)
        near = most - (whole - blocks) * (most - most // 2) // max(1, whole - half)
        return largest(lambda length: self.request_blocks(length) <= blocks, most, max(1, near), self.block_size(most))


class Setup(NamedTuple):
    """A laid-out model as an engine sets it up on a kind of GPU."""

    laid_out: LaidOut
    limits: Limits
    cache: Cache | None


class CachePlanner(StartedEngine):
    """Limits of a start, and what they leave for the cache."""

    limits_by: ClassVar[tuple[str, ...]] = ("tp", "pp", "dp")
    """Degrees of a layout that its limits depend on."""

    offloads: ClassVar[bool] = False
    """Whether it may leave a part of the model on the host."""
    plans_by_ranges: ClassVar[bool] = False
    """Whether its cache follows from the layers of each pipeline stage, before these are laid out."""

    def sized_for(self, sequences: int, architecture: Architecture) -> Self:
        """The engine for a server that answers at most so many requests at once, where that leaves more memory."""
        return self

    @property
    def free_at_start(self) -> float | None:
        """Share of the GPU that must be free for the engine to start; None where it does not check."""
        return None

    @property
    def cache_share(self) -> float:
        """Share that the cache gets of the bytes that weights leave."""
        return 1

    def at_start(self, limits: Limits) -> Message:
        """Memory set aside at start, and the sequences it runs, of engines that do so."""
        return Message(
            "{engine} {version} runs one sequence at once and takes {share:.0%} of the GPU; step, sequences and share "
            "are its defaults for each GPU unless set.",
            plural="{engine} {version} runs at most {n:,} sequences at once and takes {share:.0%} of the GPU; step, "
            "sequences and share are its defaults for each GPU unless set.",
            engine=self.title,
            version=self.versions,
            n=limits.sequences,
            share=limits.share,
        )

    def with_own_options(self, laid_out: LaidOut, gpu: GPU, workload: Workload, overhead: Overhead) -> Self:
        """The engine with the options that it decides by itself at start, under these ranges of the overhead."""
        return self

    @property
    def most_on_host(self) -> Self:
        """The engine with as much on the host as it may decide by itself to leave there."""
        return self

    def offloaded(
        self, laid_out: LaidOut, gpu: GPU, workload: Workload, overhead: Overhead
    ) -> dict[str, object] | None:
        """Options that leave as much on the host as it takes for the rest to fit at the high end of the overhead; None
        where it does not do that, or nothing does."""
        return None

    def kernel_key(self, gpu: GPU) -> tuple[Hashable, ...]:
        """Properties of a GPU, besides its bytes, that the memory needed on it depends on: kernels and links."""
        return gpu.platform, gpu.capability, gpu.form, gpu.topology, gpu.memory

    def memory_key(self, gpu: GPU) -> tuple[Hashable, ...]:
        """Properties of a GPU that decide what fits on it: GPUs with equal ones have one answer."""
        return *self.kernel_key(gpu), gpu.memory_bytes, gpu.usable_bytes

    def leaves_on_host(self, architecture: Architecture, gpus: int) -> bool:
        """Whether weights or the cache stay in the host's memory by its flags, so that the host decides how fast it
        is."""
        return False

    def usable_gpu(self, gpu: GPU) -> GPU:
        """The GPU with the memory that flags let the engine use."""
        return gpu

    @abstractmethod
    def limits(self, workload: Workload, gpu: GPU, architecture: Architecture, layout: Layout) -> Limits:
        """Limits on one GPU, read wherever they matter."""

    def state_bytes(self, architecture: Architecture, blocks: Sequence[Block]) -> int:
        """Bytes of recurrent state, and of what its convolutions look back on, of a sequence in some layers of a model,
        in the types that the engine keeps them in."""
        return state_bytes(blocks)

    def sequences_bytes(self, architecture: Architecture, kv: CacheFormat, batch: int, context: int) -> int:
        """Bytes of cache and states that `batch` sequences of `context` tokens need in all layers, each counted
        once."""
        blocks = architecture.all_blocks
        states = length_bytes(blocks, kv, context, self.state_bytes(architecture, blocks))
        return cache_bytes(growth(blocks, kv), states, batch, context)

    @abstractmethod
    def cache(self, laid_out: LaidOut, gpu: GPU, limits: Limits) -> Cache | None:
        """Layout of the cache; None for a model that keeps nothing."""

    def host_cache(self, laid_out: LaidOut, pool: Pool, blocks: int, length: int) -> HostCache | None:
        """The cache in the host's memory besides so many blocks on each GPU, for requests of that length; None where no
        flag asks for one, or how large it is is not known."""
        return None

    def budget(self, limits: Limits, gpu: GPUAtStart) -> Budget:
        """Division of a GPU. Only asked of engines that set memory aside at start."""
        raise NotImplementedError(self.name)
