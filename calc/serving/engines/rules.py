"""What an engine runs: models, formats, layouts and GPUs."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

from calc.errors import ConfigError, Message, Refusal
from calc.formats import CacheFormat, Native, Precision, WeightFormat
from calc.hardware.division import nearest
from calc.hardware.engine_rules import EngineSupport, note, runs
from calc.hardware.format_rules import missing_kernel
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.cache_rules import beyond_positions, without_latents
from calc.serving.engines.question import Question
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
    """Formats of the cache that it is usually given to save memory, the largest first."""
    cache_from: ClassVar[frozenset[str]] = frozenset()
    """Tools of quantization whose word on the format of the KV cache it takes where no flag says another."""

    @classmethod
    def precision(
        cls, checkpoint: Native, weights: WeightFormat | None = None, kv: CacheFormat | None = None
    ) -> Precision:
        """Storage of weights and cache as it loads a checkpoint, unless other formats are chosen."""
        return Precision.stored_as(checkpoint, weights, kv, cls.cache_from)

    vocabulary_gap: ClassVar[int] = 0
    """Tokens by which a draft model's vocabulary may differ from the model's."""

    @classmethod
    def may_draft(cls, draft: Architecture, vocab: int) -> bool:
        """Whether a model may guess tokens of a vocabulary."""
        question = Question(draft, Precision(weights=cls.weight_formats[-1]))
        return abs(draft.vocab - vocab) <= cls.vocabulary_gap and not any(cls().refusals(question))

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

    def refusals(self, question: Question) -> Iterator[Refusal]:
        """Why it does not run what is asked, whatever memory there is; nothing where it does. Reasons of the layout
        come first, then those of the model and its formats, of the GPU, and of the requests."""
        model, precision, layout, laid_out, gpu, workload, limits = question
        if model is not None and precision is not None:
            if layout is not None:
                if (why := layout.undivided(model)) is not None:
                    yield Refusal(why, "tp")
                yield from self.layout_refusals(model, precision, layout)
            yield from self.model_refusals(model, precision)
        if gpu is not None and laid_out is not None:
            yield from self.gpu_refusals(gpu, laid_out)
        if model is not None and workload is not None:
            yield from beyond_positions(model, workload.context)
        if workload is not None and limits is not None:
            yield from self.request_refusals(workload, limits)

    def check(self, question: Question) -> None:
        """Raise ConfigError for the first refusal, with the nearest that it takes."""
        for message, field, near in self.refusals(question):
            raise ConfigError(message, field, near or self.nearest_degrees(question, field))

    def nearest_degrees(self, question: Question, field: str | None) -> tuple[int, ...]:
        """Around a refused degree of tensor or decode context parallelism, those to which no rule of it objects."""
        if question.layout is None or field not in ("tp", "dcp"):
            return ()

        def accepts(degree: int) -> bool:
            return all(refusal.field != field for refusal in self.refusals(question.of_degree(field, degree)))

        return nearest(getattr(question.layout, field), accepts)

    def layout_refusals(self, model: Architecture, precision: Precision, layout: Layout) -> Iterator[Refusal]:
        """Rules of sharing a model over ranks that divide its layers: over stages, experts, and ranks that share cached
        tokens."""
        yield from layout.unspread(model)
        if layout.dcp > 1:
            yield Refusal(Message("{engine} does not share cached tokens over ranks (dcp).", engine=self.title), "dcp")

    def model_refusals(self, model: Architecture, precision: Precision) -> Iterator[Refusal]:
        """Rules of families, formats and flags, wherever the model runs."""
        yield from without_latents(model, precision.kv)

    def gpu_refusals(self, gpu: GPU, laid_out: LaidOut) -> Iterator[Refusal]:
        """Rules of a GPU for such a rank, on whatever stage."""
        if not runs(gpu, self.support) and (why := note(gpu, self.support)) is not None:
            yield Refusal(why, "gpu")
        if (why := missing_kernel(gpu, self.support, laid_out.precision.weights)) is not None:
            yield Refusal(why, "weights")

    def request_refusals(self, workload: Workload, limits: Limits) -> Iterator[Refusal]:
        """Rules by which what is set up at start does not take these sequences."""
        yield from ()
