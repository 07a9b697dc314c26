"""The ends of a model: the embedding, and the head with the loss."""

from collections.abc import Sequence

from calc.model.architecture import Architecture
from calc.training.autograd import Tensor, Unit
from calc.training.modules import Modules
from calc.training.training_workload import TrainingWorkload


def embedding(t: Modules, model: Architecture) -> Tensor:
    """What the first layer reads: rows of the table, scaled or with those of positions where the family does so."""
    width, trained, h = t.settings.rest, t.settings.trains, model.d_embedding or model.hidden
    table = t.weight(model.vocab * h, width, trained=trained)
    x = t.look_up(table, h, width, "embedded tokens")
    if t.kernels.scaled_embedding:
        x = t.scale(x, "embedded tokens, scaled")
    if model.positions:
        places = t.weight(model.positions * h, width, trained=trained)
        x = t.add(x, t.look_up(places, h, width, "embedded positions", Unit.POSITION), "embedded tokens")
    if t.kernels.dropout:
        x = t.dropout(x, "embedded tokens after dropout")
    if t.settings.inputs_need_gradients and x.node is None:
        t.leaf(x)
    return x


def head(t: Modules, model: Architecture, work: TrainingWorkload, x: Tensor) -> Tensor:
    """The loss of the last layer's output."""
    x = t.norm(x, t.kernels.norm_kind(model.final_norm), "states that the head reads")
    size = model.vocab * (model.d_embedding or model.hidden)
    table = t.weight(size, t.settings.rest, trained=t.settings.trains, tied=model.tied)
    if work.loss == "fused":
        return t.fused_loss(x, table, model.vocab)
    if work.loss == "chunked":
        return chunked(t, x, table, model.vocab, work.loss_chunks)
    logits = t.linear(x, table, model.vocab, "logits")
    t.mark_loss()
    if t.kernels.capped_logits:
        logits = t.scale(logits, "logits")
        logits = t.result_saved(logits, "logits capped")
        logits = t.scale(logits, "logits")
    loss = whole(t, logits)
    if work.keeps_outputs:
        t.keep(logits)
    return loss


def whole(t: Modules, logits: Tensor) -> Tensor:
    """transformers' ForCausalLMLoss: cross entropy in 32 bits."""
    logits = t.cast(logits, 4, "logits in 32 bits")
    return t.cross_entropy(logits)
