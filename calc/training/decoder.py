"""Decoder layers as transformers' classes compute them in training, with the embedding before them and the last norm
behind; and the parts of a model run on the tape, each kind once."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from calc.errors import ConfigError, Message
from calc.formats import FORMATS
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.compressed_attention import CompressedAttention
from calc.model.linear_attention import GatedDeltaNet, LightningAttention
from calc.model.mixers import Mixer
from calc.model.mla import LatentAttention
from calc.model.recurrent import Mamba, Mamba2, ShortConv
from calc.training.attention import compressed_attention, grouped_query, latent_attention
from calc.training.feedforward import activated, mixture, mlp, parallel_with_dense
from calc.training.layout import TrainingScenario
from calc.training.losses import Head
from calc.training.modules import Adapters, Modules, Rotary, Settings
from calc.training.operations import ACTIVATION_GRADIENTS
from calc.training.recurrent import gated_delta_net, lightning_attention, mamba, mamba2, short_convolution
from calc.training.states import adapted_matrices, adapts_experts, plain_experts, widths
from calc.training.tape import CountedBy, Gradients, Profile, Tracked, profile, scoped
from calc.training.workload import WIDTH, Objective


@scoped
def layer(t: Modules, x: Tracked, inputs: Tracked | None) -> Tracked:
    """One decoder layer: mixer and feed-forward, each with norms before or behind it, added to the stream; `inputs` are
    those of single layers, where there are any."""
    block = t.block
    if block.mixers and block.ffn is not None and (len(block.norms) == 1 or t.kernels.parallel):
        return parallel(t, x)
    if block.mixers:
        residual = t.cast(x, 4, "residual stream") if t.kernels.fp32_stream else x
        x = normed_input(t, t.cast(x, t.settings.rest_width, "states") if t.kernels.fp32_stream else x)
        residual = x if t.kernels.normed_stream else residual
        with t.alive(residual):
            x = normed_output(t, mixer_output(t, x))
            x = summed(t, residual, t.local(x) if t.kernels.holds_attended else x)
    if block.ffn is not None:
        residual = x
        x = normed_input(t, x)
        residual = t.local(x if t.kernels.normed_stream else residual)
        x = summed(t, residual, normed_output(t, feedforward_output(t, x, residual)))
    if inputs is not None:
        x = with_layer_input(t, x, inputs)
    return t.scaled_in_place(x) if t.kernels.scaled_layers else x


@scoped
def normed_input(t: Modules, x: Tracked) -> Tracked:
    """Input of mixers or of a feed-forward: the states of all tokens, normed in most families."""
    normed = t.block.norms_first and not t.kernels.norms_sums
    return t.gathered(t.norm(x, t.kernels.norm_kind(t.block.norm), "normed states") if normed else x)


@scoped
def normed_output(t: Modules, x: Tracked) -> Tracked:
    """The norm of a block's output, for those that have one, and dropout."""
    if len(t.block.norms) == 4 or not t.block.norms_first:
        x = t.norm(x, t.kernels.norm_kind(t.block.norm), "normed output")
    return t.dropout(x, "output after dropout") if "residual" in t.kernels.dropout else x


@scoped
def summed(t: Modules, residual: Tracked, x: Tracked) -> Tracked:
    """The residual stream; with a norm behind the sum in OPT-350m."""
    if t.kernels.normed_stream:
        residual, x = t.scale(residual, "residual stream"), t.scale(x, "residual stream")
    x = t.add(residual, x, "residual stream")
    return t.norm(x, t.kernels.norm_kind(t.block.norm), "residual stream") if t.kernels.norms_sums else x


@scoped
def parallel(t: Modules, x: Tracked) -> Tracked:
    """Attention and feed-forward read the same states, normed together or each by itself."""
    residual = x
    x = normed_input(t, x)
    attended = t.local(normed_output(t, mixer_output(t, x)))
    if len(t.block.norms) > 1:
        with t.alive(x):
            x = normed_input(t, residual)
    x = t.local(normed_output(t, feedforward_output(t, x, residual)))
    return t.add(t.add(residual, attended, "residual stream"), x, "residual stream")


