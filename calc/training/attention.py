"""Attention as transformers' classes compute it in training: grouped queries, latents, and rotation."""

from typing import TypeVar

from calc.model.attention import GQA
from calc.model.compressed_attention import CompressedAttention
from calc.model.mla import LatentAttention
from calc.training.modules import Modules, Rotary
from calc.training.tape import CountedBy, Tracked, scoped

OUTPUT = "output of the attention block"
TOKEN_BY_TOKEN = "output of attention, token by token"
OptionalTensor = TypeVar("OptionalTensor", Tracked, None)


@scoped
def grouped_query(t: Modules, mixer: GQA, x: Tracked) -> Tracked:
    """The output of grouped-query attention: the `Attention` modules of Llama and its kin."""
    d_v, columns, rotary = mixer.d_v or mixer.d_head, x.columns, t.rotary
    if t.kernels.multiplied:
        x = t.local(t.scale(x, "states, multiplied"))
    if not mixer.own_keys:
        return with_shared_keys(t, mixer, x)
    q, k, v, gate = projections(t, mixer, x)
    q, k = head_norms(t, mixer, q, k)
    if t.kernels.multiplied:
        k = t.scale(k, "keys")
    if rotary is not None:
        rotary = paired_tables(t, rotary)
        t.local(rotary.cosines)
        t.local(rotary.sines)
        with t.alive(q, k):
            q, k = rotate(t, q, rotary, mixer.d_head, "queries"), rotate(t, k, rotary, mixer.d_head, "keys")
    if "rotated" in t.kernels.norms_unweighted:
        q = t.unweighted_norm(q, "normed queries", heads=mixer.n_q)
        k = t.unweighted_norm(k, "normed keys", heads=mixer.n_kv)
    if "values" in t.kernels.norms_unweighted:
        v = t.unweighted_norm(v, "normed values", heads=mixer.n_kv)
    q, k, v = t.local(q), t.local(k), t.local(v)
    if t.kernels.differential:
        out = difference(t, mixer, q, k, v)
    else:
        out = attend(t, q, k, v, mixer.n_q, mixer.n_kv, mixer.n_q * d_v, sinks=mixer.sinks)
    out = t.by_tokens(out, TOKEN_BY_TOKEN)
    if gate is not None:
        out = t.multiply(out, t.result_saved(t.local(gate), "gate of attention"), "gated output of attention")
    if t.kernels.norms_inside:
        with t.alive(out):
            out = t.norm(out, "rms", "normed output of attention")
    return t.matrix(t.local(out), "o_proj", columns, OUTPUT, bias="o_proj" in mixer.bias, unit=CountedBy.STREAM)


@scoped
def with_shared_keys(t: Modules, mixer: GQA, x: Tracked) -> Tracked:
    """Attention to the keys and values of an earlier layer: Gemma 3n and 4. These are that layer's, and so is what
    waits of their gradients, to which this layer's are added."""
    columns = mixer.n_q * mixer.d_head
    q = t.matrix(x, "q_proj", columns, "queries", bias="q_proj" in mixer.bias)
    q, _ = head_norms(t, mixer, q, None)
    q = t.local(q if t.rotary is None else rotate(t, q, paired_tables(t, t.rotary), mixer.d_head, "queries"))
    k, v = (
        t.earlier_keys(mixer.n_kv * mixer.d_head, q.width),
        t.earlier_keys(mixer.n_kv * (mixer.d_v or mixer.d_head), t.width),
    )
    out = attend(t, q, k, v, mixer.n_q, mixer.n_kv, mixer.n_q * (mixer.d_v or mixer.d_head), sinks=mixer.sinks)
    out = t.by_tokens(out, TOKEN_BY_TOKEN)
    return t.matrix(t.local(out), "o_proj", x.columns, OUTPUT, bias="o_proj" in mixer.bias, unit=CountedBy.STREAM)


