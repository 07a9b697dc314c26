"""The nodes that GPUs stand in: how many share one, which efficiencies they reach, and what an hour costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from calc.hardware.gpu import GPU
from calc.time.efficiency import Edits, Route
from calc.time.prices import price_of


@dataclass(frozen=True)
class Cluster:
    """Nodes of GPUs as a reader knows them."""

    gpus_per_node: int = 8
    efficiencies: Edits = field(default_factory=dict)  # in place of the usual ones
    prices: Mapping[str, float] = field(default_factory=dict)  # USD an hour by GPU, in place of the list's

    def price(self, gpu: str) -> float | None:
        """USD of a GPU-hour; None where it is neither stated nor listed."""
        return self.prices.get(gpu, price_of(gpu))

    def reach(self, gpu: GPU) -> int:
        """GPUs that a GPU's links join: those of a node, unless the catalogue counts them."""
        return gpu.link_gpus or self.gpus_per_node

    def path(self, gpu: GPU, ranks: int) -> Route:
        """Path between so many GPUs: their links as far as they reach, PCIe within a node."""
        if gpu.link_gb_s is not None and ranks <= self.reach(gpu):
            return "link"
        return "pcie" if ranks <= self.gpus_per_node else "network"


USUAL = Cluster()
"""Nodes of 8 GPUs, at the usual efficiencies and list prices."""
