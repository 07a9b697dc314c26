"""One micro-batch while it is written down: what each operation makes of what, and where.

Sizes are those of fp32, which llama.cpp computes in (llama-graph.cpp of llama.cpp 0c1e57098).
"""

from calc.errors import ConfigError, Message
from calc.model.feedforward import MoE
from calc.serving.engines.llamacpp.context import ContextSizes, widest_value
from calc.serving.engines.llamacpp.file import FileTensor, ModelFile
from calc.serving.engines.llamacpp.habits import LAYER_NORM
from calc.serving.engines.llamacpp.placement import HOST, Placement
from calc.serving.engines.llamacpp.tape import PassStep, PassTensor

TAKEN_OVER = 32
"""Rows from which a GPU computes what has its weights on the host (ggml-cuda.cu: offload_op)."""


class MicroBatch:
    """The steps so far. Operations stand where llama.cpp's graph has them, which adds what nothing needs yet later."""

    def __init__(self, file: ModelFile, placement: Placement, context: ContextSizes, capability: int | None) -> None:
        self.file, self.placement, self.context, self.capability = file, placement, context, capability
        self.model = file.architecture
        experts = any(isinstance(block.ffn, MoE) for block in self.model.blocks)
        rules = self.model.gguf
        self.kind = (rules.with_experts if experts else None) or rules.architecture or "llama"
        self.widest_value = widest_value(self.model)
        self.host = placement.devices
        self.on_cuda = capability is not None and self.host > 0
        self.layer, self.rows = 0, context.tokens
        self.steps: list[PassStep] = []
        self.inputs: dict[str, PassTensor] = {}
        self.fused: tuple[PassTensor, ...] = ()
        """What a kernel that computes several operations keeps until the next one."""
        self.needed = 0
        """Steps that the graph surely has before whatever comes next."""

    def device(self, place: int) -> int:
        return self.host if place == HOST else place

    @property
    def cache_device(self) -> int:
        return self.device(self.placement.layers[self.layer] if self.context.offload_cache else HOST)

    def has(self, name: str) -> bool:
        return name in self.file.layers[self.layer]

    def input(self, name: str, nbytes: int) -> PassTensor:
        """What the host writes before the pass, once for all layers."""
        return self.inputs.setdefault(name, PassTensor(name, nbytes, self.host))

    def add(self, name: str, elements: int, *reads: PassTensor, over: int = 0, on: int | None = None) -> PassTensor:
        """So many elements, which may be written over one of the first `over` sources."""
        made = PassTensor(name, 4 * elements)
        self.steps.append(PassStep(on, made, reads, reads[:over]))
        if self.fused:
            fused, self.fused = self.fused, ()
            self.write(None, *fused)
        return made

    def same(self, name: str, x: PassTensor, *others: PassTensor, over: int = 1) -> PassTensor:
        """As many as x has."""
        return self.add(name, x.nbytes // 4, x, *others, over=over)

    def write(self, on: int | None, *reads: PassTensor) -> None:
        """Into what is there already."""
        self.steps.append(PassStep(on, None, reads))
        self.needed = len(self.steps)

    def view(self, x: PassTensor, elements: int | None = None) -> PassTensor:
        """A part of a tensor, or all of it in another shape, which nothing is written over."""
        return PassTensor(x.name, x.nbytes if elements is None else 4 * elements, whole=x.holder)

    def own(self, weight: str) -> PassTensor:
        """A weight of this layer. Raises ConfigError where the file has none of that name."""
        return self.stored(self.of_layer(weight), self.placement.of_weight(weight, self.layer))

    def of_layer(self, weight: str) -> FileTensor:
        if not self.has(weight):
            sentence = Message("llama.cpp reads {name}, which a file of this model does not have.", name=weight)
            raise ConfigError(sentence, "engine")
        return self.file.layers[self.layer][weight]

    def stored(self, weight: FileTensor, place: int) -> PassTensor:
        return PassTensor(weight.name, weight.nbytes, self.device(place), fixed=True, weight=True)

    def weighted(
        self, stored: PassTensor, name: str, elements: int, *reads: PassTensor, over: int = 0, rows: int | None = None
    ) -> PassTensor:
        """By a weight, where it lies; a large operation is the first GPU's even if that is on the host."""
        taken_over = self.on_cuda and stored.device == self.host and (rows or self.rows) >= TAKEN_OVER
        sources = (*reads, stored) if over else (stored, *reads)
        return self.add(name, elements, *sources, over=over, on=0 if taken_over else stored.device)

    def by(
        self, weight: str, name: str, elements: int, *reads: PassTensor, over: int = 0, rows: int | None = None
    ) -> PassTensor:
        """By a weight of this layer."""
        return self.weighted(self.own(weight), name, elements, *reads, over=over, rows=rows)

    def outer(self, weight: str, name: str, elements: int, x: PassTensor, over: int = 0) -> PassTensor:
        """By a weight of the output."""
        stored = self.stored(self.file.outside[weight], self.placement.output)
        return self.weighted(stored, name, elements, x, over=over)

    def project(self, x: PassTensor, weight: str, name: str) -> PassTensor:
        """Through a matrix of this layer, with its bias."""
        width = self.of_layer(f"{weight}.weight").ne[1]
        return self.biased(self.by(f"{weight}.weight", name, self.rows * width, x), weight)

    def biased(self, x: PassTensor, weight: str) -> PassTensor:
        return self.by(f"{weight}.bias", x.name, x.nbytes // 4, x, over=1) if self.has(f"{weight}.bias") else x

    def norm(self, x: PassTensor, weight: str) -> PassTensor:
        """RMSNorm is written over what nothing else reads, LayerNorm is not."""
        weighted = self.has(f"{weight}.weight")
        mean = self.has(f"{weight}.bias") or self.kind in LAYER_NORM or not weighted
        made = self.same("norm", x, over=not mean)
        return (
            self.biased(self.by(f"{weight}.weight", "norm", x.nbytes // 4, made, over=1), weight) if weighted else made
        )

    def wanted(self, x: PassTensor) -> PassTensor:
        """The rows of the tokens whose logits are wanted."""
        rows = self.context.outputs
        elements = x.nbytes // 4 // self.context.tokens * rows
        return self.add("wanted rows", elements, x, self.input("places of wanted rows", 4 * rows))

    def summed(self, first: PassTensor, second: PassTensor, name: str = "state") -> PassTensor:
        return self.same(name, first, second, over=2)
