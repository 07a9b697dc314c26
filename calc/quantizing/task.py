"""Question of a conversion, and its phases: named tensors, each with its formula."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import Field

from calc.errors import ConfigError, Frozen, Message
from calc.formats.format_names import WeightFormat
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.derivation import Step
from calc.model.traced import Traced, TracedSymbols


class HeldPart(Frozen):
    """Something that memory or disk holds, with its formula and the values filled in."""

    what: Message
    bytes: int
    formula: str
    values: str
    step: Step = Field(exclude=True, repr=False)


class QuantizingPhase(Frozen):
    """A stage of a conversion, and its tensors at the peak."""

    name: Message
    gpu: tuple[HeldPart, ...]
    ram: tuple[HeldPart, ...]
    gpu_bytes: int
    ram_bytes: int


@dataclass(frozen=True)
class Draft:
    """A phase before its formulas are written down."""

    name: Message
    gpu: Mapping[Message, int]  # numbers that remember their formula
    ram: Mapping[Message, int]

    @property
    def gpu_bytes(self) -> int:
        return sum(map(int, self.gpu.values()))


def peak_of(drafts: Iterable[Draft]) -> Draft:
    """The draft that needs most on the GPU: one block or matrix is worked on at a time. Raises ConfigError where there
    is none."""
    known = list(drafts)
    if not known:
        raise ConfigError(Message("The tool finds no matrix in this model that it could quantize this way."), "to")
    return max(known, key=lambda draft: draft.gpu_bytes)


@dataclass(frozen=True)
class Conversion:
    """A model and what becomes of it; sizes remember their formula."""

    model: Architecture
    to: WeightFormat
    samples: int  # calibration samples
    tokens: int  # of each
    pass_samples: int  # samples in one forward pass
    file_bytes: int  # of the checkpoint's largest file
    offload: bool  # whether what AWQ keeps of each sample waits in host memory
    result_bytes: int  # of the quantized checkpoint
    symbols: TracedSymbols = field(default_factory=TracedSymbols)

    def named(self, name: str, value: int, meaning: Message) -> Traced:
        """A figure under a letter of its own."""
        return Traced.symbol(value, self.symbols.named(name, value, meaning))

    def width(self, value: int) -> Traced:
        """The width of an input or output: h, or a letter of its own for each other one."""
        if value == self.model.hidden:
            return self.symbols.of("hidden", value)
        return self.named(f"w_{value}", value, Message("width of an input or output of a matrix"))

    @cached_property
    def sample_count(self) -> Traced:
        return self.named("N", self.samples, Message("calibration samples"))

    @cached_property
    def sample_tokens(self) -> Traced:
        return self.named("S", self.tokens, Message("tokens of a calibration sample"))

    @cached_property
    def pass_tokens(self) -> Traced:
        """Tokens of one forward pass."""
        samples = self.named("B", self.pass_samples, Message("calibration samples in one forward pass"))
        return samples * self.sample_tokens

    @cached_property
    def hidden(self) -> Traced:
        return self.width(self.model.hidden)

    @cached_property
    def checkpoint(self) -> Traced:
        """Bytes of the checkpoint in 16 bits."""
        numel = sum(tensor.parameters for tensor in self.model.tensors() if tensor.excluded_as != "persistent_buffers")
        return 2 * self.named("W", numel, Message("parameters of the checkpoint"))

    @cached_property
    def head(self) -> dict[Message, Traced]:
        """The output head, whose copy stays on the GPU through the calibration."""
        if self.model.pooled:
            return {}
        vocab = self.symbols.of("vocab", self.model.vocab)
        return {Message("output head"): 2 * vocab * self.width(self.model.d_embedding or self.model.hidden)}

    @cached_property
    def outside(self) -> Traced:
        """Bytes in 16 bits of what lies outside the blocks."""
        numel = sum(t.numel for t in self.model.tensors() if not t.layers and t.excluded_as is None)
        return 2 * self.named("O", numel, Message("parameters outside the blocks"))

    def block(self, block: Block) -> Traced:
        """Bytes of one layer in 16 bits."""
        layers = max(1, len(block.layers))
        numel = sum(tensor.parameters for tensor in self.model.tensors_of(block)) // layers
        return 2 * self.named(f"P_{block.layers[0] if block.layers else 0}", numel, Message("parameters of a block"))

    def part(self, what: Message, size: int) -> HeldPart:
        step = self.symbols.step(what, size)
        return HeldPart(what=what, bytes=step.result, formula=str(step.formula), values=str(step.values), step=step)

    def phase(self, draft: Draft) -> QuantizingPhase:
        gpu, ram = (
            tuple(self.part(what, size) for what, size in parts.items() if size) for parts in (draft.gpu, draft.ram)
        )
        return QuantizingPhase(
            name=draft.name,
            gpu=gpu,
            ram=ram,
            gpu_bytes=sum(part.bytes for part in gpu),
            ram_bytes=sum(part.bytes for part in ram),
        )

    def legend(self) -> dict[str, tuple[Any, Any]]:
        """Meanings of the symbols in the formulas."""
        return self.symbols.occurring()
