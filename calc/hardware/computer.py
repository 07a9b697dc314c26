"""A reader's own machine: the GPUs in it, its memory, and what the operating system keeps of that."""

from typing import Annotated

from pydantic import AfterValidator, Field

from calc.errors import ConfigError, Frozen
from calc.hardware.custom_gpu import find_gpu
from calc.hardware.gpu import GPU
from calc.hardware.mig import unjoined
from calc.units import GIB

MOST_CARDS = 8
SYSTEM_GIB = 4.0
"""Memory that operating system and other programs keep, where nobody says how much."""


def cards(names: tuple[str, ...]) -> tuple[str, ...]:
    """Ids of the catalogue, or GPUs of the reader's own as text; one as often as it is there. Raises ValueError."""
    gpus = [find_gpu(name) for name in names]
    for gpu in gpus:
        if (why := unjoined(gpu, len(gpus))) is not None:
            raise ConfigError(why, "my_gpus", [gpu.id])
    return tuple(gpu.id for gpu in gpus)


class Computer(Frozen):
    my_gpus: Annotated[tuple[str, ...], AfterValidator(cards), Field(max_length=MOST_CARDS)] = Field(
        default=("rtx-3060-12gb",),
        examples=["rtx-4090,rtx-3060-12gb"],
        description="The cards in it, the fastest first; none: the CPU computes.",
    )
    ram_gib: float = Field(default=32, ge=1, le=4096, description="Memory of the host, or all where GPUs share it.")
    ram_gb_s: float = Field(
        default=51.2, gt=0, le=2000, description="Its bandwidth: two channels of DDR4-3200 51.2, of DDR5-5600 89.6."
    )
    cpu_tflops: float = Field(
        default=1.0, gt=0, le=100, description="Peak of the CPU in fp32: cores x GHz x 32 with AVX2, / 1,000."
    )
    system_gib: float | None = Field(
        default=None,
        ge=0,
        le=1024,
        description="Memory that the operating system and other programs keep: 4, where nothing is said, and of memory "
        "that GPU and CPU share no more than the GPU leaves.",
    )

    @property
    def gpus(self) -> list[GPU]:
        return [find_gpu(name) for name in self.my_gpus]

    @property
    def is_unified(self) -> bool:
        """Whether GPU and CPU have one memory: Apple's chips, Strix Halo, DGX Spark."""
        return any(gpu.memory == "unified" for gpu in self.gpus)

    @property
    def memory_bytes(self) -> int:
        """Memory of the host; the GPU's where they share it."""
        shared = [gpu.memory_bytes for gpu in self.gpus if gpu.memory == "unified"]
        return shared[0] if shared else int(self.ram_gib * GIB)

    @property
    def host_bytes(self) -> int:
        """Bytes that programs may take. Of memory that a GPU shares they are at least what the system leaves to that
        (`recommendedMaxWorkingSetSize` on a Mac), unless it is stated what the system keeps."""
        left = max(0, self.memory_bytes - int((SYSTEM_GIB if self.system_gib is None else self.system_gib) * GIB))
        shared = [gpu.usable_bytes for gpu in self.gpus if gpu.memory == "unified"]
        return max(left, *shared) if shared and self.system_gib is None else left

    @property
    def kept_gib(self) -> float:
        """GiB that operating system and other programs keep."""
        return (self.memory_bytes - self.host_bytes) / GIB

    @property
    def host(self) -> GPU:
        """The host as something that computes."""
        shared = [gpu.bandwidth_gb_s for gpu in self.gpus if gpu.memory == "unified"]
        return GPU(
            id="host",
            name="host",
            vendor="host",
            platform=None,
            generation="host",
            memory_gb=self.memory_bytes / GIB,
            bandwidth_gb_s=shared[0] if shared else self.ram_gb_s,
            tflops={"fp32": self.cpu_tflops},
            formats=("fp32",),
        )