@scoped
def difference(t: Modules, mixer: GQA, q: Tracked, k: Tracked, v: Tracked) -> Tracked:
    """Differential attention, arXiv:2410.05258: the outputs with the first half of the value heads and with the second,
    side by side; of their heads the last half, times a number, are taken off the first (`modeling_diffllama.py`)."""
    half, heads, label = v.columns // 2, mixer.n_q // 2, "difference of attentions"
    values = [t.local(t.repeat(part, 2, "half of the values, twice")) for part in t.split(v, half, half)]
    outs = [
        t.by_tokens(attend(t, q, k, value, mixer.n_q, mixer.n_kv, q.columns, sinks=False), "output of attention")
        for value in values
    ]
    both = t.local(t.concatenate(outs, "outputs of attention, side by side"))
    outs = t.split(both, q.columns, q.columns)
    factor = t.parameter(1, q.width)
    out = t.local(t.subtract(outs[0], t.multiply(factor, outs[1], label), label))
    return t.scale(t.fused_norm(out, [], heads, "normed difference"), "normed difference")


@scoped
def projections(t: Modules, mixer: GQA, x: Tracked) -> tuple[Tracked, Tracked, Tracked, Tracked | None]:
    """Queries, keys, values and a gate: each by a matrix, or views of what one matrix makes."""
    d_v = mixer.d_v or mixer.d_head
    q = mixer.n_q * mixer.d_head
    columns = {"q_proj": q, "k_proj": mixer.n_kv * mixer.d_head, "v_proj": mixer.n_kv * d_v}
    bias, gate = mixer.bias, None
    if t.packs("q_proj", "k_proj", "v_proj"):
        packed = t.matrix(x, "q_proj", sum(columns.values()), "queries, keys and values", bias="q_proj" in bias)
        first, k, v = t.parts(packed, *columns.values())
        return first, k, v, gate
    if mixer.gated:
        both = t.matrix(x, "q_proj", 2 * q, "queries and gate", bias="q_proj" in bias)
        first, gate = t.parts(both, q, q)
    else:
        first = t.matrix(x, "q_proj", q, "queries", bias="q_proj" in bias)
    k = t.matrix(x, "k_proj", columns["k_proj"], "keys", bias="k_proj" in bias)
    if mixer.keys_are_values:
        return first, k, k, gate
    return first, k, t.matrix(x, "v_proj", columns["v_proj"], "values", bias="v_proj" in bias), gate


@scoped
def head_norms(t: Modules, mixer: GQA, q: Tracked, k: OptionalTensor) -> tuple[Tracked, OptionalTensor]:
    """Norms of queries and keys, of all columns or head by head; of the kind that the layer has."""
    if mixer.qk_norm == "none":
        return q, k
    kind = t.kernels.norm_kind("layer" if mixer.qk_norm_bias or t.block.norm == "layer" else "rms")
    heads = (1, 1) if mixer.qk_norm == "full" else (mixer.n_q, mixer.n_kv)
    q = t.norm(q, kind, "normed queries", heads=heads[0])
    return q, None if k is None else t.norm(k, kind, "normed keys", heads=heads[1])


