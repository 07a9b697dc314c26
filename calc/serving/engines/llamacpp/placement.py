"""A GGUF file as it is loaded, each weight with its shape and type by layer, and which device holds which.

Source: llama-model.cpp (llama_model_base::load_tensors), llama.cpp 0c1e57098.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod
from struct import pack, unpack
from types import MappingProxyType

from calc.budget import spend
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
            stored = FileTensor(tensor.name.removeprefix("blk.{layer}."), ne, form.name.lower())
            if not layers:
                outside[tensor.name] = stored
            for layer in layers:
                within[layer][stored.name] = stored
    return ModelFile(architecture, MappingProxyType(outside), tuple(map(MappingProxyType, within)))


HOST = -1
TABLES = ("token_embd", "per_layer_token_embd", "position_embd", "token_embd_norm")
ON_HOST = frozenset({*(f"{name}.weight" for name in TABLES), "token_embd_norm.bias"})
"""Tables that are looked up, and the norm of what is found there, which the host always keeps."""
COPIED = frozenset({"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})
"""What every device has that computes a layer."""
EXPERTS = re.compile(r"ffn_(up|down|gate|gate_up)_(ch|)exps\.")
OUTPUT_FIRST = frozenset({"gemma4_text", "gemma4_unified_text"})
"""Families that make a tied head before the embedding, which the host then holds twice."""


@dataclass(frozen=True)
class Placement:
    """The device of each layer, and of the output behind the last; -1 is the host."""

    layers: tuple[int, ...]
    output: int
    devices: int
    host_experts: int = 0
    """Layers from the first on whose experts stay on the host."""
    host_pattern: str | None = None
    """Weights whose name it matches stay there too."""

    @classmethod
    def of(
        cls,
        layers: int,
        offloaded: int | None,
        split: Sequence[float],
        host_experts: int = 0,
        host_pattern: str | None = None,
    ) -> "Placement":
        """`offloaded` counts the layers and the output, which go to the devices from the last on; None: all."""
        whole = layers + 1
        count = whole if offloaded is None else min(offloaded, whole)
        if not split or not count:
            return cls((HOST,) * layers, HOST, len(split), host_experts, host_pattern)
        total = sum(split)
        ends = [single(end / total) for end in accumulate(split)]
        first = whole - count
        where = [HOST if i < first else bisect_right(ends, single((i - first) / count)) for i in range(whole)]
        return cls(tuple(where[:-1]), where[-1], len(split), host_experts, host_pattern)

    @property
    def all_on_devices(self) -> bool:
        """Whether no weights of a layer, nor those of the output, stay on the host."""
        return HOST not in (self.output, *self.layers) and not self.host_experts and self.host_pattern is None

    @property
    def places(self) -> tuple[int, ...]:
        """All devices, and the host last."""
        return *range(self.devices), HOST

    def of_weight(self, name: str, layer: int) -> int:
        """The device that holds a weight of a layer."""
        if layer < self.host_experts and EXPERTS.match(name):
            return HOST
        spend()
        if self.host_pattern is not None and re.search(self.host_pattern, f"blk.{layer}.{name}"):
            return HOST
        return self.layers[layer]

    def weights(self, file: ModelFile) -> Iterator[tuple[int, FileTensor]]:
        """Every tensor that is held, with its device; some are held twice."""
        tied = "output.weight" not in file.outside
        rotated = layers_that_rotate(file.architecture)
        for name, weight in file.outside.items():
            if name in ON_HOST:
                yield HOST, weight
            elif name in COPIED:
                for device in dict.fromkeys(self.layers[layer] for layer in rotated):
                    yield device, weight
            else:
                yield self.output, weight
        if tied and (self.output != HOST or file.architecture.model_type in OUTPUT_FIRST):
            yield self.output, file.outside["token_embd.weight"]
        for layer, weights in enumerate(file.layers):
            for name, weight in weights.items():
                yield self.of_weight(name, layer), weight


def layers_that_rotate(model: Architecture) -> list[int]:
    """Layers that read the factors of the rotary frequencies: in Gemma 4 those without a window."""
    windows = model.model_type not in OUTPUT_FIRST
    mixers = ((layer, m) for block in model.all_blocks for m in block.attentions for layer in block.runs_in)
    return sorted(layer for layer, mixer in mixers if windows or mixer.window is None)


def single(number: float) -> float:
    """A number rounded to 32 bits, as llama.cpp compares them."""
    return float(unpack("f", pack("f", number))[0])
