"""Families of makers with a row or two."""

from dataclasses import replace
from math import isqrt

from calc.families.attention_rows import LISTED_ONLY, Attention, Every, Hybrid, Sliding, Window, shared_width
from calc.families.family import (
    GATE_UP,
    GEMMA_NORMS,
    PACKED_QKV,
    QK_LAYERNORM,
    TWO_NORMS,
    Family,
    If,
    Weights,
    Wrapper,
    extras,
)
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields
from calc.families.granite import FF_NORMS, GRANITE_MOE_NAMES
from calc.families.recurrent_rows import Mamba
from calc.families.rotary import Rotary
from calc.model.attention import GQA
from calc.model.block import Extra, Norm
from calc.model.gguf_rules import GGUFRules
from calc.model.kernels import Kernels
from calc.model.mixers import Mixer
from calc.model.names import Names
from calc.model.tensor import Shape

BIASED = Attention(bias="attention_bias")
QK_NORMED = Attention(bias="attention_bias", qk_norm="head")
XIELU = Weights({"mlp": {f"mlp.act_fn.{name}": (1,) for name in ("alpha_p", "alpha_n")}})
XIELU_CONSTANTS = Weights(
    {"mlp": {f"mlp.act_fn.{name}": () for name in ("beta", "eps")}}, excluded_as="persistent_buffers"
)


def apertus_scalars(c: Fields, layer: int) -> tuple[Extra, ...]:
    """xIELU, arXiv:2411.13010: two learned slopes and two constants."""
    if c.get("hidden_act") not in (None, "xielu"):
        return ()
    return XIELU(c) + XIELU_CONSTANTS(c)


# JetMoE: mixture of attention heads, arXiv:2404.07413: an expert is a query and an output projection of all heads


def jetmoe_attention(c: Fields, layer: int) -> Mixer:
    n_kv = c.size("num_key_value_heads")
    return GQA(n_q=n_kv * c.size("num_experts_per_tok"), n_kv=n_kv, d_head=c.size("kv_channels"), routed=True)


def jetmoe_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """The experts of attention, and a bias behind each set of experts."""
    hidden, wide = c.size("hidden_size"), c.size("num_key_value_heads") * c.size("kv_channels")
    experts, top_k, path = c.size("num_local_experts"), c.size("num_experts_per_tok"), "self_attention.experts"
    pairs: dict[str, Shape] = {
        f"{path}.input_linear.weight": (experts, wide, hidden),
        f"{path}.output_linear.weight": (experts, hidden, wide),
    }
    return (
        *extras("attention", pairs, experts=experts, top_k=top_k),
        *extras("attention", {f"{path}.bias": (hidden,)}),
        *extras("router", {f"{path}.router.layer.weight": (experts, hidden)}),
        *extras("experts_shared", {"mlp.bias": (hidden,)}),
    )


DOGE_ATTENTION = Attention(bias="attention_bias", qk_norm="head", window=Window())


def doge_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Doge: a mask made of the values, scales of the residual, and experts of one row each in each direction."""
    hidden, attention = c.size("hidden_size"), DOGE_ATTENTION(c, layer)
    step: dict[str, Shape] = {
        "self_attn.A": (attention.n_kv,),
        "self_attn.dt_proj.weight": (attention.n_kv, attention.n_kv * attention.d_head),
    }
    if c.flag("attention_bias"):
        step |= {"self_attn.dt_proj.bias": (attention.n_kv,)}
    tensors = extras("attention", step)
    tensors += extras("other", {"input_residual": (hidden,), "post_attention_residual": (hidden,)})
    if c.flag("is_moe"):
        experts = c.size("num_experts")
        rows: dict[str, Shape] = {f"mlp.{way}_embed.weight": (experts, hidden) for way in ("down", "up")}
        tensors += extras("experts_routed", rows, experts=experts, top_k=c.size("num_experts_per_tok"))
        tensors += extras("router", {"mlp.router_gate.weight": (2 * isqrt(experts), hidden)})
    return tensors


# Laguna: heads may differ from layer to layer

LAGUNA = Attention(bias="attention_bias", qk_norm="head", window=LISTED_ONLY)
LAGUNA_GATED = {gate: replace(LAGUNA, gate=gate) for gate in ("heads", "channels")}


def laguna_attention(c: Fields, layer: int) -> Mixer:
    """A gate for each head or each channel."""
    attention = LAGUNA_GATED["heads" if c.get("gating") in (True, "per-head") else "channels"]
    heads = c.get("num_attention_heads_per_layer")
    if isinstance(heads, list):
        c = c.with_stated("num_attention_heads", heads[layer] if layer < len(heads) else None)
    return attention(c, layer)


def helium_d_head(c: Fields) -> int:
    """The class's output projection is square."""
    return shared_width(c, "hidden_size", "num_attention_heads")


# Flint


def flint_sparse(c: Fields, layer: int) -> bool:
    dense = c.indices("mlp_only_layers") if c.get("mlp_only_layers") is not None else frozenset({0, 1})
    return layer not in dense and (layer + 1) % c.size("decoder_sparse_step") == 0


