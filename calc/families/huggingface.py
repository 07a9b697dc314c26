"""Hugging Face's families: SmolLM3, and Idefics of 2023."""

from collections.abc import Mapping

from calc.families.attention_rows import Attention, Sliding
from calc.families.family import TWO_NORMS, Family, extras, made_by
from calc.families.feedforward_rows import Dense
from calc.families.fields import Fields
from calc.model.block import Extra
from calc.model.gguf_rules import GGUFRules
from calc.model.tensor import Component, Shape

# Idefics: between the layers of a Llama others read images, each held back by two learned scalars

IDEFICS_ATTENTION = Attention(kv=None, head_dim=None)
IDEFICS_FFN = Dense(bias=False)


def idefics_image_width(c: Fields) -> int:
    """Width of a patch, as the tower yields it."""
    return c.within(c.get("vision_config")).maybe("embed_dim") or 768


def idefics_extras(c: Fields) -> tuple[Extra, ...]:
    hidden, image = c.size("hidden_size"), idefics_image_width(c)
    attention: dict[str, Shape] = {**IDEFICS_ATTENTION(c).shapes(hidden)}
    attention |= {f"{name}_proj.weight": (hidden, image) for name in "kv"}
    if c.flag("qk_layer_norms"):
        attention |= {f"{name}_layer_norm.weight": (hidden // c.size("num_attention_heads"),) for name in "qk"}
    alpha: Shape = (1, 1, hidden) if c.get("alpha_type") == "vector" else (1,)
    parts: dict[Component, Mapping[str, Shape]] = {
        "attention": {f"cross_attn.{name}": shape for name, shape in attention.items()} | {"alpha_cross_attn": alpha},
        "mlp": {f"mlp.{name}": shape for name, shape in IDEFICS_FFN(c).shapes(hidden).items()} | {"alpha_dense": alpha},
        "norms": {f"{name}.weight": (hidden,) for name in TWO_NORMS},
    }
    tensors: tuple[Extra, ...] = ()
    for component, shapes in parts.items():
        for i in range(c.size("num_hidden_layers") // c.size("cross_layer_interval")):
            tensors += extras(component, {f"model.gated_cross_attn_layers.{i}.{name}": s for name, s in shapes.items()})
    words: Shape = (c.maybe("additional_vocab_size", 0) or 0, hidden)
    if words[0]:
        tensors += extras("embedding", {"model.embed_tokens.additional_embedding.weight": words})
        tensors += () if c.flag("tie_word_embeddings") else extras("lm_head", {"lm_head.additional_fc.weight": words})
    return tensors


HUGGINGFACE: dict[str, Family] = made_by(
    "Hugging Face",
    {
        "smollm3": Family(
            mixer=Attention(
                bias="attention_bias",
                window=Sliding(slides_every="no_rope_layer_interval", when="use_sliding_window"),
            ),
            ffn=Dense(),
            gguf_headers="smollm3",
            gguf=GGUFRules("smollm3"),
        ),
        "idefics": Family(mixer=IDEFICS_ATTENTION, ffn=IDEFICS_FFN, extras=idefics_extras),
    },
)
