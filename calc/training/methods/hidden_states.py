"""Hidden states that a trainer asks the model for (output_hidden_states), as accelerate returns them."""

from calc.model.architecture import Architecture
from calc.training.modules import Modules
from calc.training.tape import TrackedTensor


def hidden_states(t: Modules, model: Architecture) -> TrackedTensor:
    """What all layers read."""
    return t.new("hidden states", model.num_layers * model.hidden, t.settings.rest)


def casts_states(t: Modules) -> bool:
    """Whether accelerate makes fp32 copies of hidden states."""
    return t.settings.autocast and t.settings.rest == 2


def wide_states(t: Modules, model: Architecture) -> TrackedTensor:
    """Outputs of the embedding, of all layers and of the last norm in fp32."""
    return t.new("hidden states in 32 bits", (model.num_layers + 1) * model.hidden, 4)


def returned(
    t: Modules, model: Architecture, logits: TrackedTensor, states: list[TrackedTensor]
) -> list[TrackedTensor]:
    """Logits and hidden states as the trainer gets them."""
    if not t.settings.autocast:
        return [logits, *states]
    wide = t.cast(logits, 4, "logits in 32 bits")
    cast = [wide_states(t, model)] if casts_states(t) else states
    t.use(logits, *states)
    return [wide, *cast]