# Jamba


def jamba_sparse(c: Fields, layer: int) -> bool:
    return c.size("num_experts") > 1 and Every("expert_layer_period", "expert_layer_offset")(c, layer)


# ModernBERT decoder (Ettin, arXiv:2507.11412)

MODERNBERT_NORM: If[Norm] = If("norm_bias", "layer", "rms")


def half_window(c: Fields) -> int:
    """As saved configs state it, or half of what published ones do."""
    return c.maybe("sliding_window") or c.size("local_attention") // 2


def modernbert_norms(c: Fields, layer: int) -> tuple[str, ...]:
    return ("attn_norm", "mlp_norm") if layer else ("mlp_norm",)


def modernbert_extras(c: Fields) -> tuple[Extra, ...]:
    """A norm behind the embedding, and a matrix with a norm before the head."""
    hidden = c.size("hidden_size")
    norms: dict[str, Shape] = {"model.embeddings.norm.weight": (hidden,), "lm_head.norm.weight": (hidden,)}
    if c.flag("norm_bias"):
        norms |= {"model.embeddings.norm.bias": (hidden,), "lm_head.norm.bias": (hidden,)}
    dense: dict[str, Shape] = {"lm_head.dense.weight": (hidden, hidden)}
    if c.flag("classifier_bias"):
        dense |= {"lm_head.dense.bias": (hidden,)}
    return extras("norms", norms) + extras("other", dense)


