"""What an engine runs: models, formats, layouts and GPUs."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from calc.errors import ConfigError, Message
from calc.formats import CacheFormat, Native, Precision, WeightFormat
from calc.hardware.division import nearest
from calc.hardware.engine_rules import EngineSupport, note, runs
from calc.hardware.format_rules import refused_format
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.cache_rules import check_cache
from calc.serving.engines.sizes import LaidOut, Limits
from calc.serving.engines.started import StartedEngine
from calc.serving.workload import Workload


class Rules(StartedEngine):
    """What an engine takes, and why it does not take the rest."""

    support: ClassVar[EngineSupport]
    """The GPUs and formats that it runs on."""
    weight_formats: ClassVar[tuple[WeightFormat, ...]] = ()
    """Formats of weights that it is usually given to save memory, the largest first."""
    cache_formats: ClassVar[tuple[CacheFormat, ...]] = ()
    """The same of the cache."""
    cache_from: ClassVar[frozenset[str]] = frozenset()
    """Tools of quantization whose word on the format of the KV cache it takes where no flag says another."""

    @classmethod
    def precision(
        cls, checkpoint: Native, weights: WeightFormat | None = None, kv: CacheFormat | None = None
    ) -> Precision:
        """Storage of weights and cache as it loads a checkpoint, unless other formats are chosen."""
        return Precision.stored_as(checkpoint, weights, kv, cls.cache_from)

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

    def refusal(self, architecture: Architecture, precision: Precision) -> Message | None:
        """Why it does not take these formats and options for this model; None where it does."""
        return None

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
