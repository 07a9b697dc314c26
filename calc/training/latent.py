"""Latent attention as transformers computes it in training (`modeling_deepseek_v3.py`): keys and values of every head
are made from the latent; flash attention pads the values to the keys' width."""

from calc.model.compressed_attention import CompressedAttention
from calc.model.mla import LatentAttention
from calc.training.autograd import CountedBy, TrackedTensor, scoped
from calc.training.modules import Modules, Rotary
from calc.training.training_attention import attend


@scoped
def latent_attention(t: Modules, mixer: LatentAttention, x: TrackedTensor, rotary: Rotary | None) -> TrackedTensor:
    """Queries and the latent, norms, rotation of their last channels, attention, output."""
    n, columns, d_key = mixer.n_q, x.columns, mixer.d_nope + mixer.d_rope
    q = t.local(queries(t, mixer, x))
    q_plain, q_turned = t.split(q, n * mixer.d_nope, n * mixer.d_rope)
    compressed = t.local(t.matrix(x, "kv_a_proj_with_mqa", mixer.kv_rank + mixer.d_rope, "latents", bias=mixer.bias))
    latent, k_turned = t.split(compressed, mixer.kv_rank, mixer.d_rope)
    latent = t.local(t.norm(latent, "rms", "normed latents"))
    if rotary is not None:
        q_turned = t.local(t.turned(q_turned, rotary, "queries"))
        k_turned = t.local(t.turned(k_turned, rotary, "keys"))
    query = t.local(t.concatenate([q_plain, q_turned], "queries, rotated", by_heads=True))
    expanded = t.local(t.matrix(latent, "kv_b_proj", n * (mixer.d_nope + mixer.d_v), "keys and values of every head"))
    k_plain, v = t.split(expanded, n * mixer.d_nope, n * mixer.d_v)
    key = t.local(t.filled(k_plain, k_turned, n * d_key, "keys, rotated"))
    if t.settings.flash and mixer.d_v != d_key:
        v = t.local(t.padded(v, n * d_key, "values, padded"))
    out = attend(t, query, key, v, n, n, v.columns, sinks=mixer.sinks)
    if out.columns != n * mixer.d_v:
        out = t.slice(out, n * mixer.d_v)
    out = t.by_tokens(out, "output of attention, token by token")
    if mixer.gate != "none":
        wide = n if mixer.gate == "heads" else n * mixer.d_v
        gate = t.local(t.result_saved(t.matrix(x, "g_proj", wide, "gate of attention"), "gate of attention"))
        out = t.multiply(out, gate, "gated output of attention")
    label = "output of the attention block"
    return t.matrix(t.local(out), "o_proj", columns, label, bias=mixer.bias, unit=CountedBy.STREAM)


@scoped
def queries(t: Modules, mixer: LatentAttention, x: TrackedTensor) -> TrackedTensor:
    """By one matrix, or by two with a norm between."""
    columns = mixer.n_q * (mixer.d_nope + mixer.d_rope)
    if mixer.q_rank is None:
        return t.matrix(x, "q_proj", columns, "queries")
    narrow = t.local(t.matrix(x, "q_a_proj", mixer.q_rank, "compressed queries", bias=mixer.bias))
    return t.matrix(t.norm(narrow, "rms", "normed compressed queries"), "q_b_proj", columns, "queries")


@scoped
def compressed_attention(t: Modules, mixer: CompressedAttention, x: TrackedTensor) -> TrackedTensor:
    """An assumption: queries by two matrices, keys that are values, and outputs by two matrices in one kernel."""
    columns, q = x.columns, mixer.n_q * mixer.d_head
    narrow = t.local(t.matrix(x, "wq_a", mixer.q_rank, "compressed queries"))
    query = t.local(t.matrix(t.copied(narrow, "normed compressed queries"), "wq_b", q, "queries"))
    key = t.local(t.matrix(x, "wkv", mixer.d_head, "keys"))
    out = t.local(
        t.flash_attention(t.copied(query, "queries, rotated"), t.copied(key, "keys, rotated"), key, mixer.n_q, q)
    )
    outputs = t.local(t.matrix(out, "wo_a", mixer.o_groups * mixer.o_rank, "compressed outputs"))
    t.free(narrow)
    return t.matrix(outputs, "wo_b", columns, "output of the attention block", unit=CountedBy.STREAM)
