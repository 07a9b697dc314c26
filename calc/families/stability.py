"""Stability AI: StableLM."""

from dataclasses import replace

from calc.families.attention_rows import Attention
from calc.families.family import TWO_NORMS, Family, If
from calc.families.feedforward_rows import Dense
from calc.families.rotary import Rotary
from calc.model.gguf_rules import GGUFRules
from calc.model.kernels import Kernels
from calc.model.names import Names

STABLELM = Family(
    maker="Stability AI",
    mixer=Attention(qkv_bias="use_qkv_bias"),
    ffn=Dense(bias=False),
    norm="layer",
    defaults="stablelm",
    gguf=GGUFRules("stablelm"),
)

STABILITY: dict[str, Family] = {
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
}
