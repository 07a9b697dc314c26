"""The ends of a model: the embedding, with that of its own that each layer mixes in; the head with the loss; and
log-probabilities of tokens, of which the losses of preference and reinforcement learning are made."""

from collections.abc import Callable

from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.training.feedforward import activated
from calc.training.modules import Modules
from calc.training.operations import ACTIVATION_GRADIENTS, WEIGHT_GRADIENTS
from calc.training.tape import Backward, CountedBy, TrackedTensor, scoped
from calc.training.workload import Objective

LOGIT_GRADIENTS = "gradients of logits"


@scoped
def embedding(t: Modules, model: Architecture) -> TrackedTensor:
    """Input of the first layer: rows of the table, scaled or with those of positions where the family does so."""
    columns, tied = model.d_embedding or model.hidden, model.tied and t.settings.reads_table
    looked_up = x = t.local(look_up(t, model.vocab * columns, columns, "embedded tokens", tied=tied))
    if t.settings.inputs_need_gradients:
        t.leaf(x)
    if t.kernels.scales_embedded:
        x = t.scale(x, "embedded tokens, scaled")
    if model.d_embedding is not None:
        x = t.matrix(x, "project_in", model.hidden, "embedded tokens in the width of the model")
    if model.positions:
        unit = CountedBy.TOKEN if t.kernels.positions_by_sequence else CountedBy.POSITION
        places = t.local(look_up(t, model.positions * model.hidden, model.hidden, "embedded positions", unit))
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
) -> TrackedTensor:
    """Rows of a table. Its gradient is as large as the table; a tied one is added to that of the head, which waits."""
    table = t.weight(size, t.settings.rest, trained=t.settings.trains)

    def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
        own = t.gradient(table)
        t.free(gradient)
        return [t.gradient(table, own) if tied else own]

    return t.record(t.new(name, columns, t.settings.rest, unit), [table], backward)


@scoped
def final_norm(t: Modules, model: Architecture, x: TrackedTensor) -> TrackedTensor:
    if model.final_norm == "none" != model.blocks[0].norm:
        return x  # there is none: OPT-350m
    return t.norm(x, t.kernels.norm_kind(model.final_norm), "states that the head reads")


