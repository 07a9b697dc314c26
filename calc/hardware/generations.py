"""Generations of accelerators: what a unit does in a clock, which formats it has units for, which software it takes."""

from collections.abc import Mapping
from typing import Literal

from calc.errors import Frozen

Dtype = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4"]
Vendor = Literal[
    "NVIDIA",
    "AMD",
    "Intel",
    "Apple",
    "Huawei",
    "Google",
    "AWS",
    "Moore Threads",
    "MetaX",
    "Hygon",
    "Cambricon",
    "Biren",
]
Platform = Literal[
    "cuda", "rocm", "xpu", "metal", "tpu", "gaudi", "neuron", "cann", "musa", "maca", "dtk", "mlu", "supa"
]


class Clock(Frozen):
    """Inputs of a peak's formula."""

    units: int  # streaming multiprocessors, compute units or Xe cores
    mhz: int  # boost


class Generation(Frozen):
    """A row of catalogue/generations.json."""

    vendor: Vendor
    platform: Platform
    capability: str | None = None  # CUDA's compute capability, AMD's LLVM target, Ascend's chip; None: not all alike
    flop_per_clock: Mapping[Dtype, int] = {}  # of one unit: dense, fp32 accumulate (fp32: the vector units)
    formats: tuple[Dtype, ...] = ()  # that it has units for, where no rate is given
    software: str | None = None  # that runs models on it, where no engine here does
    source: str

    @property
    def native(self) -> tuple[Dtype, ...]:
        return self.formats or tuple(self.flop_per_clock)

    def peaks(self, clock: Clock) -> dict[Dtype, float]:
        """TFLOPS (TOPS for int8): units x FLOP per clock x boost clock, to one decimal."""
        return {dtype: round(clock.units * rate * clock.mhz / 1e6, 1) for dtype, rate in self.flop_per_clock.items()}
