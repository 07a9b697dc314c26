"""Recurrent mixers in training, as transformers' own code computes them."""

from calc.model.linear_attention import GatedDeltaNet, LightningAttention
from calc.model.recurrent import Mamba, Mamba2, ShortConv
from calc.training.modules import Modules
from calc.training.tape import Backward, CountedBy, Gradients, Name, Tracked, scoped

OUTPUT = "output of the recurrent block"


@scoped
def short_convolution(t: Modules, mixer: ShortConv, x: Tracked) -> Tracked:
    """Two gates round a convolution of a few positions: LFM2."""
    h = mixer.d_inner
    projected = t.local(t.matrix(x, "in_proj", 3 * h, "gates and states of the convolution"))
    first, second, third = t.split(projected, h, h, h)
    y = t.activation(t.multiply(first, third, "gated states"), "output of the convolution")
    y = t.by_tokens(t.multiply(second, y, "gated output of the convolution"), "gated output of the convolution")
    return t.matrix(t.local(y), "out_proj", x.columns, OUTPUT, unit=CountedBy.STREAM)


# What the scans of recurrent layers are made of in transformers' own code.


@scoped
def causal_convolution(t: Modules, x: Tracked) -> Tracked:
    """silu of a convolution over a few positions (`causal_conv1d_fn`), which saves its input."""
    label = "output of the convolution"
    if t.autocast:
        x = t.local(t.cast(t.cast(x, 4, label), t.width, "inputs of the convolution in 16 bits"))
    out = t.local(t.activation(x, label))
    return t.activation(t.slice(out, out.columns), "states behind the convolution")


def padded_to_chunks(t: Modules, x: Tracked, chunk: int, name: Name) -> Tracked:
    """F.pad to whole chunks: a copy."""
    return t.resized(x, chunk * x.columns, name, unit=CountedBy.CHUNK)


@scoped
def gated_norm(t: Modules, x: Tracked, gate: Tracked, heads: int, size: int) -> Tracked:
    """norm(x)·silu(gate) with the gate in 32 bits (`Qwen3_5RMSNormGated`), or with the weight too
    (`LaraMiniRMSNormGated`)."""
    before, label = x.width, "normed output of the scan"
    wide, weight = t.local(t.cast(x, 4, label)), t.parameter(size)
    normed = t.multiply(wide, t.inverse_rms(wide, heads), label)
    if t.kernels.fp32_gated_norm:
        weight = t.cast(weight, 4, "weights in 32 bits")
    else:
        normed = t.cast(normed, before, label)
    normed = t.local(normed)
    x = t.local(t.multiply(weight, normed, label))
    t.free(wide, normed)
    gate = t.local(t.activation(t.cast(gate, 4, "gate in 32 bits"), "gate in 32 bits"))
    return t.cast(t.multiply(x, gate, "gated output of the scan"), before, "gated output of the scan")


@scoped
def scan_over_chunks(
    t: Modules, out: Tracked, new_values: Tracked, parts: tuple[Tracked, ...], *, values: int, state: int
) -> Tracked:
    """One chunk after the other: each saves its part of all inputs, the values that it adds and the state before it; in
    copies of 16 bits under autocast, where the first chunk needs no input but for its products within, and the last
    none for a state that nobody reads. Going back, the gradient of each input is put into zeros as large as the whole,
    chunk by chunk, and added up."""
    saved = [] if t.autocast else [part.storage for part in parts]
    if t.saves:
        saved += [t.local(tensor).storage for tensor in saved_by_chunks(t, parts, values, state)]
    t.new("states of chunks", 4 * state, 4, CountedBy.SEQUENCE)  # in passing
    inputs = [new_values, *parts]
    widest = max(part.size for part in inputs)

    def backward(gradient: Tracked) -> Gradients:
        copy = t.gradient_like(gradient)
        t.free(gradient)
        of_inputs: Gradients = [t.gradient(part) for part in inputs]
        zeros = t.gradient(widest)
        t.gradient(widest, copy, zeros)
        return of_inputs

    return t.record(out.view(), inputs, backward, saved)


