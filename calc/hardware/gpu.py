from typing import Literal

from pydantic import Field

from calc.errors import Frozen
from calc.formats import CacheFormat, WeightFormat
from calc.units import MIB

Dtype = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp4"]
UNITS: dict[WeightFormat | CacheFormat, tuple[Dtype, str]] = {
    "bf16": ("bf16", "no native bf16: run fp16"),
    "fp8": ("fp8", "no fp8 units: fp8 saves memory only, arithmetic is in 16 bits"),
    "fp8-channel": ("fp8", "no fp8 units: fp8 saves memory only, arithmetic is in 16 bits"),
    "fp8-tensor": ("fp8", "no fp8 units: fp8 saves memory only, arithmetic is in 16 bits"),
    "mxfp4": ("fp4", "no fp4 units: mxfp4 saves memory only, arithmetic is in 16 bits"),
    "nvfp4": ("fp4", "no fp4 units: nvfp4 saves memory only, arithmetic is in 16 bits"),
}
VISIBLE = 0.985
"""CUDA's total over the driver's where it was not observed; observed: 0.971 (T4) to 1.000 (MI300X), V100-16 0.986."""


class GPU(Frozen):
    """An accelerator, as its datasheet and its driver describe it."""

    id: str
    name: str
    vendor: str
    memory_mib: int  # total that the driver's tool prints
    usable_mib: int | None = None  # total that CUDA, hence PyTorch, sees; None: not observed
    bandwidth_gb_s: float
    tflops: dict[Dtype, float]  # dense matrix peaks, fp32 accumulate; a format that is absent has no units
    link_gb_s: float | None = None  # GPU to GPU, both directions
    capability: str
    year: int
    default: bool = False  # among those that are shown first
    sources: tuple[str, ...] = Field(min_length=1)

    @property
    def memory_bytes(self) -> int:
        """Bytes that the driver's tool prints."""
        return self.memory_mib * MIB

    @property
    def usable_bytes(self) -> int:
        """Bytes that a process can hope for, its own CUDA context included."""
        return (self.usable_mib or int(self.memory_mib * VISIBLE)) * MIB

    @property
    def workspace_bytes(self) -> int:
        """What cuBLAS takes through PyTorch's allocator: 32 MiB on Hopper, 8.125 elsewhere (`CUDABlas.cpp`)."""
        return 32 * MIB if self.capability == "9.0" else 8320 * 1024

    def lacks(self, storage: WeightFormat | CacheFormat) -> str | None:
        """What the card can't do with this format, or None when it has units for it."""
        unit, sentence = UNITS.get(storage, ("fp32", ""))
        return None if unit in self.tflops else sentence
