"""A GGUF file as it is loaded: each weight with its shape and type, by layer."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from types import MappingProxyType

from calc.formats import Precision
from calc.formats.ggml import TYPES
from calc.formats.gguf_tensors import gguf_tensors
from calc.formats.gguf_types import Counted, GGUFTypes
from calc.model.architecture import Architecture

BLOCKS = {kind.name.lower(): (kind.block, kind.bytes) for kind in TYPES.values()}
"""Weights and bytes of a block of each type."""


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
    outside: Mapping[str, FileTensor]
    """What stands in no layer."""
    layers: tuple[Mapping[str, FileTensor], ...]
    """What stands in each layer."""


@lru_cache(maxsize=8)
def model_file(architecture: Architecture, precision: Precision, *, predicts: bool = False) -> ModelFile:
    """The file of a model; one model is asked about many times. `predicts`: with the layers for multi-token prediction,
    which stand behind the last."""
    tensors = gguf_tensors(architecture)
    types = GGUFTypes(Counted.of(architecture, tensors), precision)
    outside: dict[str, FileTensor] = {}
    within: list[dict[str, FileTensor]] = [{} for _ in range(layers_of(architecture, predicts=predicts))]
    for tensor in tensors:
        if tensor.excluded_as == "vision" or (tensor.excluded_as == "multi_token_prediction" and not predicts):
            continue
        ne = tensor.shape[::-1]
        for form, layers in types.formats(tensor).items():
            kind = form.name.lower()
            if not layers:
                outside[tensor.name] = FileTensor(tensor.name, ne, kind)
            for layer in layers:
                name = tensor.name.removeprefix("blk.{layer}.")
                within[layer][name] = FileTensor(name, ne, kind)
    return ModelFile(architecture, MappingProxyType(outside), tuple(map(MappingProxyType, within)))
