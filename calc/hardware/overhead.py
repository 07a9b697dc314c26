"""What the formulas do not close, as ranges."""

from typing import Literal

from pydantic import Field, model_validator

from calc.errors import Frozen
from calc.units import GIB


class Range(Frozen):
    """From the least to the most that was measured."""

    low: float = Field(ge=0, le=1024, allow_inf_nan=False)
    high: float = Field(ge=0, le=1024, allow_inf_nan=False)

    @model_validator(mode="after")
    def _ordered(self) -> "Range":
        if self.low > self.high:
            raise ValueError(f"a range runs from low to high; {self.low:g} is above {self.high:g}")
        return self


class Overhead(Frozen):
    """What the formulas do not close, itemised: ranges as measured, in GiB a GPU; None: the usual range."""

    cuda_context: Range = Range(low=0.25, high=0.6)
    """vLLM start-up logs, "free / total" before loading: L4 0.23, A100-40 0.49, H100 0.53 to 0.60 GiB."""
    libraries: Range | None = None
    """cuBLAS and NCCL, "non-torch" in vLLM logs: one GPU 0.01 to 0.35; several 0.2 (PCIe) to 1.84 GiB (4 x H100)."""
    cuda_graphs: Range | None = None
    """vLLM logs: 0.04 to 0.7 GiB with small models, 0.5 to 2.4 with two sets of graphs; none when switched off."""
    fragmentation: Range = Range(low=0.4, high=2)
    """Percent of weights, cache and activations. The allocator rounds to 2 MiB: 57 MiB of 14.2 GiB measured; the high
    end is an assumption for what is freed and not reused."""

    def ranges(self, engine: str, gpus: int) -> dict["OverheadItem", Range]:
        """The range of each item: GiB, and percent for fragmentation."""
        several = Range(low=0.2, high=1.84) if gpus > 1 else Range(low=0.01, high=0.35)
        graphs = Range(low=0, high=2.4) if engine == "vllm" else Range(low=0, high=0)
        return {
            "cuda_context": self.cuda_context,
            "libraries": self.libraries or several,
            "cuda_graphs": self.cuda_graphs or graphs,
            "fragmentation": self.fragmentation,
        }

    def items(self, engine: str, gpus: int, held: int) -> dict["OverheadItem", tuple[int, int]]:
        """Bytes from low to high of each item, on a GPU that holds `held` bytes beside."""
        ranges = self.ranges(engine, gpus)
        unit = {name: held / 100 if name == "fragmentation" else GIB for name in ranges}
        return {name: (round(r.low * unit[name]), round(r.high * unit[name])) for name, r in ranges.items()}

    def bounds(self, engine: str, gpus: int, held: int) -> tuple[int, int]:
        """Bytes of all items together, from low to high."""
        items = self.items(engine, gpus, held).values()
        return sum(low for low, _ in items), sum(high for _, high in items)


OverheadItem = Literal["cuda_context", "libraries", "cuda_graphs", "fragmentation"]