@scoped
def mixer_output(t: Modules, x: Tracked) -> Tracked:
    """Output of the mixers of a layer: their sum where there are several."""
    y: Tracked | None = None
    for mixer in reversed(t.block.mixers) if t.kernels.multiplied else t.block.mixers:
        forward = pass_of(mixer)
        assert forward is not None  # check_modelled has let it through
        out = forward(t, mixer, x)
        y = out if y is None else t.add(y, out, "output of the mixers")
    assert y is not None
    return y


def pass_of(mixer: Mixer) -> Callable[[Modules, Any, Tracked], Tracked] | None:
    """The forward pass of a kind; None: nobody has laid what it saves for the way back next to torch's own account."""
    match mixer:
        case GQA():
            return grouped_query
        case LatentAttention():
            return latent_attention
        case CompressedAttention():
            return compressed_attention
        case GatedDeltaNet():
            return gated_delta_net
        case Mamba2():
            return mamba2
        case Mamba(n_heads=None):
            return mamba
        case LightningAttention():
            return lightning_attention
        case ShortConv():
            return short_convolution
        case _:
            return None


@scoped
def feedforward_output(t: Modules, x: Tracked, state: Tracked) -> Tracked:
    """Output of the feed-forward on normed states `x`; some experts read the residual stream `state` itself."""
    block = t.block
    if block.moe is not None:
        if block.moe.parallel_mlp is not None:
            return parallel_with_dense(t, block.moe, block.moe.parallel_mlp, x, state)
        return mixture(t, block.moe, x)
    assert block.dense is not None
    return mlp(t, block.dense, x)


# The embedding, and the last norm


@scoped
def embedding(t: Modules) -> Tracked:
    """Input of the first layer: rows of the table, scaled or with those of positions where the family does so."""
    columns, tied = t.model.d_embedding or t.model.hidden, t.model.tied and t.settings.reads_table
    looked_up = x = t.local(look_up(t, t.model.vocab * columns, columns, "embedded tokens", tied=tied))
    if t.settings.inputs_need_gradients:
        t.leaf(x)
    if t.kernels.scales_embedded:
        x = t.scale(x, "embedded tokens, scaled")
    if t.model.d_embedding is not None:
        x = t.matrix(x, "project_in", t.model.hidden, "embedded tokens in the width of the model")
    if t.model.positions:
        unit = CountedBy.TOKEN if t.kernels.positions_by_sequence else CountedBy.POSITION
        places = t.local(look_up(t, t.model.positions * t.model.hidden, t.model.hidden, "embedded positions", unit))
        x = t.add(x, places, "embedded tokens and positions")
    if "embedding" in t.kernels.dropout:
        x = t.dropout(x, "embedded tokens after dropout")
    if "embedded" in t.kernels.norms_unweighted:
        x = t.unweighted_norm(x, "normed embedded tokens")
    if t.settings.inputs_need_gradients and x is not looked_up:
        t.outputs.append(looked_up)  # a leaf is kept by where its gradient ends
    return x


def look_up(
    t: Modules, size: int, columns: int, name: str, unit: CountedBy = CountedBy.TOKEN, *, tied: bool = False
) -> Tracked:
    """Rows of a table. Its gradient is as large as the table; a tied one is added to that of the head, which waits."""
    table = t.parameter(size)

    def backward(gradient: Tracked) -> Gradients:
        own = t.gradient(table)
        t.free(gradient)
        return [t.gradient(table, own) if tied else own]

    return t.record(t.new(name, columns, t.settings.rest_width, unit), [table], backward)


@scoped
def final_norm(t: Modules, x: Tracked) -> Tracked:
    if t.model.final_norm == "none" != t.model.blocks[0].norm:
        return x  # there is none: OPT-350m
    return t.norm(x, t.kernels.norm_kind(t.model.final_norm), "states that the head reads")


# The embedding of its own that each layer mixes in: Gemma 3n and 4 (transformers' `modeling_gemma4.py`,
# `project_per_layer_inputs`). One tensor holds those of all layers, and so does its gradient.


INPUTS = "inputs of single layers"


