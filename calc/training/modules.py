"""Parts that all modules are made of, as transformers computes them: matrices with their adapters, products of heads,
norms; and sequence parallelism between them."""

from dataclasses import dataclass, replace
from functools import cached_property

from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.conventions import NormKind
from calc.training.operations import Operations
from calc.training.tape import CountedBy, Gradients, Name, Tracked, scoped
from calc.training.workload import Loss, Objective


@dataclass(frozen=True)
class Rotary:
    """Tables of cosines and sines, and how many channels of a head they turn."""

    cosines: Tracked
    sines: Tracked
    channels: int


@dataclass(frozen=True)
class Adapters:
    """LoRA as PEFT adds it: on which matrices, of which rank, in which type."""

    on: frozenset[str]  # names of matrices
    rank: int
    width: int  # bytes of an element
    dropout: bool
    experts: bool  # on the stacks of routed experts and the router too


@dataclass(frozen=True)
class Settings:
    """All besides the model that decides what a pass holds."""

    matrix_width: int  # bytes of an element of a matrix
    expert_width: int  # of the matrices of routed experts
    rest_width: int  # of norms, embedding and head
    compute_width: int  # of what matrices multiply
    autocast: bool
    trains_base: bool  # the model's own weights
    adapters: Adapters | None
    quantized: bool  # matrices are dequantized for every product
    saves_inputs: bool  # these products keep what they read
    inputs_need_gradients: bool  # what the embedding gives, though it is not trained
    flash: bool
    repeated_keys: bool  # keys and values for every query head before the kernel
    fused: bool  # norms and gates in one kernel each
    recompute_scores: bool  # attention runs again on the way back
    checkpoints: bool  # whole layers do
    reentrant: bool
    loss: Loss
    loss_chunks: int
    keep_outputs: bool  # the training loop holds the logits
    tensor_parallel: bool  # by torch's DTensor, with its parallel loss
    gathers: bool  # and between matrices each rank has its part of the tokens (sequence parallel)
    keeps_gradients: bool  # False: they are added into what is held elsewhere, or used at once
    ep: int  # ranks that share the routed experts
    slices: int  # parts of each, which take copies of a rank's own tokens; 0: copies of those of all ranks
    single: bool  # one sequence: a reshape of its heads is a view, where it is a copy for several
    records: bool = True  # False: under torch.no_grad, which saves nothing
    reads_table: bool = True  # False: the head has a weight of its own, and the embedding's has no second gradient

    # What a part of the model reads of them, all else as in any step: where steps differ in nothing of it, they share
    # what was traced of that part

    @cached_property
    def of_layers(self) -> "Settings":
        """Settings of a layer, which knows nothing of the loss."""
        return replace(
            self,
            inputs_need_gradients=False,
            loss="whole",
            loss_chunks=1,
            keep_outputs=False,
            tensor_parallel=False,
            reads_table=True,
        )

    @cached_property
    def of_head(self) -> "Settings":
        """Settings of the head, which knows nothing of attention and experts."""
        return replace(
            self,
            inputs_need_gradients=False,
            expert_width=self.rest_width,
            flash=True,
            repeated_keys=False,
            recompute_scores=False,
            reentrant=False,
            ep=1,
            slices=0,
        )

    @cached_property
    def of_norm(self) -> "Settings":
        """Settings of the last norm and the embedding, which know nothing of either."""
        return replace(self.of_head.of_layers, checkpoints=False)