@scoped
def head(t: Modules, model: Architecture, x: TrackedTensor) -> TrackedTensor:
    """The loss on what the final norm gives."""
    kind, chunks = t.settings.loss, t.settings.loss_chunks
    stream = t.local(states(t, model, x))  # which the class holds until the loss is there
    x = t.cast(stream, t.settings.rest, "states that the head reads") if t.kernels.fp32_stream else stream
    x = t.local(t.gathered(x))
    table = output_table(t, model, chunks, uses=chunks if kind == "chunked" else 1)
    if kind == "fused":
        return fused_loss(t, x, table)
    if kind == "chunked":
        return chunked_loss(t, x, table, model.vocab, chunks)
    if kind == "stepwise":
        return stepwise_loss(t, x, table, -(-model.vocab // chunks))
    if kind == "tiled":
        return tiled_loss(t, x, table, model.vocab)
    logits = t.linear(x, table, model.vocab, "logits")
    t.mark_loss()
    logits = finished_logits(t, logits)
    if kind == "compiled":
        loss = single_kernel_loss(t, logits)
    elif t.settings.tensor_parallel:
        loss = parallel_cross_entropy(t, logits)
    else:
        loss = cross_entropy(t, logits, upcast=kind == "whole")
    if t.settings.keep_outputs:
        t.outputs.append(logits)
    return loss


def finished_logits(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    """Logits as the class returns them: scaled, in 32 bits or capped where the family does so."""
    if t.kernels.multiplied:
        logits = t.scale(logits, "logits")
    if t.kernels.fp32_logits:
        logits = t.cast(logits, 4, "logits in 32 bits")
    if t.kernels.capped_logits:
        logits = t.scale(logits, "logits")
        logits = t.result_saved(logits, "logits after tanh")
        logits = t.scale(logits, "logits")
    return logits


def states(t: Modules, model: Architecture, x: TrackedTensor) -> TrackedTensor:
    """States in the width of the head's table."""
    if model.d_embedding is None:
        return x
    return t.matrix(x, "project_out", model.d_embedding, "states in the width of the embedding")


def output_table(t: Modules, model: Architecture, chunks: int = 1, *, uses: int = 1) -> TrackedTensor:
    """The head's weight, which so many products read; the embedding too where it is tied."""
    t.gradient_names = dict.fromkeys((model.vocab, -(-model.vocab // chunks)), LOGIT_GRADIENTS)
    size = model.vocab * (model.d_embedding or model.hidden)
    return t.weight(size, t.settings.rest, trained=t.settings.trains, uses=uses + model.tied)


@scoped
def cross_entropy(t: Modules, logits: TrackedTensor, *, upcast: bool = True) -> TrackedTensor:
    """transformers' ForCausalLMLoss: in 32 bits; or in the type of the logits."""
    if upcast:
        logits = t.local(t.cast(logits, 4, "logits in 32 bits"))
    likely = t.result_saved(logits, "log-softmax of the logits")
    return t.record(scalar(t), [likely], lambda gradient: [t.gradient(likely)], [likely.storage])


@scoped
def parallel_cross_entropy(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    """DTensor's loss_parallel, on a rank's part of the vocabulary (torch 2.13, distributed/tensor/parallel/loss.py): in
    32 bits whatever the logits are, step by step; going back, on top of what is saved, zeros that become -1 at the
    labels, the probabilities, their sum, and that times the gradient of the loss."""
    wide = t.local(t.cast(logits, 4, "logits in 32 bits"))
    shifted = t.like("logits less their maximum", wide)
    t.like("exponentials of the logits", wide)
    likely = t.like("log-softmax of the logits", wide, shifted)

    def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
        labels = t.gradient(likely)
        probabilities = t.like("probabilities of the vocabulary", labels)
        total = t.gradient(likely, probabilities)
        return [t.gradient(likely, labels, total)]

    return t.record(scalar(t), [wide], backward, [likely.storage])


@scoped
def single_kernel_loss(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    """Loss fused by torch.compile: the logits are saved as they are, and their gradient takes their place, which public
    records of compiled losses agree with; Liger's kernel does so too (arXiv:2410.10989 section 3.2)."""
    return t.record(scalar(t), [logits], lambda gradient: [logits.view()], [logits.storage])


@scoped
def chunked_loss(t: Modules, x: TrackedTensor, table: TrackedTensor, vocab: int, chunks: int) -> TrackedTensor:
    """torchtune's CEWithChunkedOutputLoss: the logits of all chunks of tokens, then the loss of one after the other. A
    chunk of so many tokens is counted as so much less of every token."""
    part = -(-vocab // chunks)
    first, *others = t.chunks(x, chunks)
    logits = [t.local(t.linear(first, table, part, "logits"))]
    t.mark_loss()
    logits += [t.local(t.linear(piece, table, part, "logits")) for piece in others]
    loss = single_kernel_loss if t.settings.fused else cross_entropy
    losses = [t.local(loss(t, piece)) for piece in logits]
    return t.record(scalar(t), losses, lambda gradient: [gradient] * chunks, [part.storage for part in losses])


@scoped
def fused_loss(t: Modules, x: TrackedTensor, table: TrackedTensor) -> TrackedTensor:
    """Head and loss in one, so that logits are never whole: chunks of so many tokens that their logits are as large as
    the states, in 16 bits and in 32; the gradients are made on the way forward (Liger Kernel, arXiv:2410.10989 section
    3.2)."""
    of_x = t.new("gradients of the states that the head reads", x.columns, x.width, x.unit)
    of_table = t.new(WEIGHT_GRADIENTS, table.columns, table.width, CountedBy.ONCE) if table.node is not None else None
    t.mark_loss()
    chunk = [t.new("logits of a chunk", x.columns, width, x.unit) for width in (x.width, 4)]
    chunk += [t.new(WEIGHT_GRADIENTS, table.columns, table.width, CountedBy.ONCE)] if of_table is not None else []
    t.use(*chunk)
    return gradients_there(t, x, table, [of_x, of_table])


@scoped
def stepwise_loss(t: Modules, x: TrackedTensor, table: TrackedTensor, part: int) -> TrackedTensor:
    """torchtitan's ChunkedLossWrapper (0.3, components/loss.py): head, loss in fp32 and backward of one chunk of tokens
    after the other, whose logits are as large as `part` columns of every token. The gradients of the states are
    gathered in fp32, those of the table added up."""
    states = (x.columns, x.width, x.unit)
    gathered = t.gradient((x.columns, 4, x.unit))
    t.mark_loss()
    width = t.width if t.autocast else table.width
    cast = t.cast_weight(table, width, "weights in 16 bits")
    of_table: TrackedTensor | None = None
    for _ in range(2):  # from the second on all are alike
        logits = t.new("logits", part, width, x.unit)
        wide = t.new("logits in 32 bits", part, 4, x.unit)
        likely = t.new("log-softmax of the logits", part, 4, x.unit, wide)
        steps = [t.new(LOGIT_GRADIENTS, part, 4, x.unit) for _ in range(2)]
        t.use(likely)
        narrow = t.new(LOGIT_GRADIENTS, part, width, x.unit, *steps)
        if table.node is not None:
            made = t.gradient((table.columns, table.width, CountedBy.ONCE))
            of_table = (of_table or made) if t.keeps_gradients else None
        t.use(narrow, logits)
    t.use(cast)
    whole = t.gradient(states, gathered)
    return gradients_there(t, x, table, [whole, of_table])


@scoped
def gradients_there(
    t: Modules, x: TrackedTensor, table: TrackedTensor, gradients: list[TrackedTensor | None]
) -> TrackedTensor:
    """A loss whose gradients were made on the way forward."""
    return t.record(scalar(t), [x, table], lambda _: [gradient and gradient.view() for gradient in gradients])


TILE = 4096, 32_768
"""Tokens and columns of a tile of logits (TRL 1.16, kernels/chunked_logprob.py and trainer/utils.py)."""


@scoped
def tiled_loss(t: Modules, x: TrackedTensor, table: TrackedTensor, vocab: int) -> TrackedTensor:
    """TRL's ChunkedLogProbFunction (1.16, kernels/chunked_logprob.py): a copy of the states that have a label, and a
    tile of logits at a time, made again on the way back, where all gradients add up in fp32. The tile is that of at
    least 4,096 tokens."""
    x = t.gather(x, t.new("places of labels", 1, 8, x.unit), x.columns, "states that have a label")
    t.mark_loss()
    width = t.width if t.autocast else x.width
    rows = min(vocab, TILE[1]) * x.columns

    def tile() -> list[TrackedTensor]:
        logits = t.new("logits of a tile", TILE[0] * TILE[1], width, CountedBy.ONCE)
        cast = t.new("weights in 16 bits", rows, width, CountedBy.ONCE) if table.width != width else None
        return [logits] if cast is None else [logits, cast]

    t.use(*tile())
    return t.record(scalar(t), [x, table], summed_in_fp32(t, [x, table], tile, keeps_tile=False), [x.storage])


def summed_in_fp32(
    t: Modules, inputs: list[TrackedTensor], tile: Callable[[], list[TrackedTensor]], *, keeps_tile: bool
) -> Backward:
    """The backward of a head by tiles, which are made again while the gradients of states and table add up in fp32;
    the last tile may stay until these are cast."""

    def backward(_: TrackedTensor) -> list[TrackedTensor | None]:
        wide = [t.local(t.gradient((x.columns, 4, x.unit))) if x.node else None for x in inputs]
        last = tile()
        if not keeps_tile:
            t.use(*last)
        with t.alive(*last if keeps_tile else ()):
            return [gradient and t.in_type(gradient, x.width) for gradient, x in zip(wide, inputs, strict=True)]

    return backward


def scalar(t: Modules) -> TrackedTensor:
    return t.new("loss", 1, 4, CountedBy.ONCE)


# The embedding of its own that each layer mixes in: Gemma 3n and 4 (transformers' `modeling_gemma4.py`,
# `project_per_layer_inputs`). One tensor holds those of all layers, and so does its gradient.


INPUTS = "inputs of single layers"


def per_layer_columns(model: Architecture) -> int:
    """Columns of all layers' inputs side by side; 0 where there are none."""
    return sum(block.per_layer_width * len(block.layers) for block in model.blocks)


@scoped
def with_per_layer_inputs(t: Modules, model: Architecture, x: TrackedTensor) -> TrackedTensor:
    """Embedded tokens, while the inputs of all layers are held until the backward pass reaches them: rows of a
    second table and a projection of the first."""
    columns, width = per_layer_columns(model), model.blocks[0].per_layer_width
    (table,) = (tensor for tensor in model.tensors() if tensor.name.endswith("embed_tokens_per_layer.weight"))
    rows = t.scale(look_up(t, table.shape[0] * columns, columns, INPUTS), INPUTS)
    projected = t.scale(t.matrix(x, "per_layer_model_projection", columns, INPUTS), INPUTS)
    projected = t.norm(projected, t.kernels.norm_kind("rms"), INPUTS, heads=columns // width)
    inputs = t.scale(t.add(projected, rows, INPUTS), INPUTS)
    return t.record(x.view(), [x, inputs], lambda gradient: [gradient, t.gradient(inputs)], [inputs.storage])


def per_layer_inputs(t: Modules, columns: int) -> TrackedTensor:
    """The inputs of all layers as one of them meets them."""
    inputs = t.new(INPUTS, columns, t.settings.rest, CountedBy.TOKEN)
    if t.settings.trains or t.settings.adapters is not None:
        t.leaf(inputs)
    return inputs


@scoped
def mixed_in(t: Modules, block: Block, x: TrackedTensor, inputs: TrackedTensor) -> TrackedTensor:
    """A layer's output with its own input mixed in. Its gradient is put into zeros as large as those of all layers, and
    added to what waits for the layers before, which is counted outside."""
    narrow = block.per_layer_width
    own = inputs.view(narrow)

    def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
        zeros = t.new(ACTIVATION_GRADIENTS, inputs.columns, inputs.width, inputs.unit)
        t.like(ACTIVATION_GRADIENTS, zeros, zeros)
        return [None]

    t.record(own, [inputs], backward)
    label = "gated input of the layer"
    gate = t.local(activated(t, t.matrix(x, "per_layer_input_gate", narrow, label), label))
    y = t.matrix(t.multiply(gate, own, label), "per_layer_projection", x.columns, "input of the layer")
    with t.alive(y):
        y = t.norm(y, t.kernels.norm_kind(block.norm), "normed input of the layer")
    return t.add(x, y, "residual stream")


# Log-probabilities of tokens as TRL makes them: by a fused head, which builds no logits, or from whole logits row by
# row; the entropies that it logs, and hidden states that a trainer asks the model for (output_hidden_states)


STATISTICS = 7
"""Vectors in fp32 that a tile of logits is folded into: maximum, sums, and what is logged."""
ENTROPY_CHUNK = 128
"""Tokens whose entropy is made at once (TRL 1.12, trainer/utils.py, `entropy_from_logits`)."""


@scoped
def fused_log_probs(t: Modules, model: Architecture, x: TrackedTensor) -> TrackedTensor:
    """Log-probabilities of the scored tokens [N], without logits: their states are copied, and meet the head tile by
    tile; going back, tiles are made again, and both gradients add up in fp32 (TRL 1.16, kernels/chunked_logprob.py and
    trainer/utils.py, `add_fused_lm_head`)."""
    x = states(t, model, x)
    table = output_table(t, model)
    width = t.width if t.autocast else x.width
    t.mark_loss()
    places = t.new("places of scored tokens", 2, 8, CountedBy.SCORED)
    chosen = t.local(t.gather(t.slice(x, x.columns), places, x.columns, "states of scored tokens"))
    targets = t.local(t.new("targets", 1, 8, CountedBy.SCORED))
    sums = t.local(t.new("sums over tiles of logits", STATISTICS, 4, CountedBy.SCORED))
    rows = min(model.vocab, TILE[1]) * x.columns

    def tile(casts: int = 1) -> list[TrackedTensor]:
        """A tile of logits, with what is cast for its product; going back the last tile's cast is there until the next
        one stands."""
        made = [t.new("logits of a tile", TILE[1], width, CountedBy.TILED)]
        if x.width != width:
            made.append(t.new("states of a tile in 16 bits", x.columns, width, CountedBy.TILED))
        if table.width != width:
            made += [t.new("weights in 16 bits", rows, width, CountedBy.ONCE) for _ in range(casts)]
        return made

    t.use(*tile(), sums)
    backward = summed_in_fp32(t, [chosen, table], lambda: tile(casts=2), keeps_tile=True)
    scored = t.new("log-probabilities", 1, 4, CountedBy.SCORED)
    saved = t.new("log-probabilities", 2, 4, CountedBy.SCORED, scored)
    return t.record(scored, [chosen, table], backward, [chosen.storage, targets.storage, saved.storage])


@scoped
def whole_logits(t: Modules, model: Architecture, x: TrackedTensor, *, last: bool = False) -> TrackedTensor:
    """Logits of all tokens, or of the last ones of each sequence (logits_to_keep), whose states are copied then."""
    x = t.local(states(t, model, x))
    table = output_table(t, model)
    t.mark_loss()
    if last:
        x = t.local(t.resized(x, x.columns, "states of scored tokens", unit=CountedBy.LOGITS))
    return finished_logits(t, t.linear(x, table, model.vocab, "logits", CountedBy.LOGITS))


def outputs_of(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    """Logits as the trainer gets them: autocast ends, and accelerate casts the outputs to fp32
    (`convert_outputs_to_fp32`)."""
    t.leave_autocast()
    return t.cast(logits, 4, "logits in 32 bits") if t.settings.autocast else logits


def shifted(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    """logits[:, :-1]: a view of the scored tokens' logits, whose gradient is put into zeros."""
    return t.record(logits.view(unit=CountedBy.SCORED), [logits], lambda gradient: [t.gradient(logits)])


def label_log_probs(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    """Log-probabilities of labels from whole logits, sequence by sequence (TRL 1.12, trainer/utils.py,
    `selective_log_softmax`)."""
    return wide_log_probs(t, logits) if logits.width == 4 else narrow_log_probs(t, logits)


@scoped
def wide_log_probs(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    """Log-probabilities in fp32: the labels' logits less a log-sum-exp for each row. Both save the logits. Going back,
    a gradient of each row and their stack, then zeros into which those of the labels are scattered."""
    row, label = (logits.columns, 4, CountedBy.SCORED_ROW), "log-probabilities"

    def stacked(_: TrackedTensor) -> list[TrackedTensor | None]:
        rows = t.gradient(logits)
        t.use(t.gradient(row))
        return [t.gradient(logits, rows)]

    chosen = t.new(label, 1, 4, CountedBy.SCORED)
    chosen = t.record(chosen, [logits], lambda gradient: t.into_zeros(logits), [logits.storage])
    t.use(t.new("exponentials of the logits", *row))
    sums = t.record(t.new(label, 1, 4, CountedBy.SCORED), [logits], stacked, [logits.storage])
    return t.subtract(chosen, sums, label)


@scoped
def narrow_log_probs(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    """Log-probabilities in 16 bits: a log-softmax of each row, which is saved, and whose gradient takes its place row
    by row; then their stack."""
    row = logits.columns, logits.width, CountedBy.SCORED_ROW
    rows = t.scaled_in_place(logits)
    likely = t.new("log-softmax of the logits", *(logits.size if t.recording else row), logits)

    def backward(_: TrackedTensor) -> list[TrackedTensor | None]:
        t.use(t.gradient(row, t.gradient(row, t.gradient(row))))
        return [likely.view()]

    return t.record(t.new("log-probabilities", 1, logits.width, CountedBy.SCORED), [rows], backward, [likely.storage])


def use_entropies(t: Modules, logits: TrackedTensor, *, copied: bool) -> None:
    """Entropies that are logged, some tokens at a time: log-softmax, its exponential, their product. A view that is
    not in one piece is copied before."""
    flat = t.new("copy of the logits", logits.columns, logits.width, logits.unit) if copied else logits
    t.use(*[t.new("entropies", ENTROPY_CHUNK * logits.columns, logits.width, CountedBy.ONCE) for _ in range(3)], flat)


def entropies_with_gradient(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    """Entropies that have a gradient: log-softmax and its exponential are saved, chunk by chunk; going back, the
    gradient of a chunk takes the place of one of them, and those of all are put together."""
    chunk = ENTROPY_CHUNK * logits.columns
    parts = t.scaled_in_place(logits)
    likely = t.new("log-softmax of the logits", *logits.size)
    exponentials = t.new("exponentials of the logits", *logits.size)

    def backward(_: TrackedTensor) -> list[TrackedTensor | None]:
        t.use(*[t.gradient((chunk, logits.width, CountedBy.ONCE)) for _ in range(2)])
        return [likely.view()]

    t.use(t.new("entropies", chunk, logits.width, CountedBy.ONCE))
    saved = [likely.storage, exponentials.storage]
    return t.record(t.new("entropies", 1, logits.width, CountedBy.SCORED), [parts], backward, saved)


def loss_of(t: Modules, *parts: TrackedTensor) -> TrackedTensor:
    return t.record(scalar(t), parts, lambda gradient: [gradient for _ in parts])


def outputs_with_states(t: Modules, model: Architecture, x: TrackedTensor) -> list[TrackedTensor]:
    """Logits, and the hidden states where the backward pass does not keep them in any case, as accelerate returns them:
    under autocast logits in fp32, and copies of states."""
    saved = t.recording and (t.settings.checkpoints or t.settings.rest == 4)  # as inputs of layers
    states = [] if saved else [layer_inputs(t, model)]
    logits = whole_logits(t, model, x)
    t.leave_autocast()
    if not t.settings.autocast:
        return [logits, *states]
    wide = t.cast(logits, 4, "logits in 32 bits")
    copies = [hidden_states(t, model)] if t.settings.rest == 2 else states
    t.use(logits, *states)
    return [wide, *copies]


def layer_inputs(t: Modules, model: Architecture) -> TrackedTensor:
    return t.new("hidden states", model.num_layers * model.hidden, t.settings.rest)


def hidden_states(t: Modules, model: Architecture) -> TrackedTensor:
    """Hidden states as accelerate returns them: under autocast, for a model in 16 bits, copies in fp32 of the outputs
    of the embedding, of all layers and of the last norm."""
    if t.settings.autocast and t.settings.rest == 2:
        return t.new("hidden states in 32 bits", (model.num_layers + 1) * model.hidden, 4)
    return layer_inputs(t, model)


# Log-probabilities of other trainers than TRL, by one kernel on whole logits of all tokens, which flash-attn's
# cross-entropy is (ops/triton/cross_entropy.py). Entropies are compiled into another, which saves nothing.


def in_place(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective) -> TrackedTensor:
    """verl 0.9 (workers/engine/fsdp/transformer_impl.py, `prepare_model_outputs`, and utils/torch_functional.py,
    `logprobs_from_logits`): logits as the head makes them, at temperature 1 no copy; their gradients take their
    place."""
    logits = whole_logits(t, model, x)
    t.leave_autocast()
    return loss_of(t, single_kernel_loss(t, logits))


def in_fp32(t: Modules, model: Architecture, x: TrackedTensor, objective: Objective) -> TrackedTensor:
    """OpenRLHF 0.11 (models/actor.py and models/utils.py, `log_probs_from_logits`): logits are cast to fp32, and their
    gradients stand next to them."""
    logits = whole_logits(t, model, x)
    t.leave_autocast()
    return loss_of(t, kernel_in_fp32(t, t.cast(logits, 4, "logits in 32 bits")))


@scoped
def kernel_in_fp32(t: Modules, logits: TrackedTensor) -> TrackedTensor:
    loss = t.new("log-probabilities", 1, 4, logits.unit)
    return t.record(loss, [logits], lambda gradient: [t.gradient(logits)], [logits.storage])
