"""One forward pass: how many tokens go through the layers, and what each of them looks back on.

Figures may be integers or arrays of them; `calc.time.time_paper` puts symbols in their place.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from calc.time.arrays import lesser


def visible(tokens: Any, window: int | None) -> Any:
    """Query-key pairs of a sequence from its beginning: token i sees itself and those before, at most `window`."""
    if window is None:
        return tokens * (tokens + 1) // 2
    inside = lesser(tokens, window)
    return inside * (inside + 1) // 2 + (tokens - inside) * window


@dataclass(frozen=True, slots=True)
class PassPart:
    """Equal sequences of a pass: each brings `new` tokens behind `past` ones that are cached."""

    sequences: Any
    new: Any
    past: Any = 0
    decodes: bool = False  # latent attention then works on the latents themselves, DeepSeek-V2 section 2.1.2

    @property
    def tokens(self) -> Any:
        return self.sequences * self.new

    def pairs(self, window: int | None = None) -> Any:
        """Query-key pairs that causal attention computes."""
        return self.sequences * (visible(self.past + self.new, window) - visible(self.past, window))

    def context(self, window: int | None = None) -> Any:
        """Tokens whose keys and values are read, of all sequences."""
        length = self.past + self.new
        return self.sequences * (length if window is None else lesser(length, window))


@dataclass(frozen=True, slots=True)
class Whole(PassPart):
    """The pass where every token sees every other: how PyTorch's FlopCounterMode counts attention."""

    def pairs(self, window: int | None = None) -> Any:
        return self.sequences * self.new * (self.past + self.new)


@dataclass(frozen=True)
class Forward:
    """Sequences of one pass: those that decode, those that are prefilled, or both."""

    parts: tuple[PassPart, ...]
    logits: Any  # rows that the head computes

    @cached_property
    def tokens(self) -> Any:
        return self.sum(lambda part: part.tokens)

    @property
    def sequences(self) -> Any:
        return self.sum(lambda part: part.sequences)

    def sum(self, of: Callable[[PassPart], Any]) -> Any:
        return sum(of(part) for part in self.parts)


def decode(batch: Any, context: Any, new: Any = 1) -> Forward:
    """One step of `batch` sequences that are `context` tokens long, the new ones included."""
    return Forward((PassPart(batch, new, context - new, decodes=True),), logits=batch * new)


def prefill(batch: Any, prompt: Any, past: Any = 0) -> Forward:
    """A prompt, or a chunk of it behind `past` tokens; the head computes the last row of each."""
    return Forward((PassPart(batch, prompt, past),), logits=batch)


def mixed(*passes: Forward) -> Forward:
    """One step that does several at once: chunked prefill with decode."""
    return Forward(
        tuple(part for forward in passes for part in forward.parts), sum(forward.logits for forward in passes)
    )
