"""Standing of a design among published models."""

from collections.abc import Iterable, Sequence

from calc.errors import Frozen
from calc.model.architecture import Architecture


class Proportions(Frozen):
    """The sizes by which designs are compared."""

    name: str
    parameters: int
    active: int
    hidden: int
    layers: int
    ffn: float | None
    """Width of the widest feed-forward that one token passes through, over the hidden size; None without one."""
    gated: bool
    """Whether that feed-forward has a gate, and so a third matrix."""

    @property
    def aspect(self) -> float:
        """Width over depth."""
        return self.hidden / self.layers

    @property
    def sparsity(self) -> float:
        """Parameters for each active one."""
        return self.parameters / self.active


def proportions(name: str, architecture: Architecture) -> Proportions:
    count = architecture.parameters()
    feeds = [block.ffn for block in architecture.all_blocks if block.ffn is not None]
    widths = [(ffn.active_width, ffn.gated) for ffn in feeds]
    width, gated = max(widths, default=(0, False))
    return Proportions(
        name=name,
        parameters=count.total,
        active=count.active,
        hidden=architecture.hidden,
        layers=architecture.num_layers,
        ffn=width / architecture.hidden if width else None,
        gated=gated,
    )


def percentile(value: float, of: Iterable[float]) -> float:
    """The share of others that are smaller; equal ones count half."""
    others = list(of)
    below = sum(other < value for other in others) + 0.5 * sum(other == value for other in others)
    return below / len(others) if others else 0.5


def quartiles(values: Iterable[float]) -> tuple[float, float]:
    """The values between which the middle half lies, both among them."""
    ordered = sorted(values)
    return ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]


def of_this_size(own: Proportions, published: Sequence[Proportions], factor: float = 3.0) -> list[Proportions]:
    """Others with a third to three times as many parameters."""
    return [other for other in published if own.parameters / factor <= other.parameters <= own.parameters * factor]
