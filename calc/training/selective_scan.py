"""The selective scan as transformers computes it where no other package does (`modeling_mamba.py`, class `MambaMixer`
and `mamba_selective_scan`): token by token, with what each of them makes of the state kept for the way back."""

from calc.model.recurrent import Mamba
from calc.training.autograd import CountedBy, TrackedTensor, scoped
from calc.training.modules import Modules
from calc.training.scans import mixed_by_convolution

STEPS = "steps of the scan in 32 bits"
STATES = "states of the scan"


@scoped
def selective_scan(t: Modules, mixer: Mamba, x: TrackedTensor) -> TrackedTensor:
    """A projection, a convolution, what the states depend on, the scan with a gate, and the output."""
    inner, states, before = mixer.d_inner, mixer.d_state, x.width
    projected = t.local(t.matrix(x, "in_proj", 2 * inner, "projected states", bias=mixer.bias))
    mixed, gate = t.split(projected, inner, inner)
    values = t.local(mixed_by_convolution(t, mixed))
    rows = values if t.settings.single else t.copied_view(values, "states behind the convolution")
    with t.alive(rows):
        made = t.local(t.matrix(rows, "x_proj", mixer.dt_rank + 2 * states, "steps, keys and queries"))
    rank, keys, queries = t.split(made, mixer.dt_rank, states, states)
    weight = t.weight(inner * mixer.dt_rank, t.settings.matrices, trained=t.settings.trains)
    step = t.local(t.linear(rank, weight, inner, "steps of the scan"))
    y = scanned(t, mixer, values, step, keys, queries)
    y = t.multiply(y, t.activation(gate, "gate of the recurrent block"), "gated output of the scan")
    y = t.cast(y, before, "gated output of the scan")
    y = y if t.settings.single else t.copied_view(y, "gated output of the scan")
    return t.matrix(
        t.local(y), "out_proj", x.columns, "output of the recurrent block", bias=mixer.bias, unit=CountedBy.STREAM
    )


@scoped
def scanned(
    t: Modules,
    mixer: Mamba,
    values: TrackedTensor,
    step: TrackedTensor,
    keys: TrackedTensor,
    queries: TrackedTensor,
) -> TrackedTensor:
    """`mamba_selective_scan`: each token's decays and updates of the whole state, then one state after the other."""
    inner, wide, trained = mixer.d_inner, mixer.d_inner * mixer.d_state, t.settings.trains
    step = t.add_weight(step, t.weight(inner, step.width, trained=trained), STEPS)
    with t.alive(step):
        step = t.local(t.activation(t.cast(step, 4, STEPS) if t.autocast else step, STEPS))
    rates = t.weight(wide, 4, trained=trained)
    decays = t.local(t.exponential(t.outer(step, rates, wide, STATES), STATES))
    shared = t.local(t.outer(step, t.cast(keys, 4, STEPS), wide, STATES))
    updates = t.local(t.outer(t.cast(values, 4, STEPS), shared, wide, STATES))
    out = token_by_token(t, decays, updates, queries, inner, values.width)
    skipped = t.local(t.multiply(t.weight(inner, 4, trained=trained), values, STEPS))
    return t.add(out, skipped, "output of the scan")


@scoped
def token_by_token(
    t: Modules, decays: TrackedTensor, updates: TrackedTensor, queries: TrackedTensor, columns: int, width: int
) -> TrackedTensor:
    """The state of each token is saved twice, in 32 bits and as it is read; going back, the gradients of decays and
    updates are put into zeros as large as those of all tokens, token by token, and added up."""
    kept = [decays.storage, queries.storage]
    if t.saves:
        kept += [t.local(t.new(STATES, decays.columns, each, decays.unit)).storage for each in {4, width}]
    outputs = t.new("outputs of tokens", columns, width, decays.unit)
    sides = [(part.columns, part.width, part.unit) for part in (decays, updates, queries)]

    def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
        of_inputs: list[TrackedTensor | None] = [t.gradient(side) for side in sides]
        t.gradient(sides[0], t.gradient(sides[0]))  # of zeros
        return of_inputs

    out = t.new("output of the scan", columns, width, decays.unit, outputs)
    return t.record(out, [decays, updates, queries], backward, kept)