def per_layer_columns(model: Architecture) -> int:
    """Columns of all layers' inputs side by side; 0 where there are none."""
    return sum(block.per_layer_width * len(block.layers) for block in model.blocks)


@scoped
def with_per_layer_inputs(t: Modules, x: Tracked) -> Tracked:
    """Embedded tokens, while the inputs of all layers are held until the backward pass reaches them: rows of a
    second table and a projection of the first."""
    columns, width = per_layer_columns(t.model), t.model.blocks[0].per_layer_width
    (table,) = (tensor for tensor in t.model.tensors() if tensor.name.endswith("embed_tokens_per_layer.weight"))
    rows = t.scale(look_up(t, table.shape[0] * columns, columns, INPUTS), INPUTS)
    projected = t.scale(t.matrix(x, "per_layer_model_projection", columns, INPUTS), INPUTS)
    projected = t.norm(projected, t.kernels.norm_kind("rms"), INPUTS, heads=columns // width)
    inputs = t.scale(t.add(projected, rows, INPUTS), INPUTS)
    return t.record(x.view(), [x, inputs], lambda gradient: [gradient, t.gradient(inputs)], [inputs.storage])


def per_layer_inputs(t: Modules, columns: int) -> Tracked:
    """The inputs of all layers as one of them meets them."""
    inputs = t.new(INPUTS, columns, t.settings.rest_width, CountedBy.TOKEN)
    if t.settings.trains_base or t.settings.adapters is not None:
        t.leaf(inputs)
    return inputs


@scoped
def with_layer_input(t: Modules, x: Tracked, inputs: Tracked) -> Tracked:
    """A layer's output with its own input mixed in. Its gradient is put into zeros as large as those of all layers, and
    added to what waits for the layers before, which is counted outside."""
    narrow = t.block.per_layer_width
    own = inputs.view(narrow)

    def backward(gradient: Tracked) -> Gradients:
        zeros = t.new(ACTIVATION_GRADIENTS, inputs.columns, inputs.width, inputs.unit)
        t.new_like(ACTIVATION_GRADIENTS, zeros, zeros)
        return [None]

    t.record(own, [inputs], backward)
    label = "gated input of the layer"
    gate = t.local(activated(t, t.matrix(x, "per_layer_input_gate", narrow, label), label))
    y = t.matrix(t.multiply(gate, own, label), "per_layer_projection", x.columns, "input of the layer")
    with t.alive(y):
        y = t.norm(y, t.kernels.norm_kind(t.block.norm), "normed input of the layer")
    return t.add(x, y, "residual stream")


# The parts of a model, each run once on a tape


def settings_of(rank: Architecture, scenario: TrainingScenario, *, single: bool) -> Settings:
    """Settings of the modules. FSDP gathers weights in the type of the products, so that none are cast there."""
    work, recipe, layout, base = scenario.workload, scenario.recipe, scenario.layout, scenario.frozen
    frozen_bits = FORMATS[base.weights].bits if base.weights in FORMATS else 8
    compute = WIDTH[recipe.compute]
    stored = compute if layout.fully_sharded or not work.trains_base else WIDTH[recipe.weights]
    wide = not work.trains_base and frozen_bits == 32
    rest = 4 if wide or (work.fp32_rest and not recipe.casts_model) else stored
    return Settings(
        matrix_width=4 if wide else stored,
        expert_width=rest if wide or plain_experts(work, base) else stored,
        rest_width=rest,
        compute_width=compute,
        autocast=recipe.autocast and not layout.fully_sharded,
        trains_base=work.trains_base,
        adapters=None
        if work.trains_base
        else Adapters(
            on=adapted_matrices(rank, work),
            rank=work.lora_rank,
            width=widths(work, recipe).weight,
            dropout=work.lora_dropout,
            experts=adapts_experts(rank, work),
        ),
        quantized=not work.trains_base and frozen_bits < 16,
        saves_inputs=recipe.saves_inputs,
        inputs_need_gradients=not work.trains_base and work.recompute in ("full", "alternate"),
        flash=work.attention == "flash",
        repeated_keys=work.repeated_keys,
        fused=work.fused,
        recompute_scores=work.recompute == "selective",
        checkpoints=work.recompute in ("full", "alternate"),
        reentrant=work.reentrant,
        loss=work.loss,
        loss_chunks=work.loss_chunks,
        keep_outputs=work.keep_outputs,
        tensor_parallel=layout.tp > 1 and not recipe.buffers,
        gathers=layout.tp > 1 and layout.sequence_parallel and not recipe.buffers,
        keeps_gradients=layout.gathered_by_fsdp(recipe)
        or not (recipe.buffers or work.accumulation > 1 or work.optimizer_in_backward),
        ep=layout.ep,
        slices=layout.slices if layout.sequence_parallel and layout.slices < layout.tp else 0,
        single=single,
    )


def quiet(settings: Settings, *, policy: bool) -> Settings:
    """Settings of a pass without gradients: of the policy with its adapters, or of a frozen reference without."""
    settings = replace(settings, records=False, checkpoints=False, inputs_need_gradients=False, keep_outputs=False)
    return settings if policy else replace(settings, trains_base=False, adapters=None)


SharedPart = TypeVar("SharedPart")


class Shared:
    """Parts that the steps of one model have in common, each made once."""

    def __init__(self) -> None:
        self.made = dict[tuple[object, ...], Any]()

    def once(self, key: tuple[object, ...], make: Callable[[], SharedPart]) -> SharedPart:
        made: SharedPart = self.made.get(key, self)
        if made is self:  # which is no part of a step
            made = self.made[key] = make()
        return made


class Passes:
    """Profiles of the embedding, of each kind of layer, of the last norm, and of the head, which ends in a loss.
    `shared` has those of the other steps on ranks of this kind, `cut`; `objective` is what the loss depends on besides
    the settings."""

    def __init__(
        self,
        rank: Architecture,
        settings: Settings,
        loss: Head,
        shared: Shared,
        cut: tuple[int, int],
        objective: Objective | None,
    ) -> None:
        self.rank, self.settings, self.objective = rank, settings, objective
        self.shared, self.cut, self.of_layers = shared, cut, settings.of_layers
        self.per_layer_columns = per_layer_columns(rank)
        """Columns of the inputs of single layers, side by side."""
        self.stream_width = self.layer(rank.all_blocks[0], first=True).width
        """Bytes of an element of what the layers hand on: autocast leaves the output of LayerNorm in 32 bits, and
        quantized matrices (bitsandbytes) give what they read."""
        first_layer = self.layer(next(block for block in self.rank.all_blocks if 0 in block.runs_in), first=True)
        keeps_input = self.per_layer_columns > 0 and first_layer.keeps_input
        of_norm, of_tail, needed = settings.of_norm, settings.of_head, settings.inputs_need_gradients
        of_front = replace(of_norm, reads_table=settings.reads_table, inputs_need_gradients=needed)
        if objective is None:  # hidden states are for losses of trainers alone
            of_tail = replace(of_tail, checkpoints=False)
        self.front = self.once(("front", of_front, keeps_input), lambda: self._front(of_front, keeps_input))
        width = self.stream_width
        self.norm = self.once(("norm", of_norm, width), lambda: self.end(of_norm, final_norm, width))
        width = self.norm.width
        self.tail = self.once(("tail", of_tail, objective, width), lambda: self.end(of_tail, loss, width))

    def once(self, key: tuple[object, ...], make: Callable[[], Profile]) -> Profile:
        """A profile, which passes that differ in nothing that it reads have in common."""
        return self.shared.once((*key, self.cut), make)

    def tape(self, settings: Settings) -> Modules:
        t = Modules(self.rank, settings)
        if self.objective is not None:
            t.objective = self.objective
        return t

    def _front(self, settings: Settings, keeps_input: bool) -> Profile:
        t = self.tape(settings)

        def run(_: list[Tracked]) -> Tracked:
            x = embedding(t)
            if not self.per_layer_columns:
                return x
            if keeps_input:
                t.count_elsewhere(x)
            return with_per_layer_inputs(t, x)

        return profile(t, [], [], run)

    def end(self, settings: Settings, run: Head, width: int) -> Profile:
        """The last norm or the head, which reads so many bytes an element."""
        t = self.tape(settings)
        return profile(t, [], self.input(t, gradient=True, width=width), lambda inputs: run(t, inputs[0]))

    def layer(self, block: Block, *, first: bool) -> Profile:
        """One layer of a kind. The first of a model whose embedding is not trained gets no gradient to pass on."""
        gradient = not first or self.settings.trains_base or self.settings.inputs_need_gradients
        mixers = tuple(mixer.model_copy(update={"window": None}) for mixer in block.mixers)
        width = self.settings.rest_width if first else self.stream_width
        settings = self.of_layers
        key = "layer", settings, mixers, block.ffn, block.norms, block.norm, block.per_layer_width, gradient, width
        return self.once(key, lambda: self.run(settings, block, gradient=gradient, width=width))

    def run(self, settings: Settings, block: Block, *, gradient: bool, width: int) -> Profile:
        t = self.tape(settings)
        channels = self.channels(block)
        table = "rotary tables", channels, self.rotary_width, CountedBy.POSITION
        tables = [t.new(*table), t.new(*table)] if channels else []
        t.block, t.rotary = block, Rotary(tables[0], tables[1], channels) if tables else None
        columns = self.per_layer_columns
        own = per_layer_inputs(t, columns) if columns else None

        def once(x: Tracked) -> Tracked:
            return layer(t, x, own)

        def run(inputs: list[Tracked]) -> Tracked:
            if not settings.checkpoints:
                return once(*inputs)
            return t.checkpoint(once, *inputs, reentrant=settings.reentrant)

        outside = tables if own is None else [*tables, own]
        return profile(t, outside, self.input(t, gradient=gradient, width=width), run)

    def input(self, t: Modules, *, gradient: bool, width: int) -> list[Tracked]:
        """The residual stream, which the layer before has made."""
        x = t.new("residual stream", self.rank.hidden, width, CountedBy.STREAM)
        if gradient and self.settings.records:
            t.leaf(x)
        return [x]

    def channels(self, block: Block) -> int:
        """Channels of a head that are turned: of several tables, those as wide as its heads."""
        widths = [columns for _, columns in self.rank.rotary]
        heads = {mixer.head_width for mixer in block.mixers}
        return next((columns for columns in widths if columns in heads), widths[0] if widths else 0)

    @property
    def rotary_width(self) -> int:
        """Bytes of an element of the tables of cosines and sines."""
        return 4 if self.rank.kernels.rotation in ("fp32", "fp32_spread") else self.settings.rest_width


# Which models' steps are computed: those whose layers were compared with torch's own account.


UNMODELLED_EXTRAS = ("altup.", "attn_alpha", "mlp_alpha")
"""Weights of what no pass computes: Gemma 3n's streams side by side, Dory's states on a sphere."""


def check_modelled(architecture: Architecture) -> None:
    """Raise ConfigError for layers whose saved activations nobody has compared with anything."""
    if architecture.pooled:
        sentence = (
            "Training of models that make a vector or scores of a text isn't modelled: their losses are over texts, "
            "not over tokens."
        )
        raise ConfigError(Message(sentence), "architectures")
    if next(unmodelled(architecture), None) is not None:
        sentence = (
            "The activations that layers of {model_type} keep for the backward pass aren't modelled, so its training "
            "step isn't shown. Recurrent layers that are: gated delta rule, Mamba, Mamba-2, lightning attention and "
            "short convolutions."
        )
        raise ConfigError(Message(sentence, model_type=architecture.model_type), "model_type")


def unmodelled(architecture: Architecture) -> Iterator[str]:
    """Kinds of mixers, and names of weights, that no pass computes; all of a model that makes no tokens."""
    if architecture.pooled:
        yield architecture.model_type
    for block in architecture.all_blocks:
        yield from (mixer.kind for mixer in block.mixers if pass_of(mixer) is None)
        yield from (extra.name for extra in block.extras if extra.name.startswith(UNMODELLED_EXTRAS))
