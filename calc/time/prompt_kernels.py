"""What a pass of a prompt moves besides on a GPU, where an engine unpacks quantized weights first or has no flash
attention."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from calc.formats import WeightFormat
from calc.hardware.gpu import GPU
from calc.time.efficiency import Conditions, row
from calc.time.estimate import End
from calc.time.roofline import Timed
from calc.time.time_operations import Demand, Operation


@dataclass(frozen=True)
class PromptKernels:
    """Seconds of a byte of quantized weights that is unpacked, and of a score that passes through memory."""

    unpacked: float
    score: float

    @classmethod
    def of(cls, gpu: GPU, engine: str, weights: WeightFormat, end: End) -> Self:
        """Kernels of an engine's build on a GPU."""
        at = Conditions(engine, gpu.generation, weights=weights)

        def seconds(nbytes: float) -> float:
            return nbytes / (gpu.bandwidth_gb_s * 1e9)

        return cls(
            unpacked=seconds(row("unpacked_bytes", at).value.duration(end)),
            score=seconds(row("score_bytes", at).value.duration(end)),
        )

    def parts(self, demand: Demand, operations: Sequence[Operation]) -> Iterator[Timed]:
        """What a pass of such operations moves."""
        packed = sum(operation.weights for operation in operations if operation.quantized)
        if self.unpacked and packed:
            unpacked = packed * self.unpacked
            yield Timed("unpacking", unpacked, memory=unpacked)
        if self.score and demand.pairs:
            flops = sum(operation.flops for operation in operations if operation.what == "scores")
            scores = flops * demand.heads / sum(demand.pairs.values()) * self.score
            yield Timed("softmax", scores, memory=scores)
