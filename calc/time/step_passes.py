"""How often the kinds of work of a training step are done, and what its ranks hold alike."""

from typing import NamedTuple

from calc.training.workload import Recompute

RECOMPUTED: dict[Recompute, tuple[float, float]] = {
    "none": (0, 0),
    "selective": (0, 1),
    "alternate": (0.5, 0),
    "full": (1, 1),
}
"""How much of products and of attention is computed again, in forward passes."""
BACKWARD_ATTENTION = 2.5
"""In forward passes: flash attention's backward pass computes its scores again (arXiv:2307.08691 section 2.3)."""


class StepPasses(NamedTuple):
    """How often a kind of work is done in a step, in forward passes."""

    forward: float
    backward: float
    recomputed: float

    @property
    def all(self) -> float:
        return self.forward + self.backward + self.recomputed


class ReplicatedWeights(NamedTuple):
    """Weights of a rank that so many ranks hold alike, each so many ranks apart from the next."""

    elements: float
    replicas: int
    stride: int
