"""Ai2's families: OLMo and Molmo."""

from dataclasses import replace

from calc.families.attention_rows import Attention, Every, Hybrid, Sliding
from calc.families.family import PACKED_QKV, POST_NORMS, TWO_NORMS, Family, Weights
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import If, number, stated_or
from calc.families.recurrent_rows import DELTA_NET
from calc.families.rotary import Rotary
from calc.model.conventions import Kernels, Names

OLMO2_ATTENTION = Attention(bias="attention_bias", qk_norm="full")
OLMO2_KERNELS = Kernels(norm="rms32", rotation="fp32")


N_K = stated_or("linear_num_key_heads", "num_attention_heads")
D_K = stated_or("linear_key_head_dim", lambda c: 3 * c.size("hidden_size") // (4 * number(c, N_K)))
OLMO_DELTA_NET = DELTA_NET.but(  # widths follow from attention's where they are left out
    n_k=N_K,
    n_v=stated_or("linear_num_value_heads", "num_attention_heads"),
    d_k=D_K,
    d_v=stated_or("linear_value_head_dim", lambda c: 2 * number(c, D_K)),
)
OLMO_HYBRID = Hybrid(  # every fourth layer attends, and the last one of a model that has no fourth
    OLMO2_ATTENTION, OLMO_DELTA_NET, Every(lambda c: min(4, c.size("num_hidden_layers")))
)


OLMO2 = Family(mixer=OLMO2_ATTENTION, norms=POST_NORMS, kernels=OLMO2_KERNELS)

OLMO: dict[str, Family] = {
    "olmo": Family(norms=(), norm="none", kernels=Kernels(rotation="fp32")),
    "olmo2": replace(OLMO2, mixture="flex_olmo"),
    "olmo3": replace(
        OLMO2, mixer=replace(OLMO2_ATTENTION, window=Sliding(full_every=4)), rotary=Rotary(own_within_windows=True)
    ),
    "olmoe": Family(mixer=OLMO2_ATTENTION, ffn=Experts("num_experts", "intermediate_size")),
    "flex_olmo": Family(mixer=OLMO2_ATTENTION, ffn=Experts("num_experts", "intermediate_size"), norms=POST_NORMS),
    "olmo_hybrid": Family(
        mixer=OLMO_HYBRID,
        norms=lambda c, layer: POST_NORMS if OLMO_HYBRID.is_attention(c, layer) else TWO_NORMS,
        names=Names(
            renamed={f"in_{letter}": f"{letter}_proj" for letter in "qkvba"}
            | {"in_z": "g_proj", "norm": "o_norm", "out_proj": "o_proj"}
        ),
        kernels=OLMO2_KERNELS,
    ),
    "molmo2_text": Family(  # words that stand for images are in the embedding, not in the head
        mixer=Attention(
            qkv_bias="attention_bias", qk_norm=If(lambda c: c.get("qk_norm_type") == "qwen3", "head", "full")
        ),
        ffn=Dense(bias=False),
        norms=("attn_norm", "ff_norm"),
        extras=(
            Weights("embedding", {"model.transformer.wte.new_embedding": ("additional_vocab_size", "hidden_size")}),
        ),
        ties=False,
        names=Names(
            module="model.transformer",
            embedding="wte.embedding",
            layer="blocks.{layer}",
            final_norm="ln_f",
            packed={"att_proj": PACKED_QKV, "ff_proj": ("up_proj", "gate_proj")},
            renamed={"o_proj": "attn_out", "down_proj": "ff_out"},
        ),
    ),
}
