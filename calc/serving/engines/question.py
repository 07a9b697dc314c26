"""What an engine is asked to run."""

from typing import NamedTuple, Self

from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.engines.sizes import LaidOut, Limits
from calc.serving.workload import Workload


class Question(NamedTuple):
    """Whether an engine runs a model stored so, on these ranks, on a GPU, for these requests. A part that is left out
    is still open, or was accepted before: no rule that reads it is applied."""

    model: Architecture | None = None
    precision: Precision | None = None
    layout: Layout | None = None
    laid_out: LaidOut | None = None  # what the three before come to
    gpu: GPU | None = None
    workload: Workload | None = None
    limits: Limits | None = None

    def of_degree(self, field: str, degree: int) -> Self:
        """With other tensor-parallel ranks (tp), or with others that share cached tokens (dcp)."""
        assert self.layout is not None
        other = self.layout.of_degree(degree) if field == "tp" else self.layout.model_copy(update={field: degree})
        return self._replace(layout=other)
