"""One micro-batch while it is written down: what each operation makes of what, and where.

Sizes are those of fp32, which llama.cpp computes in (llama-graph.cpp of llama.cpp 0c1e57098).
"""

from calc.budget import spend
from calc.errors import ConfigError, Message
from calc.serving.engines.llamacpp import habits
from calc.serving.engines.llamacpp.context import ContextSizes, widest_value
from calc.serving.engines.llamacpp.placement import HOST, ModelFile, Placement
from calc.serving.engines.llamacpp.tape import PassStep, PassTensor

TAKEN_OVER = 32
"""Rows from which a GPU computes what has its weights on the host (ggml-cuda.cu: offload_op)."""


class MicroBatch:
    """The steps so far. Operations stand where llama.cpp's graph has them, which adds what nothing needs yet later."""

    def __init__(self, file: ModelFile, placement: Placement, context: ContextSizes, capability: int | None) -> None:
        self.file, self.placement, self.context, self.capability = file, placement, context, capability
        self.model = file.architecture
        rules = self.model.gguf
        self.kind = (rules.with_experts if self.model.experts else None) or rules.architecture or "llama"
        self.widest_value = widest_value(self.model)
        self.host = placement.devices
        self.on_cuda = capability is not None and self.host > 0
        self.layer, self.rows = 0, context.tokens
        self.steps: list[PassStep] = []
        self.inputs: dict[str, PassTensor] = {}
        self.needed = 0
        """Steps that the graph surely has before whatever comes next."""

    def device(self, place: int) -> int:
        return self.host if place == HOST else place

    @property
    def cache_device(self) -> int:
        return self.device(self.placement.layers[self.layer] if self.context.offload_cache else HOST)

    def has(self, name: str) -> bool:
        return name in self.file.layers[self.layer]

    def width(self, name: str) -> int:
        """Rows of a matrix of this layer. Raises ConfigError where the file has none of that name."""
        if not self.has(name):
            sentence = Message("llama.cpp reads {name}, which a file of this model does not have.", name=name)
            raise ConfigError(sentence, "engine")
        return self.file.layers[self.layer][name].ne[-1]

    def weight(self, name: str) -> PassTensor:
        """A weight of this layer, or one outside the layers. Raises ConfigError where the file has neither."""
        outside = self.file.outside.get(name)
        if outside is not None:
            place = HOST if name == "token_embd_norm.weight" else self.placement.output
            if name == "rope_freqs.weight":
                place = self.placement.layers[self.layer]
            return PassTensor(name, outside.nbytes, self.device(place), fixed=True, weight=True)
        self.width(name)
        place = self.placement.of_weight(name, self.layer)
        return PassTensor(name, self.file.layers[self.layer][name].nbytes, self.device(place), fixed=True, weight=True)

    def input(self, name: str, nbytes: int) -> PassTensor:
        """What the host writes before the pass, once for all layers."""
        return self.inputs.setdefault(name, PassTensor(name, nbytes, self.host))

    def add(
        self,
        name: str,
        elements: int,
        *reads: PassTensor,
        by: str | None = None,
        over: int = 0,
        on: int | None = None,
        rows: int | None = None,
    ) -> PassTensor:
        """So many elements, which may be written over one of the first `over` sources. What is made `by` a weight is
        made where that lies; a large operation is the first GPU's even if that is on the host."""
        spend()
        made = PassTensor(name, 4 * elements)
        if by is not None:
            weight = self.weight(by)
            taken_over = self.on_cuda and weight.device == self.host and (rows or self.rows) >= TAKEN_OVER
            on, reads = 0 if taken_over else weight.device, (*reads, weight) if over else (weight, *reads)
        self.steps.append(PassStep(on, made, reads, reads[:over]))
        return made

    def same(self, name: str, x: PassTensor, *others: PassTensor, by: str | None = None, over: int = 1) -> PassTensor:
        """As many elements as x has."""
        return self.add(name, x.nbytes // 4, x, *others, by=by, over=over)

    def write(self, on: int | None, *reads: PassTensor) -> None:
        """Into what is there already."""
        self.steps.append(PassStep(on, None, reads))
        self.needed = len(self.steps)

    def on_host(self) -> None:
        """Let the host compute the last operation, which CUDA has no kernel for."""
        if self.on_cuda:
            self.steps[-1].device = self.host

    def view(self, x: PassTensor, elements: int | None = None) -> PassTensor:
        """A part of a tensor, or all of it in another shape, which nothing is written over."""
        return PassTensor(x.name, x.nbytes if elements is None else 4 * elements, whole=x.holder)

    def project(self, x: PassTensor, weight: str, name: str) -> PassTensor:
        """Through a matrix of this layer, with its bias."""
        made = self.add(name, self.rows * self.width(f"{weight}.weight"), x, by=f"{weight}.weight")
        return self.biased(made, weight)

    def biased(self, x: PassTensor, weight: str) -> PassTensor:
        return self.same(x.name, x, by=f"{weight}.bias") if self.has(f"{weight}.bias") else x

    def norm(self, x: PassTensor, weight: str) -> PassTensor:
        """RMSNorm is written over what nothing else reads, LayerNorm is not."""
        weighted = self.has(f"{weight}.weight")
        mean = self.has(f"{weight}.bias") or self.kind in habits.LAYER_NORM or not weighted
        made = self.same("norm", x, over=not mean)
        return self.biased(self.same("norm", made, by=f"{weight}.weight"), weight) if weighted else made

    def wanted(self, x: PassTensor) -> PassTensor:
        """The rows of the tokens whose logits are wanted."""
        rows = self.context.outputs
        elements = x.nbytes // 4 // self.context.tokens * rows
        return self.add("wanted rows", elements, x, self.input("places of wanted rows", 4 * rows))

    def summed(self, first: PassTensor, second: PassTensor, name: str = "state") -> PassTensor:
        return self.same(name, first, second, over=2)
