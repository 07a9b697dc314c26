"""Log-probabilities of tokens as TRL makes them: by a fused head, which builds no logits, or from whole logits row by
row; the entropies that it logs, and hidden states that a trainer asks the model for (output_hidden_states)."""

from calc.model.architecture import Architecture
from calc.training.ends import TILE, finished_logits, output_table, scalar, single_kernel_loss, states, summed_in_fp32
from calc.training.operations import Modules
from calc.training.tape import CountedBy, TrackedTensor, scoped
from calc.training.workload import Objective

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
        whole, copy = x, t.new("states of scored tokens", x.columns, x.width, CountedBy.LOGITS)
        x = t.local(t.record(copy, [x], lambda gradient: [t.gradient(whole)]))
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
    """In fp32: the labels' logits less a log-sum-exp for each row. Both save the logits. Going back, a gradient of each
    row and their stack, then zeros into which those of the labels are scattered."""
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
    """In 16 bits: a log-softmax of each row, which is saved, and whose gradient takes its place row by row; then their
    stack."""
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
    """The loss: a number."""
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
