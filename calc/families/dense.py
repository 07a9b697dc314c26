"""Families of Llama's line without experts."""

from calc.families.family import (
    GATE_UP,
    NO_BIAS,
    PACKED_QKV,
    POST_NORMS,
    QKV,
    QKVO,
    TWO_NORMS,
    Family,
    attention_bias,
    every,
    extras,
    gated,
    gqa,
    head_dim,
    one_window,
    plain,
    plain_gqa,
    qwen_window,
    shared_width,
    squared,
    window,
)
from calc.families.fields import Fields
from calc.model.attention import GQA
from calc.model.block import Extra
from calc.model.kernels import Kernels
from calc.model.names import Names


def cohere2_window(c: Fields, layer: int) -> int | None:
    return window(c, layer, every(c, layer, c.size("sliding_window_pattern", 0), "sliding_attention"))


def exaone4_window(c: Fields, layer: int) -> int | None:
    if c.maybe("sliding_window") is None:
        return None
    step = c.maybe("sliding_window_pattern", 0) or 0
    return window(c, layer, every(c, layer, step, "sliding_attention"))


def smollm3_window(c: Fields, layer: int) -> int | None:
    if not c.flag("use_sliding_window"):
        return None
    return window(c, layer, every(c, layer, c.size("no_rope_layer_interval"), "full_attention", "sliding_attention"))


def apertus_scalars(c: Fields, layer: int) -> tuple[Extra, ...]:
    """The two learned slopes of the xIELU activation, arXiv:2411.13010, and its two constants."""
    slopes = tuple(Extra(name=f"mlp.act_fn.{a}", shape=(1,), component="mlp") for a in ("alpha_p", "alpha_n"))
    constants = tuple(
        Extra(name=f"mlp.act_fn.{a}", shape=(), component="mlp", apart="persistent_buffers") for a in ("beta", "eps")
    )
    return slopes + constants


