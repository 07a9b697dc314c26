"""Losses, each from the states that the last norm gives: as transformers computes it, with the variants of other
trainers; and those of preference and reinforcement learning and of distillation, as TRL has them."""

from collections.abc import Callable

from calc.training.modules import Modules
from calc.training.operations import WEIGHT_GRADIENTS, TensorSize
from calc.training.tape import Backward, CountedBy, Gradients, Tracked, scoped
from calc.training.workload import LogProbs, Objective

LOGIT_GRADIENTS = "gradients of logits"
Head = Callable[[Modules, Tracked], Tracked]
"""Steps from the last norm's output to the loss; a pass without gradients may end with log-probabilities."""


@scoped
def transformers_head(t: Modules, x: Tracked) -> Tracked:
    """Loss of transformers' classes, by the kind that the settings say."""
    kind, chunks = t.settings.loss, t.settings.loss_chunks
    stream = t.local(states_for_head(t, x))  # which the class holds until the loss is there
    x = t.cast(stream, t.settings.rest_width, "states that the head reads") if t.kernels.fp32_stream else stream
    x = t.local(t.gathered(x))
    table = head_weight(t, chunks, uses=chunks if kind == "chunked" else 1)
    by_parts = {"fused": fused_loss, "chunked": chunked_loss, "stepwise": stepwise_loss, "tiled": tiled_loss}
    if kind in by_parts:
        return by_parts[kind](t, x, table)
    logits = t.linear(x, table, t.model.vocab, "logits")
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


def finished_logits(t: Modules, logits: Tracked) -> Tracked:
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


def states_for_head(t: Modules, x: Tracked) -> Tracked:
    """States in the width of the head's table."""
    if t.model.d_embedding is None:
        return x
    return t.matrix(x, "project_out", t.model.d_embedding, "states in the width of the embedding")


