"""Weights as an engine holds them."""

from collections.abc import Iterator, Sequence
from typing import Self

from calc.errors import Message
from calc.formats import Precision
from calc.formats.stored import Piece, stored
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.loading import TensorLoader
from calc.serving.engines.sizes import LoadedWeights, Stage
from calc.serving.engines.started import StartedEngine


class Loader(StartedEngine):
    """Which weights an engine loads, and what they take on a rank: fused, padded, rounded, with tables."""

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

    def for_gpu(self, gpu: GPU, architecture: Architecture) -> Self:
        """The engine with what it decides by the kind of GPU that changes the weights it holds."""
        return self

    def left_out(self) -> Iterator[Message]:
        """What its options start that is not counted."""
        return iter(())

    def loads_same_weights(self, other: Self) -> bool:
        """Whether GPUs hold the same weights under the flags of another."""
        return True

    def file(self, architecture: Architecture, precision: Precision, rank: Architecture) -> list[Piece]:
        """The tensors of a rank, each with the format of the file that it is read from."""
        return stored(architecture, precision, rank)

    def on_gpus(self, architecture: Architecture, file: list[Piece]) -> list[Piece]:
        """The tensors of a rank that GPUs hold, as the file has them."""
        return file

    @property
    def loader(self) -> TensorLoader:
        """How it turns the tensors of a checkpoint into its own."""
        return TensorLoader()

    def loaded(self, rank: Architecture, pieces: Sequence[Piece], stage: range, layout: Layout) -> LoadedWeights:
        """What some tensors take on one rank of a pipeline stage once they are loaded."""
        return self.loader.loaded(rank, pieces, stage, layout)

    def draft(self, precision: Precision) -> tuple[Architecture, Precision, int] | None:
        """The model that guesses tokens for one of a precision, how it is stored, and the tokens that it guesses at
        once."""
        return None

    def draft_weights_per_stage(
        self, architecture: Architecture, precision: Precision, tp: int, stages: int
    ) -> tuple[int, ...]:
        """Bytes of a draft model's weights on one of tp ranks, by pipeline stage [stages]."""
        return (0,) * stages

    def tables(self, rank: Architecture) -> LoadedWeights:
        """Bytes of the tables that it makes on each stage, which the checkpoint does not have."""
        return LoadedWeights()

    def loading(self, stage: Stage) -> int:
        """Bytes that it adds to the stored weights: tables, padding, rounding, what it keeps twice or unpacks."""
        return stage.loaded.total - stage.weights - stage.vision
