"""Memory that no formula gives, as ranges: CUDA context, libraries, CUDA graphs, fragmentation.

Each engine has usual ranges of its own, taken from public logs, which a reader may replace.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from calc.errors import ConfigError, Frozen, Message
from calc.units import GIB, decimal

OverheadItem = Literal["cuda_context", "libraries", "cuda_graphs", "fragmentation", "loading", "peak_gap"]
"""`loading`: rotary tables, padding and rounding of loaded weights, which has a formula and no range. `peak_gap`: what
a server's pass at start took beyond ours, where a log states it."""
OverheadSizes = dict[OverheadItem, tuple[int, int]]
"""Bytes of each item, from low to high."""
LOW, MIDDLE, HIGH = 0, 1, 2
"""Ends of a range, and its middle."""


class Range(Frozen):
    """Least and most that was measured; as text 0.25-0.6."""

    low: float = Field(ge=0, le=1024, allow_inf_nan=False)
    high: float = Field(ge=0, le=1024, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        low, _, high = value.partition("-")
        return {"low": low, "high": high}

    def __str__(self) -> str:
        return f"{decimal(self.low)}-{decimal(self.high)}"

    @model_validator(mode="after")
    def _ordered(self) -> "Range":
        if self.low > self.high:
            raise ConfigError(
                Message("A range runs from low to high; {low:g} is above {high:g}.", low=self.low, high=self.high)
            )
        return self


CUDA_CONTEXT = Range(low=0.25, high=0.6)
"""GiB. vLLM start-up logs, "free / total" before loading: L4 0.23 (github.com/vllm-project/vllm/issues/4959), A100-40
0.49, H100 0.53 to 0.60 GiB."""
FRAGMENTATION = Range(low=0.4, high=2)
"""Per cent of weights, cache and activations. The allocator rounds to 2 MiB: 57 MiB of 14.2 GiB measured; the high end
is an assumption for what is freed and not reused."""
NONE = Range(low=0, high=0)


class Overhead(Frozen):
    """The ranges that a reader states, in GiB a GPU and per cent for fragmentation; None: the engine's usual ones."""

    cuda_context: Range | None = None
    libraries: Range | None = None
    cuda_graphs: Range | None = None
    fragmentation: Range | None = None
    peak_gap: Range | None = None
    overhead_log: Annotated[str, Field(max_length=120, pattern=r"^[^\x00-\x1f\x7f]+$")] | None = Field(
        default=None, examples=["vLLM 0.25.1, Qwen/Qwen3-8B"], description="The start-up log that ranges are from."
    )

    def of_server(self, usual: Mapping[OverheadItem, Range]) -> dict[OverheadItem, Range]:
        """The ranges of a server, whose pass at start may have been measured."""
        measured: dict[OverheadItem, Range] = {} if self.peak_gap is None else {"peak_gap": self.peak_gap}
        return self.ranges(usual) | measured

    def ranges(self, usual: Mapping[OverheadItem, Range]) -> dict[OverheadItem, Range]:
        """The usual ranges with those that are stated."""
        return {item: getattr(self, item) or usual[item] for item in usual}

    def sizes(self, usual: Mapping[OverheadItem, Range], allocated: int) -> OverheadSizes:
        """Bytes of each item on a GPU that holds `held` bytes of weights, cache and activations."""
        return sizes(self.ranges(usual), allocated)


def sizes(ranges: Mapping[OverheadItem, Range], allocated: int, loading: int = 0) -> OverheadSizes:
    """Bytes of each item on a GPU that holds `held` bytes of weights, cache and activations."""
    by_item: OverheadSizes = {}
    for item, span in ranges.items():
        unit = allocated / 100 if item == "fragmentation" else GIB
        by_item[item] = round(span.low * unit), round(span.high * unit)
    if loading:
        by_item["loading"] = loading, loading
    return by_item


def bounds(sizes: OverheadSizes) -> tuple[int, int]:
    """Bytes of all items together, from low to high."""
    lows, highs = zip(*sizes.values(), strict=True)
    return sum(lows), sum(highs)


def at_end(sizes: OverheadSizes, end: int) -> dict[OverheadItem, int]:
    """Bytes of each item at one end of its range, or in the middle."""
    return {item: (low, (low + high) // 2, high)[end] for item, (low, high) in sizes.items()}


ALONE, SEVERAL = Range(low=0.01, high=0.35), Range(low=0.2, high=1.84)


def libraries(gpus: int) -> Range:
    """GiB of cuBLAS and NCCL, "non-torch" in vLLM's logs: 0.01 to 0.35; several GPUs 0.2 (PCIe) to 1.84 (4 x H100)."""
    return SEVERAL if gpus > 1 else ALONE


def left_for_overhead(left: int, low: int, high: int) -> Message:
    """A sentence for a verdict that the overhead alone decides; all in bytes."""
    return Message(
        "{left:.2f} GiB are left for overhead, which takes {low:.2f} to {high:.2f} GiB.",
        left=left / GIB,
        low=low / GIB,
        high=high / GIB,
    )
