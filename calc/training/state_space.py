"""State space duality as transformers computes it where no other package does (`modeling_mamba2.py`, class
`Mamba2Mixer` and `mamba2_chunk_scan`; Bamba's, Falcon-H1's, Granite's, Nemotron-H's and Zamba2's are the same)."""

from calc.model.recurrent import Mamba2
from calc.training.autograd import CountedBy, Name, TrackedTensor, scoped
from calc.training.modules import Modules
from calc.training.scans import as_tokens, chunked, einsum, mixed_by_convolution, spread

WIDE = "states of the scan in 32 bits"
WITHIN = "states within chunks"
DECAYS = "decays in 32 bits"
PAIRS = "decays between tokens of a chunk"


@scoped
def state_space(t: Modules, mixer: Mamba2, x: TrackedTensor) -> TrackedTensor:
    """A projection, a convolution, the scan, and a norm with a gate before it."""
    inner, shared = mixer.n_heads * mixer.d_head, mixer.n_groups * mixer.d_state
    hidden, before = x.columns, x.width
    label: Name = "projected states"
    if t.kernels.multiplied:
        x = t.local(t.scale(x, "states, multiplied"))
    projected = t.matrix(x, "in_proj", inner + mixer.channels() + mixer.n_heads, label, bias=mixer.bias)
    if t.kernels.multiplied:
        projected = t.multiply(t.weight(projected.columns, t.settings.rest, trained=False), projected, label)
    t.free(x)
    gate, mixed, step = t.split(t.local(projected), inner, mixer.channels(), mixer.n_heads)
    values, keys, queries = t.split(t.local(mixed_by_convolution(t, mixed)), inner, shared, shared)
    y = chunk_scan(t, mixer, values, keys, queries, step)
    y = gated(t, mixer, y, gate)
    y = t.cast(y, before, "gated output of the scan")
    bias = mixer.bias if mixer.out_bias is None else mixer.out_bias
    return t.matrix(t.local(y), "out_proj", hidden, "output of the recurrent block", bias=bias, unit=CountedBy.STREAM)


@scoped
def gated(t: Modules, mixer: Mamba2, y: TrackedTensor, gate: TrackedTensor) -> TrackedTensor:
    """norm(y·silu(gate)), in 32 bits; or without a norm, in the type of the gate."""
    label = "gated output of the scan"
    if not mixer.norm:
        return t.multiply(y, t.activation(gate, "gate of the recurrent block"), label)
    y = t.local(t.multiply(y, t.activation(t.cast(gate, 4, "gate in 32 bits"), "gate in 32 bits"), label))
    normed = t.local(t.multiply(y, t.inverse_rms(y, mixer.n_groups), "normed output of the scan"))
    return t.multiply(t.weight(y.columns, t.settings.rest, trained=t.settings.trains), normed, label)


@scoped
def chunk_scan(
    t: Modules,
    mixer: Mamba2,
    values: TrackedTensor,
    keys: TrackedTensor,
    queries: TrackedTensor,
    step: TrackedTensor,
) -> TrackedTensor:
    """`mamba2_chunk_scan`, in 32 bits: products of all tokens within chunks, the state of each chunk, and what that of
    those before adds."""
    n, c, wide = mixer.n_heads, mixer.chunk, mixer.n_heads * mixer.d_state
    inner, state = n * mixer.d_head, n * mixer.d_head * mixer.d_state
    trained = t.settings.trains
    step = t.add_weight(step, t.weight(n, step.width, trained=trained), DECAYS)
    with t.alive(step):
        step = t.activation(t.cast(step, 4, DECAYS) if t.autocast else step, DECAYS)
    step = t.local(t.activation(step, DECAYS))
    values = t.cast(values, 4, WIDE)
    keys, queries = (spread(t, t.cast(part, 4, WIDE), wide, WIDE) for part in (keys, queries))
    residual = t.local(t.multiply(t.weight(n, t.settings.rest, trained=trained), chunked(t, values, c, WIDE), WITHIN))
    values = t.multiply(values, t.cast(step, 4, DECAYS), WIDE)
    decay = t.multiply(t.weight(n, 4, trained=trained), t.cast(step, 4, DECAYS), DECAYS)
    with t.alive(values, decay, keys, queries):
        parts = [t.local(chunked(t, part, c, WIDE)) for part in (values, decay, keys, queries)]
    values, decay, keys, queries = parts
    total = t.local(t.shift(decay, DECAYS))
    between = t.local(t.exponential(segment_sums(t, decay, n * c * c), PAIRS))
    scores = t.local(einsum(t, queries, keys, n * c * c, WITHIN))
    weights = t.local(t.multiply(scores, between, WITHIN))
    within = t.local(einsum(t, weights, values, c * inner, WITHIN, copies=(False, True)))
    left = t.local(t.exponential(t.shift(total, DECAYS), DECAYS))
    decayed = t.local(t.multiply(keys, left, WITHIN))
    states = einsum(t, decayed, values, state, "states of chunks")
    t.local(t.new("states of chunks", 2 * state, states.width, CountedBy.SEQUENCE))  # the first ones and the last
    before = t.local(states_before(t, states, state))
    out_decay = t.local(t.exponential(total, DECAYS))
    carried = t.local(einsum(t, queries, before, c * inner, WITHIN))
    across = t.local(t.multiply(carried, out_decay, WITHIN))
    out = t.add(t.copied_view(t.add(within, across, WITHIN), WITHIN), residual, WITHIN)
    return as_tokens(t, out, inner)


@scoped
def segment_sums(t: Modules, decay: TrackedTensor, pairs: int) -> TrackedTensor:
    """`segment_sum`: decays repeated for all pairs of tokens, masked, summed up, and masked again."""
    side = decay.columns, decay.width, decay.unit

    def of_repeated(gradient: TrackedTensor) -> list[TrackedTensor | None]:
        masked = t.again(gradient)
        t.free(gradient)
        return [t.gradient(side, masked)]

    def of_sums(gradient: TrackedTensor) -> list[TrackedTensor | None]:
        return [t.steps(gradient, 3)]  # turned round, summed up, turned round

    repeated = t.local(t.record(t.new(PAIRS, pairs, decay.width, decay.unit), [decay], of_repeated))
    sums = t.local(t.record(t.like(PAIRS, repeated), [repeated], of_sums))
    return t.scale(sums, PAIRS)


@scoped
def states_before(t: Modules, states: TrackedTensor, state: int) -> TrackedTensor:
    """The state before each chunk, of all before it: a product that saves the states, which are joined to that before
    the first."""
    label, width = "states of chunks", states.width
    joined = t.record(t.like(label, states), [states], t.passing)
    first = t.new(label, state, width, CountedBy.SEQUENCE)
    t.free(states)
    if not t.settings.single:
        with t.alive(joined, first):
            joined, first = t.copied_view(joined, label), t.new(label, state, width, CountedBy.SEQUENCE)
    side = joined.columns, joined.width, joined.unit

    def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
        whole = t.again(gradient)  # zeros, into which the gradient of all but the last is put
        t.free(gradient)
        return [t.gradient(side, whole)]

    t.local(joined)
    t.local(first)
    out = t.like(label, joined)
    return t.record(out, [joined], backward, [joined.storage, first.storage])
