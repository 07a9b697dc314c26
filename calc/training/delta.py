"""The gated delta rule as transformers computes it where no other package does (`modeling_qwen3_5.py`, class
`Qwen3_5GatedDeltaNet` and `torch_chunk_gated_delta_rule`; Qwen3-Next's and OLMo Hybrid's are the same)."""

from typing import NamedTuple

from calc.model.linear_attention import GatedDeltaNet
from calc.training.autograd import CountedBy, TrackedTensor, scoped
from calc.training.modules import Modules
from calc.training.scans import chunked, gated_norm, mixed_by_convolution, scan_over_chunks

PAIRS = "decays between tokens of a chunk"


class Projected(NamedTuple):
    """What the projections make of the layer's input."""

    mixed: TrackedTensor  # queries, keys and values side by side
    gate: TrackedTensor | None  # None: it is made after the scan
    strength: TrackedTensor
    decay: TrackedTensor
    held: TrackedTensor | None = None  # what the layer holds on to without a need


@scoped
def gated_delta(t: Modules, mixer: GatedDeltaNet, x: TrackedTensor) -> TrackedTensor:
    """Projections, a convolution, the delta rule, and a norm with a gate."""
    k, v = mixer.n_k * mixer.d_k, mixer.n_v * mixer.d_v
    mixed, z, b, a, held = projections(t, mixer, x)
    b, a, held = t.local(b), t.local(a), held and t.local(held)
    query, key, value = t.split(mixed_by_convolution(t, mixed), k, k, v)
    strength = t.local(t.result_saved(b, "strengths of updates"))
    decay = t.local(decays(t, mixer, a))
    y = delta_rule(t, mixer, query, key, value, strength, decay)
    z = t.local(t.matrix(x, "in_z", v, "gate of the recurrent block") if z is None else z)
    y = gated_norm(t, y, z, mixer.n_v, mixer.d_v)
    if held is not None:
        t.free(held)
    return t.matrix(t.local(y), "out_proj", x.columns, "output of the recurrent block", unit=CountedBy.STREAM)


@scoped
def projections(t: Modules, mixer: GatedDeltaNet, x: TrackedTensor) -> Projected:
    """Queries, keys and values side by side, a gate, and what strengths and decays are made of."""
    k, v, label = mixer.n_k * mixer.d_k, mixer.n_v * mixer.d_v, "queries, keys and values"
    if t.packs("in_q", "in_z"):
        both = t.matrix(x, "in_q", 2 * k + 2 * v, "queries, keys, values and gate")
        rates = t.split(t.local(t.matrix(x, "in_b", 2 * mixer.n_v, "strengths and decays")), mixer.n_v, mixer.n_v)
        parts = [t.copied_view(part, label) for part in t.split(both, k, k, v, v)]
        b, a = (t.copied_view(part, "strengths and decays") for part in rates)
        return Projected(t.concatenate(parts[:3], label), parts[3], b, a, both)
    if t.packs("in_q", "in_k", "in_v"):
        mixed = t.matrix(x, "in_q", 2 * k + v, label)
        z = t.matrix(x, "in_z", v, "gate of the recurrent block")
        return Projected(mixed, z, *(t.matrix(x, name, mixer.n_v, "strengths and decays") for name in ("in_b", "in_a")))
    parts = [t.matrix(x, f"in_{name}", columns, label) for name, columns in (("q", k), ("k", k), ("v", v))]
    mixed = t.concatenate(parts, label)
    return Projected(mixed, None, *(t.matrix(x, name, mixer.n_v, "strengths and decays") for name in ("in_b", "in_a")))


@scoped
def decays(t: Modules, mixer: GatedDeltaNet, a: TrackedTensor) -> TrackedTensor:
    """-exp(A)·softplus(a + bias), in 32 bits."""
    label = "decays in 32 bits"
    width = t.settings.rest
    bias = t.weight(mixer.n_v, width, trained=t.settings.trains)
    rate = t.weight(mixer.n_v, 4, trained=t.settings.trains)
    return t.multiply(rate, t.activation(t.add_weight(t.cast(a, 4, label), bias, label), label), label)


@scoped
def delta_rule(
    t: Modules,
    mixer: GatedDeltaNet,
    query: TrackedTensor,
    key: TrackedTensor,
    value: TrackedTensor,
    strength: TrackedTensor,
    decay: TrackedTensor,
) -> TrackedTensor:
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
        query, key, value = (chunked(t, part, c, wide) for part in (query, key, value))
    t.local(value)
    with t.alive(strength, decay):
        strength, decay = (t.local(chunked(t, part, c, wide)) for part in (strength, decay))
    value_update = t.local(t.multiply(value, strength, label))
    key_update = t.local(t.multiply(key, strength, label))
    total = t.local(t.shift(decay, "decays in 32 bits"))
    pairwise = t.scale(t.difference_of_all(total, pairs, PAIRS), PAIRS)
    between = t.local(t.exponential(pairwise, PAIRS))
    system = t.local(t.multiply(t.matmul(key_update, key, pairs, label), between, label))
    within = t.local(t.multiply(t.matmul(query, key, pairs, label), between, label))
    decayed = t.local(t.multiply(key_update, t.exponential(total, "decays in 32 bits"), label))
    new_values = t.local(t.solved(system, value_update, label))
    corrections = t.local(t.solved(system, decayed, label))
    out = t.like("output of the scan in 32 bits", new_values)
    query = t.local(t.multiply(query, t.exponential(total, "decays in 32 bits"), label))
    left = t.local(t.exponential(t.shift(total, "decays in 32 bits"), "decays in 32 bits"))
    key = t.local(t.multiply(key, left, label))
    inputs = (corrections, query, within, key)
    t.local(t.new("values of chunks", 2 * n * c * d_v, 4, CountedBy.SEQUENCE))  # what the loop leaves under its names
    out = scan_over_chunks(t, out, new_values, inputs, values=n * c * d_v, state=n * d_k * d_v)
    return t.unchunked(t.copied_view(out, "output of the scan in 32 bits"), n * d_v, before, "output of the scan")