def bitnet_norms(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Norms before the last projection of attention and of the feed-forward, whose input is quantised."""
    return (
        *extras("attention", {"self_attn.attn_sub_norm.weight": (c.size("hidden_size"),)}),
        *extras("mlp", {"mlp.ffn_sub_norm.weight": (c.size("intermediate_size"),)}),
    )


def diffllama_lambdas(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Differential attention, arXiv:2410.05258: the vectors that its factor is made of."""
    names = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")
    return extras("attention", {f"self_attn.{name}": (head_dim(c),) for name in names})


MLLAMA_CROSS = frozenset(range(3, 40, 5))
"""The class's default."""


def mllama_crosses(c: Fields, layer: int) -> bool:
    listed = c.get("cross_attention_layers") is not None
    return layer in (c.indices("cross_attention_layers") if listed else MLLAMA_CROSS)


def mllama_attention(c: Fields, layer: int) -> GQA:
    """Llama 3.2 Vision: some layers attend to the image."""
    d_head = shared_width(c, "hidden_size", "num_attention_heads")
    crosses = mllama_crosses(c, layer)
    return gqa(c, d_head=d_head, cross=crosses, qk_norm="head" if crosses else "none")


def mllama_gates(c: Fields, layer: int) -> tuple[Extra, ...]:
    if not mllama_crosses(c, layer):
        return ()
    return extras("attention", {"cross_attn_attn_gate": (1,)}) + extras("mlp", {"cross_attn_mlp_gate": (1,)})


def granite_swa_window(c: Fields, layer: int) -> int | None:
    """Every fourth layer keeps all, from the first on."""
    return window(c, layer, "sliding_attention" if layer % 4 else "full_attention")


GLM_NAMES = Names(packed={"gate_up_proj": GATE_UP})


DENSE: dict[str, Family] = {
    "llama": Family(mixer=plain_gqa, ffn=gated),
    "mistral": Family(mixer=lambda c, i: gqa(c, window=one_window(c, i)), ffn=gated),
    "ministral": Family(mixer=lambda c, i: gqa(c, window=window(c, i, "sliding_attention")), ffn=gated),
    "ministral3": Family(mixer=lambda c, i: gqa(c, window=one_window(c, i)), ffn=gated),
    "qwen2": Family(mixer=lambda c, i: gqa(c, bias=QKV, window=qwen_window(c, i)), ffn=gated),
    "qwen3": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=qwen_window(c, i), qk_norm="head"), ffn=gated
    ),
    "qwen3_vl_text": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="head"),
        ffn=gated,
        own={"tie_word_embeddings": False},
    ),
    "phi3": Family(
        mixer=lambda c, i: gqa(c, window=one_window(c, i)),
        ffn=gated,
        names=Names(packed={"qkv_proj": PACKED_QKV, "gate_up_proj": GATE_UP}),
        kernels=Kernels(cuts_rotated=True, slices=True),
    ),
    "qwen2_5_omni_text": Family(mixer=lambda c, i: gqa(c, bias=QKV, window=qwen_window(c, i)), ffn=gated),
    "mllama_text_model": Family(
        mixer=mllama_attention,
        ffn=lambda c, i: gated(c, bias=None),
        extra_rows=8,
        ties=False,
        layer_extras=mllama_gates,
    ),
    "qwen2_vl_text": Family(mixer=lambda c, i: gqa(c, bias=QKV, window=qwen_window(c, i)), ffn=gated),
    "qwen2_5_vl_text": Family(mixer=lambda c, i: gqa(c, bias=QKV, window=qwen_window(c, i)), ffn=gated),
    "glm4v_text": Family(
        mixer=lambda c, i: gqa(c, bias=QKV),
        ffn=gated,
        norms=(*TWO_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm"),
        names=GLM_NAMES,
    ),
    "bitnet": Family(mixer=plain_gqa, ffn=lambda c, i: gated(c, bias=None), layer_extras=bitnet_norms),
    "diffllama": Family(mixer=plain_gqa, ffn=lambda c, i: gated(c, bias=None), layer_extras=diffllama_lambdas),
    "nanochat": Family(
        mixer=plain_gqa,
        ffn=lambda c, i: plain(c, bias=False),
        norms=(),
        norm="none",
        names=Names(renamed={"up_proj": "fc1", "down_proj": "fc2"}),
    ),
    "hyperclovax": Family(
        mixer=plain_gqa,
        ffn=gated,
        norms=lambda c, i: (*TWO_NORMS, "post_norm1", "post_norm2") if c.flag("use_post_norm") else TWO_NORMS,
    ),
    "iquestcoder": Family(mixer=plain_gqa, ffn=gated),
    "granite_swa": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=granite_swa_window(c, i), sinks=True), ffn=gated
    ),
    "arcee": Family(mixer=plain_gqa, ffn=squared, kernels=Kernels(activation="squared")),
    "apertus": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="head"),
        ffn=lambda c, i: plain(c, bias=False),
        norms=("attention_layernorm", "feedforward_layernorm"),
        layer_extras=apertus_scalars,
    ),
    "cohere": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="heads" if c.flag("use_qk_norm") else "none"),
        ffn=gated,
        norms=("input_layernorm",),
        kernels=Kernels(norm="centred", rotation="fp32_copies"),
    ),
    "cohere2": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=cohere2_window(c, i)),
        ffn=gated,
        norms=("input_layernorm",),
        own={"sliding_window_pattern": 4},
        kernels=Kernels(norm="centred", rotation="fp32_copies"),
    ),
    "olmo": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c)),
        ffn=gated,
        norms=(),
        norm="none",
        kernels=Kernels(rotation="fp32"),
    ),
    "olmo2": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="full"),
        ffn=gated,
        norms=POST_NORMS,
        kernels=Kernels(norm="rms32", rotation="fp32"),
    ),
    "olmo3": Family(
        mixer=lambda c, i: gqa(
            c,
            bias=attention_bias(c),
            qk_norm="full",
            window=window(c, i, every(c, i, 4, "sliding_attention")),
        ),
        ffn=gated,
        norms=POST_NORMS,
        kernels=Kernels(norm="rms32", rotation="fp32"),
    ),
    "exaone4": Family(
        mixer=lambda c, i: gqa(c, qk_norm="head", window=exaone4_window(c, i)), ffn=gated, norms=POST_NORMS
    ),
    "granite": Family(mixer=plain_gqa, ffn=gated),
    "helium": Family(mixer=lambda c, i: gqa(c, bias=QKV if c.flag("attention_bias") else NO_BIAS), ffn=gated),
    "cwm": Family(mixer=lambda c, i: gqa(c, window=window(c, i, every(c, i, 4, "sliding_attention"))), ffn=gated),
    "smollm3": Family(mixer=lambda c, i: gqa(c, bias=attention_bias(c), window=smollm3_window(c, i)), ffn=gated),
    "seed_oss": Family(
        mixer=lambda c, i: gqa(
            c,
            bias=(QKV if c.flag("attention_bias") else NO_BIAS)
            | (frozenset({"o_proj"}) if c.flag("attention_out_bias") else NO_BIAS),
        ),
        ffn=gated,
        kernels=Kernels(dropout=frozenset({"scores", "residual"})),
    ),
    "ernie4_5": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c, "use_bias")),
        ffn=lambda c, i: gated(c, bias="use_bias"),
        kernels=Kernels(rotation="fp32_spread"),
    ),
    "hunyuan_v1_dense": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c), qk_norm="head"),
        ffn=gated,
        names=Names(renamed={"q_norm": "query_layernorm", "k_norm": "key_layernorm"}),
    ),
    "glm": Family(
        mixer=lambda c, i: gqa(c, bias=QKV if c.flag("attention_bias") else NO_BIAS),
        ffn=gated,
        names=GLM_NAMES,
    ),
    "glm4": Family(
        mixer=lambda c, i: gqa(c, bias=QKV if c.flag("attention_bias") else NO_BIAS),
        ffn=gated,
        norms=(*TWO_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm"),
        names=GLM_NAMES,
    ),
    "internlm3": Family(
        mixer=lambda c, i: gqa(
            c,
            bias=(QKV if c.flag("qkv_bias") else NO_BIAS) | (QKVO - QKV if c.flag("bias") else NO_BIAS),
        ),
        ffn=lambda c, i: gated(c, bias="bias"),
    ),
}