def head_weight(t: Modules, chunks: int = 1, *, uses: int = 1) -> Tracked:
    """The head's weight, which so many products read; the embedding too where it is tied."""
    t.gradient_names = dict.fromkeys((t.model.vocab, -(-t.model.vocab // chunks)), LOGIT_GRADIENTS)
    size = t.model.vocab * (t.model.d_embedding or t.model.hidden)
    return t.parameter(size, uses=uses + t.model.tied)


@scoped
def cross_entropy(t: Modules, logits: Tracked, *, upcast: bool = True) -> Tracked:
    """transformers' ForCausalLMLoss: in 32 bits; or in the type of the logits."""
    if upcast:
        logits = t.local(t.cast(logits, 4, "logits in 32 bits"))
    likely = t.result_saved(logits, "log-softmax of the logits")
    return t.record(scalar(t), [likely], lambda gradient: [t.gradient(likely)], [likely.storage])


@scoped
def parallel_cross_entropy(t: Modules, logits: Tracked) -> Tracked:
    """DTensor's loss_parallel, on a rank's part of the vocabulary (torch 2.13, distributed/tensor/parallel/loss.py): in
    32 bits whatever the logits are, step by step; going back, on top of what is saved, zeros that become -1 at the
    labels, the probabilities, their sum, and that times the gradient of the loss."""
    wide = t.local(t.cast(logits, 4, "logits in 32 bits"))
    shifted = t.new_like("logits less their maximum", wide)
    t.new_like("exponentials of the logits", wide)
    likely = t.new_like("log-softmax of the logits", wide, shifted)

    def backward(gradient: Tracked) -> Gradients:
        labels = t.gradient(likely)
        probabilities = t.new_like("probabilities of the vocabulary", labels)
        total = t.gradient(likely, probabilities)
        return [t.gradient(likely, labels, total)]

    return t.record(scalar(t), [wide], backward, [likely.storage])


@scoped
def single_kernel_loss(t: Modules, logits: Tracked) -> Tracked:
    """Loss fused by torch.compile: the logits are saved as they are, and their gradient takes their place, which public
    records of compiled losses agree with; Liger's kernel does so too (arXiv:2410.10989 section 3.2)."""
    return t.record(scalar(t), [logits], lambda gradient: [logits.view()], [logits.storage])


@scoped
def chunked_loss(t: Modules, x: Tracked, table: Tracked) -> Tracked:
    """torchtune's CEWithChunkedOutputLoss: the logits of all chunks of tokens, then the loss of one after the other. A
    chunk of so many tokens is counted as so much less of every token."""
    chunks = t.settings.loss_chunks
    part = -(-t.model.vocab // chunks)
    first, *others = t.chunks(x, chunks)
    logits = [t.local(t.linear(first, table, part, "logits"))]
    t.mark_loss()
    logits += [t.local(t.linear(piece, table, part, "logits")) for piece in others]
    loss = single_kernel_loss if t.settings.fused else cross_entropy
    losses = [t.local(loss(t, piece)) for piece in logits]
    return t.record(scalar(t), losses, lambda gradient: [gradient] * chunks, [part.storage for part in losses])


@scoped
def fused_loss(t: Modules, x: Tracked, table: Tracked) -> Tracked:
    """Head and loss in one, so that logits are never whole: chunks of so many tokens that their logits are as large as
    the states, in 16 bits and in 32; the gradients are made on the way forward (Liger Kernel, arXiv:2410.10989 section
    3.2)."""
    of_x = t.new("gradients of the states that the head reads", x.columns, x.width, x.unit)
    of_table = t.new(WEIGHT_GRADIENTS, table.columns, table.width, CountedBy.ONCE) if table.node is not None else None
    t.mark_loss()
    chunk = [t.new("logits of a chunk", x.columns, width, x.unit) for width in (x.width, 4)]
    chunk += [t.new(WEIGHT_GRADIENTS, table.columns, table.width, CountedBy.ONCE)] if of_table is not None else []
    t.use(*chunk)
    return loss_with_gradients(t, x, table, [of_x, of_table])


@scoped
def stepwise_loss(t: Modules, x: Tracked, table: Tracked) -> Tracked:
    """torchtitan's ChunkedLossWrapper (0.3, components/loss.py): head, loss in fp32 and backward of one chunk of tokens
    after the other, whose logits are as large as part of the columns of every token. The gradients of the states are
    gathered in fp32, those of the table added up."""
    states, part = (x.columns, x.width, x.unit), -(-t.model.vocab // t.settings.loss_chunks)
    gathered = t.gradient((x.columns, 4, x.unit))
    t.mark_loss()
    width = t.width if t.autocast else table.width
    cast = t.cast_weight(table, width, "weights in 16 bits")
    of_table: Tracked | None = None
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
    return loss_with_gradients(t, x, table, [whole, of_table])


@scoped
def loss_with_gradients(t: Modules, x: Tracked, table: Tracked, gradients: Gradients) -> Tracked:
    """A loss whose gradients were made on the way forward."""
    return t.record(scalar(t), [x, table], lambda _: [gradient and gradient.view() for gradient in gradients])


TILE = 4096, 32_768
"""Tokens and columns of a tile of logits (TRL 1.16, kernels/chunked_logprob.py and trainer/utils.py)."""


@scoped
def tiled_loss(t: Modules, x: Tracked, table: Tracked) -> Tracked:
    """TRL's ChunkedLogProbFunction (1.16, kernels/chunked_logprob.py): a copy of the states that have a label, and a
    tile of logits at a time, made again on the way back, where all gradients add up in fp32. The tile is that of at
    least 4,096 tokens."""
    x = t.gather(x, t.new("places of labels", 1, 8, x.unit), x.columns, "states that have a label")
    t.mark_loss()
    width = t.width if t.autocast else x.width
    rows = min(t.model.vocab, TILE[1]) * x.columns

    def tile() -> list[Tracked]:
        logits = t.new("logits of a tile", TILE[0] * TILE[1], width, CountedBy.ONCE)
        cast = t.new("weights in 16 bits", rows, width, CountedBy.ONCE) if table.width != width else None
        return [logits] if cast is None else [logits, cast]

    t.use(*tile())
    return t.record(scalar(t), [x, table], summed_in_fp32(t, [x, table], tile, keeps_tile=False), [x.storage])


def summed_in_fp32(
    t: Modules, inputs: list[Tracked], tile: Callable[[], list[Tracked]], *, keeps_tile: bool
) -> Backward:
    """The backward of a head by tiles, which are made again while the gradients of states and table add up in fp32;
    the last tile may stay until these are cast."""

    def backward(_: Tracked) -> Gradients:
        wide = [t.local(t.gradient((x.columns, 4, x.unit))) if x.node else None for x in inputs]
        last = tile()
        if not keeps_tile:
            t.use(*last)
        with t.alive(*last if keeps_tile else ()):
            return [gradient and t.in_type(gradient, x.width) for gradient, x in zip(wide, inputs, strict=True)]

    return backward


def cast_for_tile(t: Modules, states: TensorSize, table: Tracked, width: int, casts: int = 1) -> list[Tracked]:
    """States and weights of a tile in the type of their product, where they have another."""
    columns, states_width, _ = states
    made: list[Tracked] = []
    if states_width != width:
        made.append(t.new("states of a tile in 16 bits", columns, width, CountedBy.TILED))
    if table.width != width:
        rows = min(t.model.vocab, TILE[1]) * columns
        made += [t.new("weights in 16 bits", rows, width, CountedBy.ONCE) for _ in range(casts)]
    return made


def scalar(t: Modules) -> Tracked:
    """The loss itself: one number in fp32."""
    return t.new("loss", 1, 4, CountedBy.ONCE)


# Log-probabilities of tokens as TRL makes them: by a fused head, which builds no logits, or from whole logits row by
# row; the entropies that it logs, and hidden states that a trainer asks the model for (output_hidden_states)


STATISTICS = 7
"""Vectors in fp32 that a tile of logits is folded into: maximum, sums, and what is logged."""
ENTROPY_CHUNK = 128
"""Tokens whose entropy is made at once (TRL 1.12, trainer/utils.py, `entropy_from_logits`)."""


@scoped
def fused_log_probs(t: Modules, x: Tracked) -> Tracked:
    """Log-probabilities of the scored tokens [N], without logits: their states are copied, and meet the head tile by
    tile; going back, tiles are made again, and both gradients add up in fp32 (TRL 1.16, kernels/chunked_logprob.py and
    trainer/utils.py, `add_fused_lm_head`)."""
    x = states_for_head(t, x)
    table = head_weight(t)
    width = t.width if t.autocast else x.width
    t.mark_loss()
    places = t.new("places of scored tokens", 2, 8, CountedBy.SCORED)
    chosen = t.local(t.gather(t.slice(x, x.columns), places, x.columns, "states of scored tokens"))
    targets = t.local(t.new("targets", 1, 8, CountedBy.SCORED))
    sums = t.local(t.new("sums over tiles of logits", STATISTICS, 4, CountedBy.SCORED))

    def tile(casts: int = 1) -> list[Tracked]:
        """A tile of logits; going back the cast of the last tile's weights is there until the next one stands."""
        logits = t.new("logits of a tile", TILE[1], width, CountedBy.TILED)
        return [logits, *cast_for_tile(t, x.size, table, width, casts)]

    t.use(*tile(), sums)
    backward = summed_in_fp32(t, [chosen, table], lambda: tile(casts=2), keeps_tile=True)
    scored = t.new("log-probabilities", 1, 4, CountedBy.SCORED)
    saved = t.new("log-probabilities", 2, 4, CountedBy.SCORED, scored)
    return t.record(scored, [chosen, table], backward, [chosen.storage, targets.storage, saved.storage])


@scoped
def whole_logits(t: Modules, x: Tracked, *, last: bool = False) -> Tracked:
    """Logits of all tokens, or of the last ones of each sequence (logits_to_keep), whose states are copied then."""
    x = t.local(states_for_head(t, x))
    table = head_weight(t)
    t.mark_loss()
    if last:
        x = t.local(t.resized(x, x.columns, "states of scored tokens", unit=CountedBy.LOGITS))
    return finished_logits(t, t.linear(x, table, t.model.vocab, "logits", CountedBy.LOGITS))


def accelerate_outputs(t: Modules, logits: Tracked) -> Tracked:
    """Logits as the trainer gets them: autocast ends, and accelerate casts the outputs to fp32
    (`convert_outputs_to_fp32`)."""
    t.leave_autocast()
    return t.cast(logits, 4, "logits in 32 bits") if t.settings.autocast else logits


def without_last_token(t: Modules, logits: Tracked) -> Tracked:
    """logits[:, :-1]: a view of the scored tokens' logits, whose gradient is put into zeros."""
    return t.record(logits.view(unit=CountedBy.SCORED), [logits], lambda gradient: [t.gradient(logits)])


def label_log_probs(t: Modules, logits: Tracked) -> Tracked:
    """Log-probabilities of labels from whole logits, sequence by sequence (TRL 1.12, trainer/utils.py,
    `selective_log_softmax`)."""
    return wide_log_probs(t, logits) if logits.width == 4 else narrow_log_probs(t, logits)


@scoped
def wide_log_probs(t: Modules, logits: Tracked) -> Tracked:
    """Log-probabilities in fp32: the labels' logits less a log-sum-exp for each row. Both save the logits. Going back,
    a gradient of each row and their stack, then zeros into which those of the labels are scattered."""
    row, label = (logits.columns, 4, CountedBy.SCORED_ROW), "log-probabilities"

    def stacked(_: Tracked) -> Gradients:
        rows = t.gradient(logits)
        t.use(t.gradient(row))
        return [t.gradient(logits, rows)]

    chosen = t.new(label, 1, 4, CountedBy.SCORED)
    chosen = t.record(chosen, [logits], lambda gradient: t.into_zeros(logits), [logits.storage])
    t.use(t.new("exponentials of the logits", *row))
    sums = t.record(t.new(label, 1, 4, CountedBy.SCORED), [logits], stacked, [logits.storage])
    return t.subtract(chosen, sums, label)


@scoped
def narrow_log_probs(t: Modules, logits: Tracked) -> Tracked:
    """Log-probabilities in 16 bits: a log-softmax of each row, which is saved, and whose gradient takes its place row
    by row; then their stack."""
    row = logits.columns, logits.width, CountedBy.SCORED_ROW
    rows = t.scaled_in_place(logits)
    likely = t.new("log-softmax of the logits", *(logits.size if t.recording else row), logits)

    def backward(_: Tracked) -> Gradients:
        t.use(t.gradient(row, t.gradient(row, t.gradient(row))))
        return [likely.view()]

    return t.record(t.new("log-probabilities", 1, logits.width, CountedBy.SCORED), [rows], backward, [likely.storage])


def use_entropies(t: Modules, logits: Tracked, *, copied: bool) -> None:
    """Note entropies that are logged, some tokens at a time: log-softmax, its exponential, their product. A view that
    is not in one piece is copied before."""
    flat = t.new("copy of the logits", logits.columns, logits.width, logits.unit) if copied else logits
    t.use(*[t.new("entropies", ENTROPY_CHUNK * logits.columns, logits.width, CountedBy.ONCE) for _ in range(3)], flat)


def entropies_with_gradient(t: Modules, logits: Tracked) -> Tracked:
    """Entropies that have a gradient: log-softmax and its exponential are saved, chunk by chunk; going back, the
    gradient of a chunk takes the place of one of them, and those of all are put together."""
    chunk = ENTROPY_CHUNK * logits.columns
    parts = t.scaled_in_place(logits)
    likely = t.new("log-softmax of the logits", *logits.size)
    exponentials = t.new("exponentials of the logits", *logits.size)

    def backward(_: Tracked) -> Gradients:
        t.use(*[t.gradient((chunk, logits.width, CountedBy.ONCE)) for _ in range(2)])
        return [likely.view()]

    t.use(t.new("entropies", chunk, logits.width, CountedBy.ONCE))
    saved = [likely.storage, exponentials.storage]
    return t.record(t.new("entropies", 1, logits.width, CountedBy.SCORED), [parts], backward, saved)


def loss_on(t: Modules, *parts: Tracked) -> Tracked:
    """A loss made of small tensors, such as log-probabilities, which passes its gradient to each."""
    return t.record(scalar(t), parts, lambda gradient: [gradient for _ in parts])


def outputs_with_states(t: Modules, x: Tracked) -> list[Tracked]:
    """Logits, and the hidden states where the backward pass does not keep them in any case, as accelerate returns them:
    under autocast logits in fp32, and copies of states."""
    saved = t.recording and (t.settings.checkpoints or t.settings.rest_width == 4)  # as inputs of layers
    states = [] if saved else [layer_inputs(t)]
    logits = whole_logits(t, x)
    wide = accelerate_outputs(t, logits)
    if not t.settings.autocast:
        return [logits, *states]
    copies = [hidden_states(t)] if t.settings.rest_width == 2 else states
    t.use(logits, *states)
    return [wide, *copies]


def layer_inputs(t: Modules) -> Tracked:
    """Inputs of all layers, as output_hidden_states keeps them."""
    return t.new("hidden states", t.model.num_layers * t.model.hidden, t.settings.rest_width)


def hidden_states(t: Modules) -> Tracked:
    """Hidden states as accelerate returns them: under autocast, for a model in 16 bits, copies in fp32 of the outputs
    of the embedding, of all layers and of the last norm."""
    if t.settings.autocast and t.settings.rest_width == 2:
        return t.new("hidden states in 32 bits", (t.model.num_layers + 1) * t.model.hidden, 4)
    return layer_inputs(t)


# Log-probabilities of other trainers than TRL, by one kernel on whole logits of all tokens, which flash-attn's
# cross-entropy is (ops/triton/cross_entropy.py). Entropies are compiled into another, which saves nothing.


def verl_head(t: Modules, x: Tracked) -> Tracked:
    """Loss by verl 0.9 (workers/engine/fsdp/transformer_impl.py, `prepare_model_outputs`, and
    utils/torch_functional.py, `logprobs_from_logits`): logits as the head makes them, at temperature 1 no copy; their
    gradients take their place."""
    logits = whole_logits(t, x)
    t.leave_autocast()
    return loss_on(t, single_kernel_loss(t, logits))


def openrlhf_head(t: Modules, x: Tracked) -> Tracked:
    """Loss by OpenRLHF 0.11 (models/actor.py and models/utils.py, `log_probs_from_logits`): logits are cast to fp32,
    and their gradients stand next to them."""
    logits = whole_logits(t, x)
    t.leave_autocast()
    wide = t.cast(logits, 4, "logits in 32 bits")
    scored = t.new("log-probabilities", 1, 4, logits.unit)
    return loss_on(t, t.record(scored, [wide], lambda gradient: [t.gradient(wide)], [wide.storage]))


# Losses of TRL


def fused_head(t: Modules, x: Tracked) -> Tracked:
    """A loss on log-probabilities of the fused head, which stands in the model's forward; then the reference runs."""
    scored = fused_log_probs(t, x)
    t.leave_autocast()
    t.mark_reference()
    return loss_on(t, scored)


def fused_or(whole: Head) -> Head:
    """The head of a release that builds no logits, those of other trainers, and what an older release makes of whole
    logits."""

    def head(t: Modules, x: Tracked) -> Tracked:
        ways: dict[LogProbs | None, Head] = {"fused": fused_head, "in-place": verl_head, "in-fp32": openrlhf_head}
        return ways.get(t.objective.log_probs, whole)(t, x)

    return head


def runs_reference(objective: Objective) -> bool:
    """Whether a step runs a reference forward: a frozen copy, or the model without its adapters."""
    return objective.reference in ("model", "adapter-off")


# Supervised fine-tuning, as TRL's SFTTrainer computes it


NLL_CHUNK = 256
"""Tokens of a chunk of chunked_nll."""


def sft_head(t: Modules, x: Tracked) -> Tracked:
    """TRL 1.12, trainer/sft_trainer.py: by chunks of tokens, or on whole logits."""
    if t.objective.log_probs == "chunked":
        loss = chunked_nll(t, x)
        t.leave_autocast()
        return loss
    return logged_cross_entropy(t, whole_logits(t, x))


@scoped
def logged_cross_entropy(t: Modules, logits: Tracked) -> Tracked:
    """transformers' loss, within the model; accelerate's fp32 copy of the logits, of which entropies are logged."""
    loss = cross_entropy(t, logits)
    wide = accelerate_outputs(t, logits)
    t.free(logits)
    use_entropies(t, without_last_token(t, wide), copied=True)
    t.use(wide)
    return loss_on(t, loss)


@scoped
def chunked_nll(t: Modules, x: Tracked) -> Tracked:
    """Cross-entropy by chunks of tokens: each meets the head in fp32 under activation checkpointing (TRL 1.12,
    trainer/sft_trainer.py, `_chunked_cross_entropy_loss`)."""
    table = head_weight(t)
    t.mark_loss()
    places = t.new("places of scored tokens", 1, 8, x.unit)
    ordered = t.local(t.gather(t.slice(x, x.columns), places, x.columns, "states of scored tokens"))
    narrow = t.width if t.autocast else 4

    def multiplied() -> tuple[Tracked, Tracked]:
        """The head's weight as it is multiplied, by way of fp32, and the logits of a chunk."""
        wide = t.new("weights in 32 bits", table.columns, 4, CountedBy.ONCE)
        weight = t.new("weights in 16 bits", table.columns, narrow, CountedBy.ONCE, wide) if narrow != 4 else wide
        logits = t.new("logits of a chunk", NLL_CHUNK * t.model.vocab, narrow, CountedBy.ONCE)
        t.use(wide, weight)
        return weight, logits

    wide_logits = "log-softmax of the logits", NLL_CHUNK * t.model.vocab, 4, CountedBy.ONCE
    first = multiplied()[1]
    t.use(*[t.new(*wide_logits) for _ in range(3)], first)  # with the exponential and the product of the entropy

    def backward(_: Tracked) -> Gradients:
        states = t.gradient((x.columns, x.width, x.unit))
        summed: Tracked | None = None
        for chunk in range(2):  # from the second on all are alike
            weight, logits = multiplied()
            likely = t.new(*wide_logits, logits)
            side = NLL_CHUNK * t.model.vocab, 4, CountedBy.ONCE
            inner = t.gradient(side, t.gradient(side), likely)
            narrowed = t.in_type(inner, narrow)
            t.use(narrowed, weight)
            if table.node is not None:
                made = t.gradient((table.columns, narrow, CountedBy.ONCE), narrowed, weight)
                own = t.in_type(t.in_type(made, 4), table.width)
                both = (table.columns, table.width, CountedBy.ONCE)
                summed = own if chunk == 0 else t.gradient(both, own, summed)
        return [t.gradient((x.columns, x.width, x.unit), states), summed]

    return t.record(scalar(t), [ordered, table], backward, [ordered.storage])


# Direct preference optimization, arXiv:2305.18290: a policy against its reference, whose log-probabilities TRL makes
# after the policy's forward pass, while that waits for its own backward


def dpo_head(t: Modules, x: Tracked) -> Tracked:
    """TRL 1.12 and 0.24, trainer/dpo_trainer.py, on whole logits."""
    if t.objective.trl == "0.24":
        return head_with_hidden_states(t, x)
    logits = accelerate_outputs(t, whole_logits(t, x))
    return log_probs_with_reference(t, logits) if t.recording else label_log_probs(t, without_last_token(t, logits))


@scoped
def log_probs_with_reference(t: Modules, logits: Tracked, *, with_cache: bool = False) -> Tracked:
    """Loss on log-probabilities of policy and reference (TRL 1.12, trainer/dpo_trainer.py and kto_trainer.py,
    `_compute_loss`): logits of both, and a copy for the entropies that are logged. KTO's reference returns its cache
    too, and copies are made of both halves of the batch, and of the first one's completions."""
    view = without_last_token(t, logits)
    scored = label_log_probs(t, view)
    t.mark_reference()
    others = [reference_logits(t, logits)] if runs_reference(t.objective) else []
    if others and with_cache:
        others.append(returned_cache(t))
    with t.alive(*others):
        use_entropies(t, view, copied=True)
        if with_cache:
            halves = t.new("copy of the logits", logits.columns, logits.width, CountedBy.SCORED)
            part = logits.columns * t.objective.completion // (2 * t.objective.sequence)
            t.use(t.new("copy of the logits", part, logits.width, CountedBy.SCORED), halves, logits)
    return loss_on(t, scored)


def reference_logits(t: Modules, logits: Tracked) -> Tracked:
    """Logits of the reference, with what a row of them takes."""
    made = t.new("logits of the reference", logits.columns, logits.width, CountedBy.LOGITS)
    t.use(t.new("exponentials of the logits", logits.columns, logits.width, CountedBy.SCORED_ROW), made)
    return made


def head_with_hidden_states(t: Modules, x: Tracked) -> Tracked:
    """DPO's loss by TRL 0.24 (trainer/dpo_trainer.py, `concatenated_forward`): the model returns all hidden states
    too, which accelerate casts to fp32 with the logits."""
    outputs = outputs_with_states(t, x)
    scored = log_probs_and_mean_logits(t, *outputs)
    t.mark_reference()
    if t.recording and runs_reference(t.objective):
        logits = reference_logits(t, outputs[0])
        states = hidden_states(t)
        use_mean_logits(t, logits)
        t.use(states)
    return loss_on(t, scored)


@scoped
def log_probs_and_mean_logits(t: Modules, logits: Tracked, *states: Tracked) -> Tracked:
    """Log-probabilities of all tokens, next to the mean logits that are logged."""
    view = logits.view(unit=CountedBy.SCORED)
    scored = label_log_probs(t, t.record(view, [logits], t.pass_on))
    use_mean_logits(t, logits)
    return scored


def use_mean_logits(t: Modules, logits: Tracked) -> None:
    """Note a copy of the logits of the chosen completions, of which the mean is logged."""
    part = logits.columns * t.objective.completion // (2 * t.objective.sequence)
    t.use(t.new("copy of the logits", part, logits.width, CountedBy.LOGITS), logits)


# KTO, arXiv:2402.01306: single completions, wanted or not, against a reference; and a KL term by mismatched ones


def kto_head(t: Modules, x: Tracked) -> Tracked:
    """TRL 1.12, trainer/kto_trainer.py, on whole logits."""
    if t.recording:  # a policy under checkpointing makes no cache, or saves it in any case
        return log_probs_with_reference(t, accelerate_outputs(t, whole_logits(t, x)), with_cache=True)
    with t.alive(returned_cache(t)):
        return label_log_probs(t, without_last_token(t, accelerate_outputs(t, whole_logits(t, x))))


def returned_cache(t: Modules) -> Tracked:
    """Keys and values of all layers, which the model returns where use_cache is not turned off."""
    runs = ((mixer, len(block.cached_in)) for block in t.model.all_blocks for mixer in block.mixers)
    columns = sum(layers * mixer.cached_elements() for mixer, layers in runs)
    return t.new("keys and values of all layers", columns, t.settings.compute_width)


# ORPO, arXiv:2403.07691; SimPO, arXiv:2405.14734, and CPO, arXiv:2401.08417: preference without a reference, on whole
# logits (TRL, trl/experimental)


def pair_head(t: Modules, x: Tracked, *, likelihood: bool) -> Tracked:
    """Log-probabilities of both halves of the pairs; before them the likelihood of the chosen half."""
    logits = accelerate_outputs(t, whole_logits(t, x))
    with t.alive(logits):
        chosen = [chosen_likelihood(t, logits)] if likelihood else []
        return loss_on(t, *chosen, label_log_probs(t, without_last_token(t, logits)))


@scoped
def chosen_likelihood(t: Modules, logits: Tracked) -> Tracked:
    """Cross-entropy of the chosen half, whose logits are copied for it."""
    half = logits.columns // 2
    copy = t.local(t.new("copy of the logits", half, logits.width, CountedBy.SCORED))

    def backward(gradient: Tracked) -> Gradients:
        """Into zeros, first of the shift and then of the half."""
        return [t.gradient(logits, t.gradient((half, logits.width, CountedBy.LOGITS), gradient))]

    t.record(copy, [logits], backward)
    return cross_entropy(t, copy, upcast=False)


# A reward model on pairs, arXiv:2203.02155 section 3.5: one score for each sequence, and no logits


def score_head(t: Modules, x: Tracked) -> Tracked:
    """Loss on one score for each sequence (TRL, trainer/reward_trainer.py)."""
    scores = sequence_scores(t, x)
    t.leave_autocast()
    return loss_on(t, scores)


@scoped
def sequence_scores(t: Modules, x: Tracked) -> Tracked:
    """The score of the last token of each sequence, of those that are made for all."""
    weight = t.weight(x.columns, t.settings.rest_width, trained=True)
    t.mark_loss()
    scores = t.linear(x, weight, 1, "scores", x.unit)
    return t.record(scalar(t), [scores], lambda gradient: t.into_zeros(scores))


# GRPO, arXiv:2402.03300, and RLOO, arXiv:2402.14740: completions in groups, scored against each other.
# Log-probabilities of the policy that generated them, and of the reference, are made before the update


def grpo_head(t: Modules, x: Tracked) -> Tracked:
    """TRL 1.12, trainer/grpo_trainer.py, on whole logits of the completions."""
    return loss_over_temperature(t, accelerate_outputs(t, whole_logits(t, x, last=True)))


@scoped
def loss_over_temperature(t: Modules, logits: Tracked) -> Tracked:
    """Loss on logits over the temperature, a copy next to what the model returned (TRL 1.12, trainer/grpo_trainer.py,
    `_get_per_token_logps_and_entropies`)."""
    scaled = t.local(t.scale(without_last_token(t, without_last_token(t, logits)), "logits over the temperature"))
    scored = [label_log_probs(t, scaled)]
    if not t.recording:
        return scored[0]
    if t.objective.entropy_bonus:
        scored.append(entropies_with_gradient(t, scaled))
    else:
        use_entropies(t, scaled, copied=False)
    return loss_on(t, *scored)


# PPO, arXiv:1707.06347, as TRL's experimental trainer has it (1.12, trl/experimental/ppo/ppo_trainer.py): a value
# model as large as the policy is trained with it, and a reward model stands next to both


def ppo_head(t: Modules, x: Tracked) -> Tracked:
    """PPO's loss on whole logits, which the training loop holds with all hidden states until the update is over."""
    outputs = outputs_with_states(t, x)
    scored = label_log_probs(t, t.scaled_in_place(without_last_token(t, outputs[0])))
    if not t.recording:
        t.use(*outputs)
    else:
        t.outputs += outputs
    return loss_on(t, scored)


# Distillation from a teacher's distribution over the whole vocabulary, arXiv:2306.13649: GKD as TRL's experimental
# trainer has it, on whole logits of both; and TRL's own distillation, on tiles of them


TEACHER_STATISTICS = 12
"""Vectors in fp32 that a tile of both models' logits is folded into (TRL 1.16, kernels/chunked_divergence.py)."""


def gkd_head(t: Modules, x: Tracked) -> Tracked:
    """GKD's loss on whole logits of all tokens; the teacher's are made while those of the policy wait."""
    logits = accelerate_outputs(t, whole_logits(t, x))
    if not t.recording:
        return logits
    t.mark_reference()
    teacher = t.new("logits of the teacher", logits.columns, logits.width, CountedBy.LOGITS)
    with t.alive(logits, teacher):
        return generalized_jsd(t, without_last_token(t, logits), without_last_token(t, teacher))


@scoped
def generalized_jsd(t: Modules, student: Tracked, teacher: Tracked) -> Tracked:
    """Divergence of two models' distributions (TRL 1.16, experimental/gkd/gkd_trainer.py, `generalized_jsd_loss`):
    logits over the temperature, their log-softmax, and the divergence of each token and word, of which those of
    completions are copied."""
    own = t.local(t.scale(student, "logits over the temperature"))
    other = t.local(t.scale(teacher, "logits over the temperature"))
    own = t.local(t.result_saved(own, "log-softmax of the logits"))
    other = t.local(t.result_saved(other, "log-softmax of the teacher's logits"))
    if t.objective.beta == 0:
        each = kl_divergence(t, own, other)
    elif t.objective.beta == 1:
        each = kl_divergence(t, other, own)
    else:
        each = divergence_from_mixture(t, own, other)
    part = each.columns * t.objective.completion // t.objective.sequence
    scored = t.new("divergences", part, each.width, each.unit)
    return loss_on(t, t.record(scored, [each], lambda gradient: t.into_zeros(each)))


@scoped
def divergence_from_mixture(t: Modules, own: Tracked, other: Tracked) -> Tracked:
    """Divergences of both distributions from their mixture, weighed, for each token and word."""
    mixture = t.local(log_mixture(t, own, other))
    of_teacher = t.local(kl_divergence(t, mixture, other))
    of_student = t.local(kl_divergence(t, mixture, own))
    name = "divergences"
    return t.add(t.scale(of_teacher, name), t.scale(of_student, name), name)


def log_mixture(t: Modules, own: Tracked, other: Tracked) -> Tracked:
    """Log-probabilities of the mixture, logsumexp(stack([own + a, other + b])): saves the stack and its result."""
    name, stacked = "log-probabilities of the mixture", "distributions of both models"
    parts = [t.copied(own, name), t.copied(other, name)]
    t.gradient_names = t.gradient_names | {2 * own.columns: LOGIT_GRADIENTS}
    stack = t.new(stacked, 2 * own.columns, own.width, own.unit)
    both = t.record(stack, parts, lambda gradient: [Tracked(gradient.storage, *own.size) for _ in parts])
    t.use(t.new_like(stacked, both), both)
    out = t.new(name, *own.size)
    # the difference, its exponential, that times the gradient
    return t.record(out, [both], lambda _: [t.gradient_by_steps(both, 3)], [both.storage, out.storage])


def kl_divergence(t: Modules, student: Tracked, target: Tracked) -> Tracked:
    """Divergence of each token and word: kl_div(student, target, log_target=True), exp(target)·(target - student)."""
    likely = t.result_saved(target, "probabilities of the vocabulary")
    return t.multiply(likely, t.subtract(target, student, "differences of log-probabilities"), "divergences")


def distillation_head(t: Modules, x: Tracked) -> Tracked:
    """Distillation's loss: head and divergence by tiles of scored tokens and vocabulary, all within autocast (TRL
    1.16, trainer/distillation_trainer.py, `_chunked_divergence_loss`). Of the teacher's pass its last states stay."""
    x = states_for_head(t, x)
    if not t.recording:
        t.mark_loss()
        return x
    t.mark_reference()
    loss = loss_on(t, tiled_divergence(t, x))
    t.leave_autocast()
    return loss


@scoped
def tiled_divergence(t: Modules, x: Tracked) -> Tracked:
    """Divergence of each scored token (TRL 1.16, kernels/chunked_divergence.py, `ChunkedDivergenceFunction`): tiles of
    both models' logits in fp32, made again on the way back, where the gradients of the policy's states and head add up
    in fp32."""
    table, teacher = head_weight(t), t.objective.teacher or t.model
    width = t.width if t.autocast else x.width
    t.mark_loss()
    other_columns = teacher.d_embedding or teacher.hidden
    states_of_teacher = t.local(t.new("states of the teacher", other_columns, x.width, x.unit))
    places = t.new("places of scored tokens", 2, 8, CountedBy.SCORED)
    scored = "states of scored tokens"
    chosen = t.local(t.gather(t.slice(x, x.columns), places, x.columns, scored))
    other = t.local(t.new(scored, other_columns, x.width, CountedBy.SCORED, states_of_teacher))
    sums = t.local(t.new("sums over tiles of logits", TEACHER_STATISTICS, 4, CountedBy.SCORED))

    def tile() -> list[Tracked]:
        """A tile of each model's logits, and what is cast for the products."""
        logits = [t.new("logits of a tile", TILE[1], 4, CountedBy.TILED) for _ in range(2)]
        return logits + [cast for read in (x, states_of_teacher) for cast in cast_for_tile(t, read.size, table, width)]

    t.use(*tile(), sums)

    def going_back() -> list[Tracked]:
        return [t.new("gradients of a tile of logits", TILE[1], width, CountedBy.TILED), *tile()]

    backward = summed_in_fp32(t, [chosen, table], going_back, keeps_tile=True)
    each = t.new("divergences", 1, 4, CountedBy.SCORED)
    saved = t.new("sums over tiles of logits", 3, 4, CountedBy.SCORED, each)
    return t.record(each, [chosen, table], backward, [chosen.storage, other.storage, saved.storage])
