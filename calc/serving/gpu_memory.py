"""What one GPU holds, in bytes."""

from dataclasses import dataclass

from pydantic import Field

from calc.errors import Frozen, Message
from calc.hardware.overhead import OverheadSizes
from calc.model.named import Peak


class Memory(Frozen):
    """Bytes on the GPU with the most memory in use. `overhead` is the middle of its range, which `total` counts."""

    weights: int
    vision: int = Field(default=0, exclude_if=lambda size: size == 0)  # weights of a vision encoder that is loaded
    kv_cache: int
    activations: int
    overhead: int
    overhead_low: int
    overhead_high: int
    total: int

    @property
    def low(self) -> int:
        return self.total - self.overhead + self.overhead_low

    @property
    def high(self) -> int:
        return self.total - self.overhead + self.overhead_high

    @property
    def parts(self) -> dict[Message, int]:
        """What fills it beside overhead, by the words of sentences."""
        return {
            Message("weights"): self.weights + self.vision,
            Message("KV cache"): self.kv_cache,
            Message("activations"): self.activations,
        }


@dataclass(frozen=True, slots=True)
class StageMemory:
    """What one GPU of a stage holds: its parts, and the moment that decides."""

    memory: Memory
    working: Peak
    sizes: OverheadSizes
