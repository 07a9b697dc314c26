"""The parts that every graph is made of: weights, inputs and cache as tensors, norms and projections."""

from calc.errors import ConfigError, Message
from calc.model.block import Block
from calc.model.feedforward import MoE
from calc.model.mixers import Mixer
from calc.serving.engines.llamacpp.context import CacheTensor, ContextSizes, cache_tensors, widest_value
from calc.serving.engines.llamacpp.file import FileTensor, ModelFile
from calc.serving.engines.llamacpp.graph import Graph, GraphNode, like, matmul
from calc.serving.engines.llamacpp.habits import LAYER_NORM
from calc.serving.engines.llamacpp.placement import HOST, Placement


class Building:
    """A graph while it is built, layer by layer."""

    def __init__(self, file: ModelFile, placement: Placement, context: ContextSizes) -> None:
        self.file, self.placement, self.context = file, placement, context
        self.model = file.architecture
        experts = any(isinstance(block.ffn, MoE) for block in self.model.blocks)
        rules = self.model.gguf
        self.kind = (rules.with_experts if experts else None) or rules.architecture or "llama"
        self.graph = Graph()
        self.layer = 0
        self.widest_value = widest_value(self.model)
        self._weights: dict[tuple[int, str], GraphNode] = {}
        self._inputs: dict[str, GraphNode] = {}
        self._cache: dict[tuple[int, str], GraphNode] = {}
        self.views: dict[str, GraphNode] = {}

    # leaves

    def home(self, device: int) -> int:
        """The planner's number of a device; the host is its last."""
        return self.placement.devices if device == HOST else device

    def has(self, name: str) -> bool:
        return name in self.file.layers[self.layer]

    def weight(self, name: str) -> GraphNode:
        """A weight of this layer. Raises ConfigError where the file has none of that name."""
        if name not in self.file.layers[self.layer]:
            raise ConfigError(
                Message("llama.cpp reads {name}, which a file of this model does not have.", name=name), "engine"
            )
        device = self.placement.of_weight(name, self.layer)
        return self._held(self.file.layers[self.layer][name], (self.layer, name), device)

    def outer(self, name: str, device: int) -> GraphNode:
        """A weight outside the layers, on a device."""
        return self._held(self.file.outside[name], (-2 - device, name), device)

    def _held(self, weight: FileTensor, key: tuple[int, str], device: int) -> GraphNode:
        if key not in self._weights:
            self._weights[key] = GraphNode(
                "none", weight.type, weight.ne, name=weight.name, home=self.home(device), is_weight=True
            )
        return self._weights[key]

    def input(self, name: str, kind: str, *ne: int) -> GraphNode:
        """What is written before a pass; one tensor for all layers."""
        if name not in self._inputs:
            self._inputs[name] = GraphNode("none", kind, ne, name=name, is_input=True)
        return self._inputs[name]

    def positions(self, each: int = 1) -> GraphNode:
        return self.input("positions", "i32", each * self.context.tokens)

    def cached(self, mixer: Mixer) -> dict[str, GraphNode]:
        """The cache of this layer: keys and values [width, cells, streams], states [width, sequences]."""
        device = self.placement.layers[self.layer] if self.context.offload_cache else HOST
        return {
            tensor.name: self._cached(tensor, device)
            for tensor in cache_tensors(self.model, mixer, self.context, self.widest_value)
        }

    def _cached(self, tensor: CacheTensor, device: int) -> GraphNode:
        key = self.layer, tensor.name
        if key not in self._cache:
            streams = self.context.streams if tensor.name in "kv" else 1
            ne = (tensor.width, tensor.rows // streams, streams)
            self._cache[key] = GraphNode("none", tensor.type, ne, name=f"cache {tensor.name}", home=self.home(device))
        return self._cache[key]

    # operations

    def bare_norm(self, x: GraphNode, *, mean: bool = False) -> GraphNode:
        return like(x, "norm" if mean else "rms_norm", name="norm")

    def norm(self, x: GraphNode, name: str, kind: str = "rms") -> GraphNode:
        """A norm of this layer with its weight and bias."""
        normed = like(self.bare_norm(x, mean=kind == "layer"), "mul", self.weight(f"{name}.weight"), name=name)
        return like(normed, "add", self.weight(f"{name}.bias"), name=name) if self.has(f"{name}.bias") else normed

    def layer_norm(self, x: GraphNode, name: str, block: Block) -> GraphNode:
        """A norm of the state; families without weights in it have none in the file."""
        if not self.has(f"{name}.weight"):
            return self.bare_norm(x, mean=True)
        return self.norm(x, name, self.norm_kind(block))

    def norm_kind(self, block: Block) -> str:
        return "layer" if block.norm == "layer" or self.kind in LAYER_NORM else "rms"

    def project(self, x: GraphNode, name: str, label: str = "") -> GraphNode:
        """Through a matrix of this layer, with its bias."""
        made = matmul(self.weight(f"{name}.weight"), x, name=label or name)
        if self.has(f"{name}.bias"):
            return like(made, "add", self.weight(f"{name}.bias"), name=label or name)
        return made
