"""A GGUF file as it is loaded: each weight with its shape and type, by layer.

Source: llama-model.cpp (llama_model_base::load_tensors), llama.cpp 0c1e57098.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from threading import Lock
from types import MappingProxyType
from typing import Any, TypeVar

from calc.formats.ggml import TYPES
from calc.formats.precision import Precision
from calc.formats.stored import Piece, stored_gguf
from calc.model.architecture import Architecture

BLOCKS = {kind.name.lower(): (kind.block, kind.bytes) for kind in TYPES.values()}
"""Weights and bytes of a block of each type."""
MOST_ANSWERS = 2048
"""Answers that a file remembers: a plan asks about some dozens of layouts of a model, a sweep about some hundreds, in
several contexts."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileTensor:
    """One tensor of the file, sides as ggml counts them: the innermost first."""

    name: str
    ne: tuple[int, ...]
    type: str

    @property
    def elements(self) -> int:
        return prod(self.ne)

    @property
    def nbytes(self) -> int:
        block, size = BLOCKS[self.type]
        return prod(self.ne) // block * size


def layers_of(architecture: Architecture, *, predicts: bool) -> int:
    """Layers that are loaded: those for multi-token prediction only where they are asked for (`load_mtp`)."""
    return architecture.num_layers + (len(architecture.prediction) if predicts else 0)


@dataclass(frozen=True, eq=False)
class ModelFile:
    """The weights of a model by name; a vision encoder has a file of its own."""

    architecture: Architecture
    pieces: list[Piece]
    """All tensors that are stored, with their formats."""
    outside: Mapping[str, FileTensor]
    """Weights outside the layers, by name."""
    layers: tuple[Mapping[str, FileTensor], ...]
    """Weights of each layer, by their name within it; layers with the same ones share the mapping."""
    answers: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    """Answers of `once`, by question; they die with the file."""
    changing: Lock = field(default_factory=Lock, repr=False)
    """Held while an answer comes or goes: threads share a file."""

    def once(self, question: Hashable, answer: Callable[[], T]) -> T:
        """An answer about this file, worked out once; the one that is asked least goes where there are too many."""
        with self.changing:
            known: tuple[T] | None = self.answers.pop(question, None)
            if known is not None:
                self.answers[question] = known
        if known is None:
            known = (answer(),)
            with self.changing:
                if len(self.answers) >= MOST_ANSWERS:
                    del self.answers[next(iter(self.answers))]
                self.answers[question] = known
        return known[0]


@lru_cache(maxsize=8)
def model_file(architecture: Architecture, precision: Precision, *, predicts: bool = False) -> ModelFile:
    """The file of a model; one model is asked about many times. `predicts`: with the layers for multi-token prediction,
    which stand behind the last."""
    outside, within = dict[str, FileTensor](), dict[tuple[int, ...], list[FileTensor]]()
    pieces = stored_gguf(architecture, precision)
    for tensor, form, *_ in pieces:
        if tensor.excluded_as == "vision" or (tensor.excluded_as == "multi_token_prediction" and not predicts):
            continue
        stored = FileTensor(tensor.name.removeprefix("blk.{layer}."), tensor.shape[::-1], form.name.lower())
        if tensor.layers:
            within.setdefault(tensor.layers, []).append(stored)
        else:
            outside[tensor.name] = stored
    kinds: list[tuple[int, ...]] = [()] * layers_of(architecture, predicts=predicts)
    for number, layers in enumerate(within):
        for layer in layers:
            kinds[layer] += (number,)
    parts = list(within.values())
    shared = {
        kind: MappingProxyType({weight.name: weight for number in kind for weight in parts[number]})
        for kind in set(kinds)
    }
    return ModelFile(architecture, pieces, MappingProxyType(outside), tuple(map(shared.__getitem__, kinds)))