def saved_by_chunks(t: Modules, parts: tuple[Tracked, ...], values: int, state: int) -> list[Tracked]:
    """Tensors that chunks save besides their parts of the inputs."""
    if not t.autocast:
        columns = {"values of chunks": values, "states of chunks": state}
        return [t.new(name, size, 4, CountedBy.CHUNK) for name, size in columns.items()]
    inputs = "inputs of the scan in 16 bits"
    corrections, query, within, key = (part.columns for part in parts)
    return [
        t.new(inputs, within + values + 2 * state, 2, CountedBy.CHUNK),
        t.new(inputs, corrections + query + key + values, 2, CountedBy.FOLLOWED),
        t.new("states of chunks", state, 4, CountedBy.FOLLOWED),
    ]


@scoped
def einsum(
    t: Modules, a: Tracked, b: Tracked, columns: int, name: Name, copies: tuple[bool, bool] = (True, True)
) -> Tracked:
    """torch.einsum as one product, for which factors are copied that do not lie so; in 16 bits under autocast."""
    label = "factors of products within chunks"
    if t.autocast:
        a, b = t.local(t.cast(a, t.width, label)), t.local(t.cast(b, t.width, label))
    first, second = (t.copied(x, label) if copied else x for x, copied in zip((a, b), copies, strict=True))
    return t.product(first, second, columns, CountedBy.CHUNK, name)


# The gated delta rule as transformers computes it where no other package does (`modeling_qwen3_5.py`, class
# `Qwen3_5GatedDeltaNet` and `torch_chunk_gated_delta_rule`; Qwen3-Next's and OLMo Hybrid's are the same).


Projected = tuple[Tracked, Tracked | None, Tracked, Tracked, Tracked | None]
"""Queries, keys and values side by side, the gate (None: it is made after the scan), what strengths and decays are made
of, and what the layer holds on to without a need."""


@scoped
def gated_delta_net(t: Modules, mixer: GatedDeltaNet, x: Tracked) -> Tracked:
    """Projections, a convolution, the delta rule, and a norm with a gate."""
    k, v = mixer.n_k * mixer.d_k, mixer.n_v * mixer.d_v
    mixed, z, b, a, extra = projections(t, mixer, x)
    b, a, extra = t.local(b), t.local(a), extra and t.local(extra)
    query, key, value = t.split(causal_convolution(t, mixed), k, k, v)
    strength = t.local(t.result_saved(b, "strengths of updates"))
    decay = t.local(decays(t, mixer, a))
    y = delta_rule(t, mixer, query, key, value, strength, decay)
    z = t.local(t.matrix(x, "in_z", v, "gate of the recurrent block") if z is None else z)
    y = gated_norm(t, y, z, mixer.n_v, mixer.d_v)
    if extra is not None:
        t.free(extra)
    return t.matrix(t.local(y), "out_proj", x.columns, OUTPUT, unit=CountedBy.STREAM)


@scoped
def projections(t: Modules, mixer: GatedDeltaNet, x: Tracked) -> Projected:
    """Queries, keys and values side by side, a gate, and what strengths and decays are made of."""
    k, v, label = mixer.n_k * mixer.d_k, mixer.n_v * mixer.d_v, "queries, keys and values"
    if t.packs("in_q", "in_z"):
        both = t.matrix(x, "in_q", 2 * k + 2 * v, "queries, keys, values and gate")
        rates = t.split(t.local(t.matrix(x, "in_b", 2 * mixer.n_v, "strengths and decays")), mixer.n_v, mixer.n_v)
        parts = [t.copied(part, label) for part in t.split(both, k, k, v, v)]
        b, a = (t.copied(part, "strengths and decays") for part in rates)
        return t.concatenate(parts[:3], label), parts[3], b, a, both
    if t.packs("in_q", "in_k", "in_v"):
        mixed = t.matrix(x, "in_q", 2 * k + v, label)
        z: Tracked | None = t.matrix(x, "in_z", v, "gate of the recurrent block")
    else:
        parts = [t.matrix(x, f"in_{name}", columns, label) for name, columns in (("q", k), ("k", k), ("v", v))]
        mixed, z = t.concatenate(parts, label), None
    b, a = (t.matrix(x, name, mixer.n_v, "strengths and decays") for name in ("in_b", "in_a"))
    return mixed, z, b, a, None


