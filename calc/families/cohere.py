"""Cohere's families."""

from calc.families.attention_rows import LISTED_ONLY, Attention, Sliding
from calc.families.family import Family
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields, If, kind, stated_or
from calc.model.conventions import Kernels

COHERE_KERNELS = Kernels(norm="centred", rotation="fp32_copies")
COHERE_PATTERN = Attention(bias="attention_bias", window=Sliding(full_every="sliding_window_pattern"))
SINGLE_NORM = ("input_layernorm",)


def cohere2_moe_window(c: Fields, layer: int) -> int | None:
    """The dense first layers have a pattern of windows of their own."""
    if kind(c, layer) is not None:
        return LISTED_ONLY(c, layer)
    dense = c.maybe("first_k_dense_replace", 0) or 0
    prefix = layer < dense
    step = c.size("prefix_dense_sliding_window_pattern" if prefix else "sliding_window_pattern", 0)
    full = step and (layer + 1 - (0 if prefix else dense)) % step == 0
    return None if full else c.maybe("sliding_window")


COHERE: dict[str, Family] = {
    "cohere": Family(
        mixer=Attention(bias="attention_bias", qk_norm=If("use_qk_norm", "heads", "none")),
        norms=SINGLE_NORM,
        kernels=COHERE_KERNELS,
    ),
    "cohere2": Family(mixer=COHERE_PATTERN, norms=SINGLE_NORM, kernels=COHERE_KERNELS, mixture="cohere2_moe"),
    "cohere2_moe": Family(
        mixer=Attention(bias="attention_bias", window=cohere2_moe_window),
        ffn=Experts(
            "num_experts",
            "intermediate_size",
            shared="num_shared_experts",
            first_dense="first_k_dense_replace",
            dense=Dense(stated_or("prefix_dense_intermediate_size", "intermediate_size"), False),
        ),
        norms=SINGLE_NORM,
        kernels=COHERE_KERNELS,
    ),
    "cohere_compass_text": Family(
        mixer=Attention(bias="attention_bias", window=LISTED_ONLY),
        ffn=Dense(bias=False),
        norms=SINGLE_NORM,
        kernels=Kernels(norm="centred"),
    ),
}
