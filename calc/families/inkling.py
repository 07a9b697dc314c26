"""Inkling: attention with learned relative positions, and short convolutions beside it."""

from calc.families.family import Family, extras, gated, is_sparse, moe
from calc.families.fields import Fields
from calc.model.attention import GQA
from calc.model.block import Extra
from calc.model.feedforward import MLP, FeedForward
from calc.model.kernels import Kernels
from calc.model.mixers import Mixer
from calc.model.names import Names
from calc.model.recurrent import SideConvs
from calc.model.tensor import Shape

INKLING_KINDS = ("hybrid", "hybrid_sliding")


def inkling_slides(c: Fields, layer: int) -> bool:
    """By `layer_types`, by the list of local layers, or five of six."""
    kinds = c.per_layer("layer_types", c.size("num_hidden_layers"), INKLING_KINDS)
    if kinds:
        return kinds[layer] == "hybrid_sliding"
    local = c.get("local_layer_ids")
    return bool((layer + 1) % 6) if local is None else layer in c.indices("local_layer_ids")


def inkling_attention(c: Fields, layer: int) -> GQA:
    """Sliding layers have heads of their own."""
    slides = inkling_slides(c, layer)
    prefix = "swa_" if slides else ""
    return GQA(
        n_q=c.size(f"{prefix}num_attention_heads"),
        n_kv=c.size(f"{prefix}num_key_value_heads"),
        d_head=c.size(f"{prefix}head_dim"),
        qk_norm="head",
        window=c.size("sliding_window_size") if slides else None,
    )


def inkling_mixers(c: Fields, layer: int) -> tuple[Mixer, ...]:
    attention = inkling_attention(c, layer)
    kv = attention.n_kv * attention.d_head
    return attention, SideConvs(hidden=c.size("hidden_size"), kv=kv, d_conv=c.size("conv_kernel_size"))


def inkling_is_sparse(c: Fields, layer: int) -> bool:
    return is_sparse(c, layer, c.size("dense_mlp_idx", 0))


def inkling_ffn(c: Fields, layer: int) -> FeedForward:
    """Where the checkpoint states a width for dense layers, `intermediate_size` is that of the experts. Shared experts
    stand in the router, too."""
    stated = c.maybe("dense_intermediate_size") is not None
    if not inkling_is_sparse(c, layer):
        return gated(c, width="dense_intermediate_size" if stated else "intermediate_size", bias=None)
    width, shared = "intermediate_size" if stated else "moe_intermediate_size", c.size("n_shared_experts")
    return moe(
        c,
        "n_routed_experts",
        width,
        shared=MLP(intermediate=shared * c.size(width)),
        stacked="out_in",
    )


def inkling_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Relative positions: a vector for each head and token, and a table over distances; scales of the feed-forward;
    the router's rows for shared experts and its correction."""
    attention, hidden, d_rel = inkling_attention(c, layer), c.size("hidden_size"), c.size("d_rel")
    reach = attention.window or c.size("rel_extent")
    relative: dict[str, Shape] = {
        "self_attn.r_proj.weight": (attention.n_q * d_rel, hidden),
        "self_attn.rel_logits_proj.proj": (d_rel, reach),
    }
    found = extras("attention", relative)
    if not inkling_is_sparse(c, layer):
        return found + extras("mlp", {"mlp.global_scale": (1,)})
    n = c.size("n_routed_experts")
    correction = Extra(
        name="mlp.gate.e_score_correction_bias", shape=(n,), component="router", apart="persistent_buffers"
    )
    shared_rows: dict[str, Shape] = {"mlp.gate.shared.weight": (c.size("n_shared_experts"), hidden)}
    return (*found, *extras("router", shared_rows | {"mlp.gate.global_scale": (1,)}), correction)


INKLING: dict[str, Family] = {
    "inkling_text": Family(
        mixer=inkling_mixers,
        ffn=inkling_ffn,
        layer_extras=inkling_extras,
        extras=lambda c: extras("norms", {"model.embed_tokens.embed_norm.weight": (c.size("hidden_size"),)}),
        own={"dense_mlp_idx": 0, "dense_intermediate_size": None},
        ties=False,
        kernels=Kernels(fp32_weights=True),
        names=Names(recurrent="", expert="mlp.experts", expert_packed={"gate_up_proj": ("gate_proj", "up_proj")}),
    ),
}
