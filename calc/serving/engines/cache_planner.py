"""How an engine divides a GPU, and plans the cache and its states."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

from calc.errors import Message
from calc.formats import CacheFormat
from calc.hardware.gpu import GPU
from calc.hardware.overhead import Overhead
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.serving.engines.cache import Cache, Pool
from calc.serving.engines.sizes import Budget, GPUAtStart, LaidOut, Limits
from calc.serving.engines.started import StartedEngine
from calc.serving.kv_cache import model_cache_bytes, state_bytes
from calc.serving.workload import Workload


class CachePlanner(StartedEngine):
    """Limits of a start, and what they leave for the cache."""

    limits_by: ClassVar[tuple[str, ...]] = ("tp", "pp", "dp")
    """Degrees of a layout that its limits depend on."""

    offloads: ClassVar[bool] = False
    """Whether it may leave a part of the model on the host."""

    def sized_for(self, sequences: int, architecture: Architecture) -> Self:
        """The engine of a server that is known to answer at most so many requests at once, where that leaves more
        memory."""
        return self

    @property
    def cache_share(self) -> float:
        """Share of the bytes that weights leave which its cache gets."""
        return 1

    def at_start(self, limits: Limits) -> Message:
        """What it sets aside at start, and how many sequences it runs. Only asked of engines that do so."""
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

    def settled(self, laid_out: LaidOut, gpu: GPU, workload: Workload, overhead: Overhead) -> Self:
        """The engine with what it decides by itself at start, under these ranges of the overhead."""
        return self

    def offloaded(
        self, laid_out: LaidOut, gpu: GPU, workload: Workload, overhead: Overhead
    ) -> dict[str, object] | None:
        """Options that leave as much on the host as it takes for the rest to fit at the high end of the overhead; None
        where it does not do that, or nothing does."""
        return None

    @abstractmethod
    def limits(self, workload: Workload, gpu: GPU, architecture: Architecture, layout: Layout) -> Limits:
        """One for each GPU, used everywhere."""

    def state_bytes(self, architecture: Architecture, blocks: Sequence[Block]) -> int:
        """Bytes of recurrent state, and of what its convolutions look back on, of a sequence in some layers of a model,
        in the types that the engine keeps them in."""
        return state_bytes(blocks)

    def sequences_bytes(self, architecture: Architecture, kv: CacheFormat, batch: int, context: int) -> int:
        """Bytes of cache and states that `batch` sequences of `context` tokens need in all layers, each counted
        once."""
        blocks = architecture.all_blocks
        return model_cache_bytes(blocks, kv, batch, context, self.state_bytes(architecture, blocks))

    @abstractmethod
    def cache(self, laid_out: LaidOut, gpu: GPU, limits: Limits) -> Cache | None:
        """How the cache is kept; None for a model that keeps nothing."""

    def cache_over(self, stages: Sequence[range], laid_out: LaidOut, gpu: GPU, limits: Limits) -> Pool | None:
        """The cache that is set aside of a rank whose layers are cut into such pipeline stages, of engines that know it
        before these are laid out."""
        return None

    def budget(self, limits: Limits, gpu: GPUAtStart) -> Budget:
        """How a GPU is divided. Only asked of engines that set memory aside at start."""
        raise NotImplementedError(self.name)