@scoped
def attend(
    t: Modules, q: Tracked, k: Tracked, v: Tracked, n_q: int, n_kv: int, columns: int, *, sinks: bool
) -> Tracked:
    """softmax(q·kᵀ)·v in one kernel, or step by step, which may be left to the way back (arXiv:2205.05198 section
    5)."""
    if t.settings.flash:
        if t.settings.repeated_keys:
            k, v = repeated(t, k, v, n_q // n_kv)
        return t.flash_attention(q, k, v, n_q, columns)

    def eagerly(q: Tracked, k: Tracked, v: Tracked) -> Tracked:
        return step_by_step(t, q, k, v, n_q, n_kv, columns, sinks=sinks)

    if t.settings.recompute_scores:
        return t.checkpoint(eagerly, q, k, v, reentrant=t.settings.reentrant)
    return eagerly(q, k, v)


@scoped
def step_by_step(
    t: Modules, q: Tracked, k: Tracked, v: Tracked, n_q: int, n_kv: int, columns: int, *, sinks: bool
) -> Tracked:
    if n_kv == 1 < n_q and t.settings.single:
        k, v = t.expanded(k, n_q), t.expanded(v, n_q)
    else:
        k, v = map(t.local, repeated(t, k, v, n_q // n_kv))
    weights = t.local(probabilities(t, scores(t, q, k, n_q), v.width, n_q, sinks=sinks))
    return t.bmm(weights, v, columns, CountedBy.TOKEN, "output of attention")


@scoped
def repeated(t: Modules, k: Tracked, v: Tracked, times: int) -> tuple[Tracked, Tracked]:
    return t.repeat(k, times, "keys for every query head"), t.repeat(v, times, "values for every query head")


@scoped
def scores(t: Modules, q: Tracked, k: Tracked, n_q: int) -> Tracked:
    """q·kᵀ, scaled, capped where the family does so, and masked."""
    label = "scores of attention"
    weights = t.scale(t.bmm(q, k, n_q, CountedBy.SCORE, label), label)
    if t.kernels.capped_scores:
        weights = t.scale(weights, label)
        weights = t.result_saved(weights, label)
        weights = t.scale(weights, label)
    return t.copied(weights, label)


@scoped
def probabilities(t: Modules, weights: Tracked, width: int, n_q: int, *, sinks: bool) -> Tracked:
    """Their softmax, in 32 bits and back; with a sink for each head in the type of the scores."""
    if sinks:
        joined = t.copied(t.concatenate([weights], "scores with sinks", by_heads=True), "scores with sinks")
        t.free(weights)
        return t.slice(t.result_saved(joined, "probabilities of attention"), n_q)
    label = "probabilities of attention in 32 bits"
    wide = t.kernels.fp32_softmax or t.autocast
    likely = t.result_saved(t.cast(weights, 4, "scores in 32 bits") if wide else weights, label)
    likely = t.cast(likely, width, "probabilities of attention")
    return t.dropout(likely, "probabilities of attention after dropout") if "scores" in t.kernels.dropout else likely


# Latent attention as transformers computes it in training (`modeling_deepseek_v3.py`): keys and values of every head
# are made from the latent; flash attention pads the values to the keys' width.


@scoped
def latent_attention(t: Modules, mixer: LatentAttention, x: Tracked) -> Tracked:
    """Queries and the latent, norms, rotation of their last channels, attention, output."""
    n, columns, d_key = mixer.n_q, x.columns, mixer.d_nope + mixer.d_rope
    q = t.local(queries(t, mixer, x))
    q_plain, q_turned = t.split(q, n * mixer.d_nope, n * mixer.d_rope)
    compressed = t.local(t.matrix(x, "kv_a_proj_with_mqa", mixer.kv_rank + mixer.d_rope, "latents", bias=mixer.bias))
    latent, k_turned = t.split(compressed, mixer.kv_rank, mixer.d_rope)
    latent = t.local(t.norm(latent, "rms", "normed latents"))
    if t.rotary is not None:
        q_turned = t.local(rotated(t, q_turned, t.rotary, "queries"))
        k_turned = t.local(rotated(t, k_turned, t.rotary, "keys"))
    query = t.local(t.concatenate([q_plain, q_turned], "queries, rotated", by_heads=True))
    expanded = t.local(t.matrix(latent, "kv_b_proj", n * (mixer.d_nope + mixer.d_v), "keys and values of every head"))
    k_plain, v = t.split(expanded, n * mixer.d_nope, n * mixer.d_v)
    key = t.local(t.copied_into(k_plain, k_turned, n * d_key, "keys, rotated"))
    if t.settings.flash and mixer.d_v != d_key:
        v = t.local(t.resized(v, n * d_key, "values, padded", by_heads=True))
    out = attend(t, query, key, v, n, n, v.columns, sinks=mixer.sinks)
    if out.columns != n * mixer.d_v:
        out = t.slice(out, n * mixer.d_v)
    out = t.by_tokens(out, TOKEN_BY_TOKEN)
    if mixer.gate != "none":
        wide = n if mixer.gate == "heads" else n * mixer.d_v
        gate = t.local(t.result_saved(t.matrix(x, "g_proj", wide, "gate of attention"), "gate of attention"))
        out = t.multiply(out, gate, "gated output of attention")
    return t.matrix(t.local(out), "o_proj", columns, OUTPUT, bias=mixer.bias, unit=CountedBy.STREAM)


@scoped
def queries(t: Modules, mixer: LatentAttention, x: Tracked) -> Tracked:
    """Queries by one matrix, or by two with a norm between."""
    columns = mixer.n_q * (mixer.d_nope + mixer.d_rope)
    if mixer.q_rank is None:
        return t.matrix(x, "q_proj", columns, "queries")
    narrow = t.local(t.matrix(x, "q_a_proj", mixer.q_rank, "compressed queries", bias=mixer.bias))
    return t.matrix(t.norm(narrow, "rms", "normed compressed queries"), "q_b_proj", columns, "queries")


@scoped
def compressed_attention(t: Modules, mixer: CompressedAttention, x: Tracked) -> Tracked:
    """An assumption: queries by two matrices, keys that are values, and outputs by two matrices in one kernel."""
    columns, q = x.columns, mixer.n_q * mixer.d_head
    narrow = t.local(t.matrix(x, "wq_a", mixer.q_rank, "compressed queries"))
    query = t.local(t.matrix(t.activation(narrow, "normed compressed queries"), "wq_b", q, "queries"))
    key = t.local(t.matrix(x, "wkv", mixer.d_head, "keys"))
    out = t.local(
        t.flash_attention(
            t.activation(query, "queries, rotated"), t.activation(key, "keys, rotated"), key, mixer.n_q, q
        )
    )
    outputs = t.local(t.matrix(out, "wo_a", mixer.o_groups * mixer.o_rank, "compressed outputs"))
    t.free(narrow)
    return t.matrix(outputs, "wo_b", columns, OUTPUT, unit=CountedBy.STREAM)


@scoped
def rotate(t: Modules, x: Tracked, rotary: Rotary, d_head: int, name: str) -> Tracked:
    """Queries or keys by their positions: all channels of a head, or the first of them."""
    if rotary.channels == d_head and not t.kernels.cuts_rotated:
        return rotated(t, x, rotary, name)
    heads = x.columns // d_head
    first = t.slice(x, heads * rotary.channels)
    rest = t.slice(x, heads * (d_head - rotary.channels))
    return t.concatenate([rotated(t, first, rotary, name), rest], ("{tensor}, rotated", name), by_heads=True)


@scoped
def rotated(t: Modules, x: Tracked, rotary: Rotary, name: str) -> Tracked:
    """x·cos + rotate_half(x)·sin."""
    if t.kernels.turn == "complex":  # of 64 bits, for which it is copied to 32 bits first
        label = ("{tensor}, rotated", name)
        return t.cast(t.scale(t.cast(x, 4, ("{tensor} in 32 bits", name)), label), x.width, label)
    if t.kernels.turn != "whole":
        return rotated_halves(t, x, rotary, name)
    before, rotation = x.width, t.kernels.rotation
    label, wide = ("{tensor}, rotated", name), ("{tensor} in 32 bits", name)
    if rotation == "fp32_copies":
        x = t.local(t.cast(x, 4, wide))
    width = 4 if rotation == "fp32_spread" else x.width
    straight = t.multiply(t.cast(x, width, wide), rotary.cosines, label)
    turned = t.cast(t.rotate_half(x, label), width, label)
    turned = t.multiply(turned, rotary.sines, label)
    turned = t.add(straight, turned, label)
    return turned if t.kernels.rotation == "16_bits" else t.cast(turned, before, label)


def paired_tables(t: Modules, rotary: Rotary) -> Rotary:
    """Tables whose first half is repeated for pairs of channels, in each layer: ERNIE 4.5."""
    if t.kernels.rotation != "fp32_spread":
        return rotary
    tables = [
        t.new("rotary tables, spread", table.columns, 4, CountedBy.POSITION) for table in (rotary.cosines, rotary.sines)
    ]
    return Rotary(tables[0], tables[1], rotary.channels)


@scoped
def rotated_halves(t: Modules, x: Tracked, rotary: Rotary, name: str) -> Tracked:
    """first·cos - second·sin, second·cos + first·sin, joined."""
    label, half = ("{tensor}, rotated", name), x.columns // 2
    if t.kernels.turn == "pairs":
        first, second = t.slice(x, half), t.slice(x, half)
    else:
        first, second = t.split(x, half, half)
    left = t.add(t.multiply(first, rotary.cosines, label), t.multiply(second, rotary.sines, label), label)
    right = t.add(t.multiply(second, rotary.cosines, label), t.multiply(first, rotary.sines, label), label)
    return t.concatenate([left, right], label, by_heads=True)
