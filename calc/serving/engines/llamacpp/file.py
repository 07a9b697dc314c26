"""A GGUF file as it is loaded: each weight with its shape and type, by layer."""

from dataclasses import dataclass
from math import prod

from calc.formats import Precision
from calc.formats.gguf_tensors import gguf_tensors
from calc.formats.gguf_types import Counted, GGUFTypes
from calc.model.architecture import Architecture
from calc.serving.engines.llamacpp.graph import BLOCKS

SKIPPED = frozenset({"multi_token_prediction", "vision"})
"""Kept out of memory unless a draft or a projector is asked for."""


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


class ModelFile:
    """The weights of a model outside the layers, and of each layer, by their names."""

    def __init__(self, architecture: Architecture, precision: Precision) -> None:
        self.architecture = architecture
        tensors = gguf_tensors(architecture)
        types = GGUFTypes(Counted.of(architecture, tensors), precision)
        self.outside: dict[str, FileTensor] = {}
        self.layers: list[dict[str, FileTensor]] = [{} for _ in range(architecture.num_layers)]
        for tensor in tensors:
            if tensor.apart in SKIPPED:
                continue
            ne = tensor.shape[::-1]
            for form, layers in types.formats(tensor).items():
                kind = (form.ggml or "").lower()
                if not layers:
                    self.outside[tensor.name] = FileTensor(tensor.name, ne, kind)
                for layer in layers:
                    name = tensor.name.removeprefix("blk.{layer}.")
                    self.layers[layer][name] = FileTensor(name, ne, kind)
