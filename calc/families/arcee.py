"""Arcee AI: Arcee and AFM."""

from calc.families.attention_rows import Attention, Sliding
from calc.families.family import TWO_NORMS, Family
from calc.families.feedforward_rows import Dense, Experts
from calc.model.gguf_rules import GGUFRules
from calc.model.kernels import Kernels
from calc.model.names import Names

BIASED = Attention(bias="attention_bias")

ARCEE: dict[str, Family] = {
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
}