@scoped
def decays(t: Modules, mixer: GatedDeltaNet, a: Tracked) -> Tracked:
    """-exp(A)·softplus(a + bias), in 32 bits."""
    label = "decays in 32 bits"
    bias, rate = t.parameter(mixer.n_v), t.parameter(mixer.n_v, 4)
    return t.multiply(rate, t.activation(t.add_weight(t.cast(a, 4, label), bias, label), label), label)


@scoped
def delta_rule(
    t: Modules, mixer: GatedDeltaNet, query: Tracked, key: Tracked, value: Tracked, strength: Tracked, decay: Tracked
) -> Tracked:
    """`torch_chunk_gated_delta_rule`, in 32 bits: within chunks of 64 tokens all at once, from chunk to chunk by a
    state for each head."""
    n, d_k, d_v, c, before = mixer.n_v, mixer.d_k, mixer.d_v, mixer.chunk, query.width
    pairs, label, wide = n * c * c, "states within chunks", "states of the scan in 32 bits"
    if mixer.n_k != n:
        query, key = (t.repeat(part, n // mixer.n_k, "queries and keys of every value head") for part in (query, key))
    with t.alive(query, key, value, strength, decay):
        parts = [t.copied_in(part, 4, wide) for part in (query, key, value, strength, decay)]
    query, key, value, strength, decay = parts
    query = t.multiply(query, t.inverse_norm(query, n, label), label)
    key = t.multiply(key, t.inverse_norm(key, n, label), label)
    query = t.scale(query, label)
    with t.alive(query, key, value):
        query, key, value = (padded_to_chunks(t, part, c, wide) for part in (query, key, value))
    t.local(value)
    with t.alive(strength, decay):
        strength, decay = (t.local(padded_to_chunks(t, part, c, wide)) for part in (strength, decay))
    value_update = t.local(t.multiply(value, strength, label))
    key_update = t.local(t.multiply(key, strength, label))
    total = t.local(t.copied(decay, "decays in 32 bits"))
    pairwise = t.scale(t.difference_of_all(total, pairs, PAIR_DECAYS), PAIR_DECAYS)
    between = t.local(t.exponential(pairwise, PAIR_DECAYS))
    system = t.local(t.multiply(t.matmul(key_update, key, pairs, label), between, label))
    within = t.local(t.multiply(t.matmul(query, key, pairs, label), between, label))
    decayed = t.local(t.multiply(key_update, t.exponential(total, "decays in 32 bits"), label))
    new_values = t.local(t.solve_triangular(system, value_update, label))
    corrections = t.local(t.solve_triangular(system, decayed, label))
    out = t.new_like("output of the scan in 32 bits", new_values)
    query = t.local(t.multiply(query, t.exponential(total, "decays in 32 bits"), label))
    left = t.local(t.exponential(t.copied(total, "decays in 32 bits"), "decays in 32 bits"))
    key = t.local(t.multiply(key, left, label))
    inputs = (corrections, query, within, key)
    t.local(t.new("values of chunks", 2 * n * c * d_v, 4, CountedBy.SEQUENCE))  # what the loop leaves under its names
    out = scan_over_chunks(t, out, new_values, inputs, values=n * c * d_v, state=n * d_k * d_v)
    out = t.copied(out, "output of the scan in 32 bits")
    # without the tokens that fill up the last chunk
    return t.resized(out, n * d_v, "output of the scan", width=before, unit=CountedBy.TOKEN)


# Lightning attention as transformers computes it (`modeling_minimax.py`, class `MiniMaxLightningAttention`): blocks of
# tokens with a matrix of keys times values carried from one to the next.


@scoped
def lightning_attention(t: Modules, mixer: LightningAttention, x: Tracked) -> Tracked:
    """Activated queries, keys and values, attention block by block, a norm and a gate."""
    wide, label = mixer.n_heads * mixer.d_head, "queries, keys and values"
    packed = t.local(t.activation(t.matrix(x, "qkv_proj", 3 * wide, label), label))
    out = t.copied(lightning_blocks(t, mixer, *t.split(packed, wide, wide, wide)), "output of the scan")
    with t.alive(out):
        out = t.norm(out, "rms", "normed output of the scan")
    label = "gate of the recurrent block"
    gate = t.local(t.result_saved(t.matrix(x, "output_gate", wide, label), label))
    out = t.multiply(gate, out, "gated output of the scan")
    return t.matrix(t.local(out), "out_proj", x.columns, OUTPUT, unit=CountedBy.STREAM)


@scoped
def lightning_blocks(t: Modules, mixer: LightningAttention, q: Tracked, k: Tracked, v: Tracked) -> Tracked:
    """Each block saves its decayed scores, decayed queries and keys for the states of other blocks, and the state
    before it. Going back, the gradients of blocks are put into zeros as large as the whole."""
    n, c, wide, width = mixer.n_heads, mixer.chunk, q.columns, t.width if t.autocast else q.width
    inputs = (q, k, v)
    saved = [part.storage for part in inputs]
    if t.saves:
        saved.append(t.local(t.new(CHUNK_STATES, n * c * c, width, CountedBy.CHUNK)).storage)
        saved.append(t.local(t.new(CHUNK_STATES, 2 * c * wide, width, CountedBy.FOLLOWED)).storage)
        saved.append(t.local(t.new("states of chunks", wide * mixer.d_head, width, CountedBy.CHUNK)).storage)
    blocks = t.new("output of the scan", wide, q.width, q.unit)
    out = t.new("output of the scan", wide, q.width, q.unit, blocks)
    return t.record(out, inputs, gradients_by_parts(t, *inputs), saved)


def gradients_by_parts(t: Modules, *inputs: Tracked) -> Backward:
    """The backward of a loop over parts of all tokens, each of which puts the gradient of its own part into zeros as
    large as the whole."""

    def backward(gradient: Tracked) -> Gradients:
        of_inputs: Gradients = [t.gradient(part) for part in inputs]
        t.into_zeros(inputs[0])
        return of_inputs

    return backward


# State space duality as transformers computes it where no other package does (`modeling_mamba2.py`, class
# `Mamba2Mixer` and `mamba2_chunk_scan`; Bamba's, Falcon-H1's, Granite's, Nemotron-H's and Zamba2's are the same).


SCAN_INPUTS = "states of the scan in 32 bits"
CHUNK_STATES = "states within chunks"
DECAYS = "decays in 32 bits"
PAIR_DECAYS = "decays between tokens of a chunk"


@scoped
def mamba2(t: Modules, mixer: Mamba2, x: Tracked) -> Tracked:
    """A projection, a convolution, the scan, and a norm with a gate before it."""
    inner, shared = mixer.n_heads * mixer.d_head, mixer.n_groups * mixer.d_state
    hidden, before = x.columns, x.width
    label: Name = "projected states"
    if t.kernels.multiplied:
        x = t.local(t.scale(x, "states, multiplied"))
    projected = t.matrix(x, "in_proj", inner + mixer.channels() + mixer.n_heads, label, bias=mixer.bias)
    if t.kernels.multiplied:
        projected = t.multiply(t.weight(projected.columns, t.settings.rest_width, trained=False), projected, label)
    t.free(x)
    gate, mixed, step = t.split(t.local(projected), inner, mixer.channels(), mixer.n_heads)
    values, keys, queries = t.split(t.local(causal_convolution(t, mixed)), inner, shared, shared)
    y = chunk_scan(t, mixer, values, keys, queries, step)
    y = gated_output(t, mixer, y, gate)
    y = t.cast(y, before, "gated output of the scan")
    bias = mixer.bias if mixer.out_bias is None else mixer.out_bias
    return t.matrix(t.local(y), "out_proj", hidden, OUTPUT, bias=bias, unit=CountedBy.STREAM)


@scoped
def gated_output(t: Modules, mixer: Mamba2, y: Tracked, gate: Tracked) -> Tracked:
    """norm(y·silu(gate)), in 32 bits; or without a norm, in the type of the gate."""
    label = "gated output of the scan"
    if not mixer.norm:
        return t.multiply(y, t.activation(gate, "gate of the recurrent block"), label)
    y = t.local(t.multiply(y, t.activation(t.cast(gate, 4, "gate in 32 bits"), "gate in 32 bits"), label))
    normed = t.local(t.multiply(y, t.inverse_rms(y, mixer.n_groups), "normed output of the scan"))
    return t.multiply(t.parameter(y.columns), normed, label)


@scoped
def chunk_scan(t: Modules, mixer: Mamba2, values: Tracked, keys: Tracked, queries: Tracked, step: Tracked) -> Tracked:
    """`mamba2_chunk_scan`, in 32 bits: products of all tokens within chunks, the state of each chunk, and what that of
    those before adds."""
    n, c, wide = mixer.n_heads, mixer.chunk, mixer.n_heads * mixer.d_state
    inner, state = n * mixer.d_head, n * mixer.d_head * mixer.d_state
    step = t.add_weight(step, t.parameter(n, step.width), DECAYS)
    with t.alive(step):
        step = t.activation(t.cast(step, 4, DECAYS) if t.autocast else step, DECAYS)
    step = t.local(t.activation(step, DECAYS))
    values = t.cast(values, 4, SCAN_INPUTS)
    # x.repeat_interleave(...): what groups share, for each of their heads; a copy even where each has one
    keys, queries = (t.resized(t.cast(part, 4, SCAN_INPUTS), wide, SCAN_INPUTS) for part in (keys, queries))
    residual = t.local(t.multiply(t.parameter(n), padded_to_chunks(t, values, c, SCAN_INPUTS), CHUNK_STATES))
    values = t.multiply(values, t.cast(step, 4, DECAYS), SCAN_INPUTS)
    decay = t.multiply(t.parameter(n, 4), t.cast(step, 4, DECAYS), DECAYS)
    with t.alive(values, decay, keys, queries):
        parts = [t.local(padded_to_chunks(t, part, c, SCAN_INPUTS)) for part in (values, decay, keys, queries)]
    values, decay, keys, queries = parts
    total = t.local(t.copied(decay, DECAYS))
    between = t.local(t.exponential(segment_sums(t, decay, n * c * c), PAIR_DECAYS))
    scores = t.local(einsum(t, queries, keys, n * c * c, CHUNK_STATES))
    weights = t.local(t.multiply(scores, between, CHUNK_STATES))
    within = t.local(einsum(t, weights, values, c * inner, CHUNK_STATES, copies=(False, True)))
    left = t.local(t.exponential(t.copied(total, DECAYS), DECAYS))
    decayed = t.local(t.multiply(keys, left, CHUNK_STATES))
    states = einsum(t, decayed, values, state, "states of chunks")
    t.local(t.new("states of chunks", 2 * state, states.width, CountedBy.SEQUENCE))  # the first ones and the last
    before = t.local(states_before(t, states, state))
    out_decay = t.local(t.exponential(total, DECAYS))
    carried = t.local(einsum(t, queries, before, c * inner, CHUNK_STATES))
    across = t.local(t.multiply(carried, out_decay, CHUNK_STATES))
    out = t.add(t.copied(t.add(within, across, CHUNK_STATES), CHUNK_STATES), residual, CHUNK_STATES)
    # the memory of chunks by tokens
    return t.record(out.view(inner, CountedBy.TOKEN), [out], lambda gradient: [Tracked(gradient.storage, *out.size)])


@scoped
def segment_sums(t: Modules, decay: Tracked, pairs: int) -> Tracked:
    """`segment_sum`: decays repeated for all pairs of tokens, masked, summed up, and masked again."""

    out = t.new(PAIR_DECAYS, pairs, decay.width, decay.unit)
    repeated = t.local(t.record(out, [decay], t.through_copy(decay)))  # of which some are masked
    # going back, turned round, summed up, turned round
    sums = t.record(t.new_like(PAIR_DECAYS, repeated), [repeated], lambda gradient: [t.gradient_by_steps(gradient, 3)])
    return t.scale(t.local(sums), PAIR_DECAYS)


@scoped
def states_before(t: Modules, states: Tracked, state: int) -> Tracked:
    """The state before each chunk, of all before it: a product that saves the states, which are joined to that before
    the first."""
    label, width = "states of chunks", states.width
    joined = t.copied(states, label)
    first = t.new(label, state, width, CountedBy.SEQUENCE)
    t.free(states)
    if not t.settings.single:
        with t.alive(joined, first):
            joined, first = t.copied(joined, label), t.new(label, state, width, CountedBy.SEQUENCE)

    t.local(joined)
    t.local(first)
    out = t.new_like(label, joined)
    # going back, the gradient of all but the last is put into zeros
    return t.record(out, [joined], t.through_copy(joined), [joined.storage, first.storage])


# The selective scan as transformers computes it where no other package does (`modeling_mamba.py`, class `MambaMixer`
# and `mamba_selective_scan`): token by token, with what each of them makes of the state kept for the way back.


STEPS = "steps of the scan in 32 bits"
STATES = "states of the scan"


@scoped
def mamba(t: Modules, mixer: Mamba, x: Tracked) -> Tracked:
    """A projection, a convolution, what the states depend on, the scan with a gate, and the output."""
    inner, states, before = mixer.d_inner, mixer.d_state, x.width
    projected = t.local(t.matrix(x, "in_proj", 2 * inner, "projected states", bias=mixer.bias))
    mixed, gate = t.split(projected, inner, inner)
    values = t.local(causal_convolution(t, mixed))
    rows = values if t.settings.single else t.copied(values, "states behind the convolution")
    with t.alive(rows):
        made = t.local(t.matrix(rows, "x_proj", mixer.dt_rank + 2 * states, "steps, keys and queries"))
    rank, keys, queries = t.split(made, mixer.dt_rank, states, states)
    weight = t.parameter(inner * mixer.dt_rank, t.settings.matrix_width)
    step = t.local(t.linear(rank, weight, inner, "steps of the scan"))
    y = mamba_scan(t, mixer, values, step, keys, queries)
    y = t.multiply(y, t.activation(gate, "gate of the recurrent block"), "gated output of the scan")
    y = t.cast(y, before, "gated output of the scan")
    y = y if t.settings.single else t.copied(y, "gated output of the scan")
    return t.matrix(t.local(y), "out_proj", x.columns, OUTPUT, bias=mixer.bias, unit=CountedBy.STREAM)


@scoped
def mamba_scan(t: Modules, mixer: Mamba, values: Tracked, step: Tracked, keys: Tracked, queries: Tracked) -> Tracked:
    """`mamba_selective_scan`: each token's decays and updates of the whole state, then one state after the other."""
    inner, wide = mixer.d_inner, mixer.d_inner * mixer.d_state
    step = t.add_weight(step, t.parameter(inner, step.width), STEPS)
    with t.alive(step):
        step = t.local(t.activation(t.cast(step, 4, STEPS) if t.autocast else step, STEPS))
    rates = t.parameter(wide, 4)
    decays = t.local(t.exponential(t.outer_product(step, rates, wide, STATES), STATES))
    shared = t.local(t.outer_product(step, t.cast(keys, 4, STEPS), wide, STATES))
    updates = t.local(t.outer_product(t.cast(values, 4, STEPS), shared, wide, STATES))
    out = token_by_token(t, decays, updates, queries, inner, values.width)
    skipped = t.local(t.multiply(t.parameter(inner, 4), values, STEPS))
    return t.add(out, skipped, "output of the scan")


@scoped
def token_by_token(
    t: Modules, decays: Tracked, updates: Tracked, queries: Tracked, columns: int, width: int
) -> Tracked:
    """The state of each token is saved twice, in 32 bits and as it is read; going back, the gradients of decays and
    updates are put into zeros as large as those of all tokens, token by token, and added up."""
    saved = [decays.storage, queries.storage]
    if t.saves:
        saved += [t.local(t.new(STATES, decays.columns, each, decays.unit)).storage for each in {4, width}]
    outputs = t.new("outputs of tokens", columns, width, decays.unit)
    out = t.new("output of the scan", columns, width, decays.unit, outputs)
    inputs = decays, updates, queries
    return t.record(out, inputs, gradients_by_parts(t, *inputs), saved)
