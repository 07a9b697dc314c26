"""The device that holds each weight of a GGUF file.

Source: llama-model.cpp (llama_model_base::load_tensors), llama.cpp 0c1e57098.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from calc.budget import spend
from calc.formats.gguf_file import FileTensor, ModelFile
from calc.model.architecture import Architecture
from calc.model.mixers import AttentionMixer
from calc.serving.engines.families import families

HOST = -1
TABLES = ("token_embd", "per_layer_token_embd", "position_embd", "token_embd_norm")
ON_HOST = frozenset({*(f"{name}.weight" for name in TABLES), "token_embd_norm.bias"})
"""Tables that are looked up, and the norm of what is found there, which the host always keeps."""
COPIED = frozenset({"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})
"""Weights that every device has which computes a layer."""
EXPERTS = re.compile(r"ffn_(up|down|gate|gate_up)_(ch|)exps\.")


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
        ends = [end / total for end in accumulate(split)]
        *layers_on, output = [HOST] * (whole - count) + [bisect_right(ends, i / count) for i in range(count)]
        return cls(tuple(layers_on), output, len(split), host_experts, host_pattern)

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
        if self.host_pattern is not None:
            spend()
            if re.search(self.host_pattern, f"blk.{layer}.{name}"):
                return HOST
        return self.layers[layer]

    def firsts(self, file: ModelFile) -> list[int]:
        """The first layer with the same weights in the same places, of each layer."""
        layers = range(len(self.layers))
        marks = layers if self.host_pattern is not None else [layer < self.host_experts for layer in layers]
        kinds, firsts = zip(map(id, file.layers), self.layers, marks, strict=True), dict[Hashable, int]()
        return [firsts.setdefault(kind, layer) for layer, kind in enumerate(kinds)]

    def on_host(self, file: ModelFile) -> list[Hashable]:
        """Weights on the host of each layer, and their types."""
        firsts, weights = self.firsts(file), dict[int, Hashable]()
        for i in set(firsts):
            weights[i] = tuple((name, x.type) for name, x in file.layers[i].items() if self.of_weight(name, i) == HOST)
        return [weights[first] for first in firsts]

    def weights(self, file: ModelFile) -> Iterator[tuple[int, FileTensor, int]]:
        """Every tensor that is held, with its device and its number of layers; some are held twice."""
        tied = "output.weight" not in file.outside
        model = file.architecture
        rotating = [block for block in model.all_blocks if any(reads_factors(model, x) for x in block.attentions)]
        for name, weight in file.outside.items():
            copies = {self.layers[layer] for block in rotating for layer in block.runs_in}
            for device in (HOST,) if name in ON_HOST else copies if name in COPIED else (self.output,):
                yield device, weight, 1
        if tied and (self.output != HOST or model.model_type in families("llamacpp", "output_first")):
            yield self.output, file.outside["token_embd.weight"], 1
        for layer, count in Counter(self.firsts(file)).items():
            for name, weight in file.layers[layer].items():
                yield self.of_weight(name, layer), weight, count


def reads_factors(model: Architecture, mixer: AttentionMixer) -> bool:
    """Whether a layer reads the factors of the rotary frequencies: in Gemma 4 those without a window do."""
    return mixer.window is None or not model.gguf.rope_factors
