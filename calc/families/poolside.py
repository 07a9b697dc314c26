"""Poolside: Laguna, whose heads may differ from layer to layer."""

from dataclasses import replace

from calc.families.attention_rows import LISTED_ONLY, Attention
from calc.families.family import Family
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields
from calc.model.mixers import Mixer
from calc.model.names import Names

LAGUNA = Attention(bias="attention_bias", qk_norm="head", window=LISTED_ONLY)
LAGUNA_GATED = {gate: replace(LAGUNA, gate=gate) for gate in ("heads", "channels")}


def laguna_attention(c: Fields, layer: int) -> Mixer:
    """A gate for each head or each channel."""
    attention = LAGUNA_GATED["heads" if c.get("gating") in (True, "per-head") else "channels"]
    heads = c.get("num_attention_heads_per_layer")
    if isinstance(heads, list):
        c = c.with_stated("num_attention_heads", heads[layer] if layer < len(heads) else None)
    return attention(c, layer)


POOLSIDE: dict[str, Family] = {
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
}