class Modules(Operations):
    """A tape with the modules of one model."""

    objective: Objective  # where a trainer computes the loss
    block: Block  # where a layer runs
    rotary: Rotary | None = None  # its tables

    def __init__(self, model: Architecture, settings: Settings) -> None:
        super().__init__(settings.compute_width, autocast=settings.autocast)
        self.model, self.kernels, self.settings = model, model.kernels, settings
        self.keeps_gradients, self.recording = settings.keeps_gradients, settings.records

    def parameter(self, size: int, width: int | None = None, *, uses: int = 1) -> Tracked:
        """A weight of the model itself, by default in the type of norms, embedding and head."""
        return self.weight(size, width or self.settings.rest_width, trained=self.settings.trains_base, uses=uses)

    def packs(self, *parts: str) -> bool:
        """Whether one matrix makes all of these."""
        return any(set(parts) <= set(packed) for packed in self.model.packed_modules)

    def parts(self, x: Tracked, *columns: int) -> list[Tracked]:
        if self.kernels.slices:
            return [self.slice(x, count) for count in columns]
        return self.split(x, *columns)

    @scoped
    def bmm(self, a: Tracked, b: Tracked, columns: int, unit: CountedBy, name: Name) -> Tracked:
        """torch.matmul of heads: several sequences that do not lie head by head are copied so first."""
        if self.autocast:
            a, b = (self.local(self.cast(x, self.width, "inputs of attention in 16 bits")) for x in (a, b))
        out = self.product(self.stacked(a), self.stacked(b), columns, unit, name)
        if self.settings.single:
            return out

        def backward(gradient: Tracked) -> Gradients:
            return [gradient if gradient.by_heads else self.gradient(gradient, by_heads=True)]

        return self.record(out.view(node=out.node, by_heads=True), [out], backward)

    def stacked(self, x: Tracked) -> Tracked:
        """The heads of all sequences one after another."""
        if x.by_heads or self.settings.single:
            return x
        return self.record(self.new("heads in order", x.columns, x.width, x.unit, by_heads=True), [x], self.pass_on)

    # Matrices

    @scoped
    def matrix(
        self, x: Tracked, name: str, columns: int, label: Name, *, bias: bool = False, unit: CountedBy = CountedBy.TOKEN
    ) -> Tracked:
        """A matrix of the model by its local name, and its adapter where it has one."""
        if self.settings.gathers and unit == CountedBy.STREAM:
            return self.scattered(self.matrix(x, name, columns, label, bias=bias), label)
        settings, adapters = self.settings, self.settings.adapters
        size = x.columns * columns + (columns if bias else 0)
        weight = self.parameter(size, settings.matrix_width)
        if settings.quantized:
            result = self.dequantized(x, weight, columns, label, unit)
        else:
            result = self.linear(x, weight, columns, label, unit)
        if adapters is None or name not in adapters.on:
            return result
        width = result.width
        if not (settings.quantized and self.autocast):  # peft.tuners.lora.bnb leaves autocast to cast it
            x = self.recast(x, adapters.width, "inputs of adapters in 32 bits")
        if settings.quantized:
            result = self.copied(result, label)  # result.clone()
        with self.alive(result):
            result = self.add(result, self.adapter(x, adapters, columns, label, unit), label)
        return self.cast(self.local(result), width, label)

    # Sequence parallel, arXiv:2205.05198 section 4.2.2. DTensor keeps what it has gathered until the backward pass, and
    # copies what it gathers or scatters, for tokens do not come first (torch 2.13, distributed/_functional_collectives)

    def gathered(self, x: Tracked) -> Tracked:
        """g: the tokens of all ranks; going back, a reduce-scatter."""
        if not self.settings.gathers or x.unit != CountedBy.STREAM:
            return x
        by_ranks = self.new("states of all tokens", x.columns, x.width, CountedBy.TOKEN)
        out = self.new_like("states of all tokens", by_ranks, by_ranks)
        return self.record(out, [x], lambda gradient: [self.gradient(x, self.gradient_like(gradient))])

    def scattered(self, x: Tracked, name: Name) -> Tracked:
        """ḡ: the sum over ranks, each with its part of the tokens; going back, all tokens are gathered."""
        by_ranks = self.new_like(name, x)
        out = self.new(name, x.columns, x.width, CountedBy.STREAM, by_ranks)
        return self.record(out, [x], lambda gradient: [self.gradient_like(self.gradient(x))])

    @scoped
    def dequantized(self, x: Tracked, weight: Tracked, columns: int, label: Name, unit: CountedBy) -> Tracked:
        """A matrix of 4 or 8 bits, as it is multiplied: in 16 bits, before and again on the way back (bitsandbytes
        `MatMul4Bit`)."""
        before, x = x.width, self.local(self.cast(x, self.width, "inputs of matrices in 16 bits"))
        matrix = "dequantized matrix", weight.columns, self.width, CountedBy.ONCE
        out = self.new(label, columns, self.width, unit, self.new(*matrix))

        def backward(gradient: Tracked) -> Gradients:
            whole = self.new(*matrix)
            return [self.gradient(x, whole) if x.node else None]

        return self.cast(self.record(out, [x], backward, [x.storage] * self.settings.saves_inputs), before, label)

    @scoped
    def adapter(self, x: Tracked, adapters: Adapters, columns: int, label: Name, unit: CountedBy) -> Tracked:
        """B·A·x times a scale, computed in the type of the adapter (`peft.tuners.lora.layer.Linear`)."""
        width, r = adapters.width, adapters.rank
        down = self.weight(r * x.columns, width, trained=True)
        up = self.weight(r * columns, width, trained=True)
        dropped = self.dropout(x, "inputs of adapters after dropout") if adapters.dropout else x
        narrow = self.local(self.linear(dropped, down, r, "inner states of adapters"))
        return self.scale(self.linear(narrow, up, columns, label, unit), label)

    # Norms

    @scoped
    def norm(self, x: Tracked, kind: NormKind, label: Name, *, heads: int = 1) -> Tracked:
        """A norm over all columns, or over those of each of several heads."""
        size = x.columns // heads
        if kind == "layer":
            return self.layer_norm(x, [self.parameter(2 * size)], heads, label)
        if kind == "rms_alone":
            return self.unweighted_norm(x, label, heads=heads)
        wide, normed = ("{tensor} in 32 bits, for a norm", "states"), "normed states before the weight"
        if kind == "none":
            return self.cast(self.layer_norm(self.cast(x, 4, wide), [], heads, normed), x.width, label)
        weight = self.parameter(size)
        if self.settings.fused:
            return self.fused_norm(x, [weight], heads, label)
        before, states = x.width, self.cast(x, 4, wide)
        if states is not x:
            self.free(x)
        if kind == "centred":  # computed twice, as the class writes it
            label_less = "states less their mean"
            with self.alive(states):
                less = self.centred(states, heads, label_less)
                y = self.multiply(less, self.inverse_rms(self.centred(states, heads, label_less), heads), normed)
        else:
            y = self.multiply(states, self.inverse_rms(states, heads), normed)
        if kind == "rms":
            return self.multiply(weight, self.cast(self.local(y), before, normed), label)
        return self.cast(self.local(self.multiply(weight, y, label)), before, label)

    @scoped
    def unweighted_norm(self, x: Tracked, label: Name, *, heads: int = 1) -> Tracked:
        """RMSNorm in fp32 without a weight."""
        wide = self.local(self.cast(x, 4, ("{tensor} in 32 bits, for a norm", self.name_of(x))))
        return self.cast(self.multiply(wide, self.inverse_rms(wide, heads), label), x.width, label)
