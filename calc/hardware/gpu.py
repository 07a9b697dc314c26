"""One accelerator: its memory, its speed, its links, and what it can't do."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from calc.errors import Frozen, Message
from calc.formats import CacheFormat, WeightFormat
from calc.hardware.generations import Clock, Dtype, Platform
from calc.units import GIB, MIB

Form = Literal["sxm", "oam", "superchip", "pcie", "laptop", "module", "soc", "chip"]
Topology = Literal["switch", "full mesh", "cube mesh", "torus", "pairs", "pcie only", "single"]
Fact = Literal["specification", "peaks", "memory", "usable", "link"]

NO_BF16 = Message("no native bf16: run fp16")
NO_16_BITS = Message("no fast bf16 or fp16: what is not quantized runs in fp32")
NO_FP8 = Message("no fp8 units: fp8 saves memory only, arithmetic is in 16 bits")
NO_FP4 = "no fp4 units: {format} saves memory only, arithmetic is in 16 bits"
UNITS: dict[WeightFormat | CacheFormat, tuple[Dtype, Message]] = {
    "bf16": ("bf16", NO_BF16),
    "fp8": ("fp8", NO_FP8),
    "fp8-channel": ("fp8", NO_FP8),
    "fp8-tensor": ("fp8", NO_FP8),
    "mxfp8": ("fp8", NO_FP8),
    "mxfp4": ("fp4", Message(NO_FP4, format="mxfp4")),
    "nvfp4": ("fp4", Message(NO_FP4, format="nvfp4")),
}
VISIBLE, VISIBLE_ASCEND = 0.985, 0.957
"""CUDA's total over the driver's where it was not observed; observed: 0.971 (T4) to 1.000 (MI300X), V100-16 0.986. On
Ascend 61.27 of 64 GiB (910B3, 910C)."""


class Slice(Frozen):
    """The GPU that a MIG slice is cut from, and the shares that it has."""

    gpu: str  # id
    share: float  # of the price: the larger of its shares of compute slices and memory slices
    instances: int  # of this size alone, on one GPU
    sms: int
    of_sms: int
    memory_slices: int
    of_memory_slices: int


class GPU(Frozen):
    """An accelerator, as its datasheet and its driver describe it. What no address confirms is None."""

    id: str
    name: str
    vendor: str
    platform: Platform | None  # None: a user's own, of which nothing is known but what was typed
    generation: str | None = None
    form: Form = "pcie"
    year: int | None = None
    capability: str | None = None  # CUDA's compute capability or AMD's LLVM target
    memory_gb: float  # as sold; for a user's own GiB
    memory_mib: int | None = None  # total that the driver's tool prints; None: not observed
    usable_mib: int | None = None  # total that CUDA, hence PyTorch, sees; None: not observed
    memory: Literal["dedicated", "unified"] = "dedicated"  # unified: shared with the CPU
    usable_share: float | None = Field(None, gt=0, le=1)  # of unified memory, as the system is delivered
    bandwidth_gb_s: float
    tdp_w: int | None = None  # board power, as the specification has it
    clock: Clock | None = None  # where the peaks follow from it
    tflops: Mapping[Dtype, float]  # dense matrix peaks, fp32 accumulate; fp32: the vector units; int8 in TOPS
    formats: tuple[Dtype, ...]  # that it has units for, also where no peak is known
    link_gb_s: float | None = None  # GPU to GPU, both directions together
    topology: Topology | None = None
    link_gpus: int | None = None  # how many GPUs reach each other over the link
    pcie: str | None = None  # generation and lanes: "5.0 x16"
    default: bool = False  # among those that are shown first
    slice: Slice | None = None  # where it is a MIG slice of a GPU
    sources: Mapping[Fact, str] = {}  # an address each; a memory may name a GPU with the same memory: "as rtx-4090"

    @property
    def memory_bytes(self) -> int:
        """Bytes that the driver's tool prints; those of the label where that was not observed."""
        return round(self.memory_gb * GIB) if self.memory_mib is None else self.memory_mib * MIB

    @property
    def usable_bytes(self) -> int:
        """Bytes that a process can hope for, its own CUDA context included; whole MiB."""
        if self.usable_mib is not None:
            return self.usable_mib * MIB
        visible = VISIBLE_ASCEND if self.platform == "cann" else VISIBLE
        return int(self.memory_bytes / MIB * (self.usable_share or visible)) * MIB

    @property
    def workspace_bytes(self) -> int:
        """Workspace of cuBLAS in PyTorch's allocator: 32 MiB on Hopper, 8.125 elsewhere (`CUDABlas.cpp`)."""
        return 32 * MIB if self.capability == "9.0" else 8320 * 1024

    def fewest(self, nbytes: int) -> int:
        """So many of it together have so many bytes."""
        return -(-nbytes // self.usable_bytes)

    def lacks(self, storage: WeightFormat | CacheFormat) -> Message | None:
        """Sentence on what the card lacks for a format; None where it has units for it."""
        if storage not in UNITS:
            return None
        unit, sentence = UNITS[storage]
        if unit in self.formats:
            return None
        return NO_16_BITS if unit == "bf16" and "fp16" not in self.formats else sentence