STABLELM = Family(
    maker="Stability AI",
    mixer=Attention(qkv_bias="use_qkv_bias"),
    ffn=Dense(bias=False),
    norm="layer",
    defaults="stablelm",
    gguf=GGUFRules("stablelm"),
)
OTHERS: dict[str, Family] = {
    "stablelm_epoch": STABLELM,
    "stablelm": replace(
        STABLELM,
        mixer=Attention(qkv_bias="use_qkv_bias", qk_norm="heads", qk_norm_when="qk_layernorm"),
        ffn=Dense(),
        norms=If("use_parallel_residual", TWO_NORMS[:1], TWO_NORMS),
        kernels=Kernels(joins_rotated=True, residual_states=2),
        names=Names(renamed={"q_norm": "q_layernorm.norms.{expert}", "k_norm": "k_layernorm.norms.{expert}"}),
        rotary=Rotary(share=0.25),
        gguf=GGUFRules("stablelm"),
    ),
    "jamba": Family(
        maker="AI21",
        mixer=Hybrid(
            Attention(),
            Mamba(
                expand="mamba_expand",
                d_state="mamba_d_state",
                d_conv="mamba_d_conv",
                dt_rank="mamba_dt_rank",
                conv_bias="mamba_conv_bias",
                bias="mamba_proj_bias",
                inner_norms=True,
            ),
            Every("attn_layer_period", "attn_layer_offset"),
        ),
        ffn=Experts("num_experts", "intermediate_size", sparse=jamba_sparse),
        norms=FF_NORMS,
        names=Names(
            recurrent="mamba",
            mlp="feed_forward",
            router="feed_forward.router",
            expert="feed_forward.experts.{expert}",
            final_norm="model.final_layernorm",
        ),
        rotary=None,
        gguf=GGUFRules("jamba", heads_by_layer=True),
    ),
    "arcee": Family(
        maker="Arcee AI",
        mixer=BIASED,
        ffn=Dense(gated=False),
        kernels=Kernels(activation="squared"),
        gguf=GGUFRules("arcee"),
    ),
    "afmoe": Family(
        maker="Arcee AI",
        mixer=Attention(
            bias="attention_bias",
            qk_norm="head",
            gate="channels",
            window=Sliding(full_every="global_attn_every_n_layers"),
        ),
        ffn=Experts(shared="num_shared_experts", correction="parameter", first_dense="num_dense_layers"),
        norms=(*TWO_NORMS, "pre_mlp_layernorm", "post_mlp_layernorm"),
        names=Names(router="mlp.router.gate", correction="mlp.expert_bias", renamed={"g_proj": "gate_proj"}),
        kernels=Kernels(fp32_weights=True, fp32_router=False, shared_first=True),
    ),
    "apertus": Family(
        maker="Swiss AI",
        mixer=QK_NORMED,
        ffn=Dense(gated=False, bias=False),
        norms=("attention_layernorm", "feedforward_layernorm"),
        layer_extras=apertus_scalars,
        kernels=Kernels(activation="xielu"),
        gguf=GGUFRules("apertus"),
    ),
    "persimmon": Family(
        maker="Adept",
        mixer=Attention(
            kv=None, head_dim=None, bias=True, qk_norm="head", qk_norm_when="qk_layernorm", qk_norm_bias=True
        ),
        ffn=Dense(gated=False, bias=True),
        norm="layer",
        names=Names(
            packed={"query_key_value": PACKED_QKV},
            renamed={"o_proj": "dense", "up_proj": "dense_h_to_4h", "down_proj": "dense_4h_to_h"} | QK_LAYERNORM,
            final_norm="model.final_layernorm",
        ),
        wrappers=(Wrapper("fuyu"),),
    ),
    "modernbert-decoder": Family(
        maker="Johns Hopkins University",
        mixer=Attention(
            head_dim=None,
            bias="attention_bias",
            window=Sliding(full_every="global_attn_every_n_layers", full_at=0, size=half_window),
        ),
        ffn=Dense(),
        norms=modernbert_norms,
        norm=MODERNBERT_NORM,
        names=Names(
            embedding="model.embeddings.tok_embeddings",
            attention="attn",
            final_norm="model.final_norm",
            lm_head="decoder",
            packed={"Wi": GATE_UP},
            renamed={"o_proj": "Wo", "down_proj": "Wo"},
        ),
        own={"global_attn_every_n_layers": 3},
        extras=modernbert_extras,
        head_bias="decoder_bias",
    ),
    "helium": Family(
        maker="Kyutai", mixer=Attention(qkv_bias="attention_bias"), ffn=Dense(), follows={"head_dim": helium_d_head}
    ),
    "nanochat": Family(
        maker="Karpathy",
        mixer=BIASED,
        ffn=Dense(gated=False, bias=False),
        norms=(),
        norm="none",
        names=Names(renamed={"up_proj": "fc1", "down_proj": "fc2"}),
        kernels=Kernels(
            rms_alone=True,
            norms_unweighted=frozenset({"rotated", "embedded"}),
            activation="squared",
            capped_logits=True,
        ),
    ),
    "jais2": Family(
        maker="Inception", mixer=BIASED, ffn=Dense(gated=False), norm="layer", kernels=Kernels(activation="squared")
    ),
    "jetmoe": Family(
        maker="MyShell",
        mixer=jetmoe_attention,
        ffn=Experts("num_local_experts", "intermediate_size", stacked="module"),
        layer_extras=jetmoe_extras,
        names=GRANITE_MOE_NAMES.model_copy(
            update={
                "attention": "self_attention",
                "router": "mlp.router.layer",
                "expert": "mlp",
                "packed": {"kv_proj": ("k_proj", "v_proj")},
            }
        ),
    ),
    "doge": Family(maker="SmallDoge", mixer=DOGE_ATTENTION, ffn=Dense(), layer_extras=doge_extras),
    "aria_text": Family(
        maker="Rhymes AI",
        mixer=BIASED,
        ffn=Experts(
            "moe_num_experts",
            "intermediate_size",
            "moe_topk",
            shared="moe_num_shared_experts",
            shared_bias="mlp_bias",
            stacked="module_in_out",
        ),
        names=Names(
            router="mlp.router",
            expert="mlp.experts",
            expert_packed={"fc1": GATE_UP},
            expert_renamed={"down_proj": "fc2"},
        ),
        wrappers=(Wrapper("aria"),),
    ),
    "laguna": Family(
        maker="Poolside",
        mixer=laguna_attention,
        ffn=Experts(
            shared_width="shared_expert_intermediate_size",
            correction="parameter",
            first_dense=1,
            dense=Dense(bias=False),
        ),
        names=Names(correction="mlp.experts.e_score_correction_bias", shared_expert="mlp.shared_expert"),
    ),
    "mellum": Family(
        maker="JetBrains",
        mixer=Attention(bias="attention_bias", qk_norm="head", window=LISTED_ONLY),
        ffn=Experts(first_dense=0, dense=Dense(bias=False)),
    ),
    "kolibri1": Family(
        maker="Aleph Alpha",
        mixer=Attention(qk_norm="head", window=Sliding(full_every=5)),
        ffn=Experts(shared_width="shared_expert_intermediate_size", correction="buffer"),
        norms=(*TWO_NORMS, "post_attn_norm", "post_ffn_norm"),
        names=Names(correction="moe.router.expert_bias"),
        aliases={"num_local_experts": "num_experts"},
    ),
    "flint": Family(
        maker="Recursive",
        mixer=Attention(
            bias="attention_bias",
            qk_norm="head",
            sinks=True,
            window=Sliding(full_every=4, full_at=1, first_full=2, last_full=True),
        ),
        ffn=Experts(shared_width="shared_expert_intermediate_size", sparse=flint_sparse, dense=Dense(bias=False)),
        names=Names(shared_expert="mlp.shared_expert", renamed={"sinks": "softmax_offset"}),
    ),
    "beam": Family(
        maker="Reflection AI",
        mixer=Attention(
            bias="attention_bias", qk_norm="head", gate="channels", window=Sliding(full_every=6, last_full=True)
        ),
        ffn=Experts(correction="buffer", first_dense=3, dense=Dense(bias=False)),
        norms=GEMMA_NORMS,
        names=Names(renamed={"g_proj": "gate_proj"}),
        layer_extras=Weights({"attention": {"self_attn.gate_bias": ("num_attention_heads",)}}),
        kernels=Kernels(capped_logits=True),
    ),
}
