"""OpenBMB: MiniCPM and CPM-Ant."""

from dataclasses import replace

from calc.families.attention_rows import MLA, Attention, shared_width
from calc.families.family import Family, Weights
from calc.families.feedforward_rows import Dense
from calc.families.fields import Fields
from calc.families.llama import LLAMA_LIKE
from calc.model.gguf_rules import GGUFRules
from calc.model.names import Names


def minicpm3_d_v(c: Fields) -> int:
    return c.maybe("v_head_dim") or shared_width(c, "hidden_size", "num_attention_heads")


def cpmant_prompts(c: Fields) -> int:
    """Rows of the embedding for learned prompts."""
    return c.size("prompt_types") * c.size("prompt_length")


def cpmant_buckets(c: Fields) -> int:
    """One for each pair of segments and each range of distances."""
    return c.size("segment_types") ** 2 + c.size("position_bias_num_buckets")


OPENBMB: dict[str, Family] = {
    "minicpm": replace(LLAMA_LIKE, maker="OpenBMB", own={"tie_word_embeddings": True}, gguf=GGUFRules("minicpm")),
    "minicpm3": Family(
        maker="OpenBMB", mixer=MLA(d_v=minicpm3_d_v), ffn=Dense(), gguf=GGUFRules("minicpm3", splits_latent=False)
    ),
    "cpmant": Family(
        maker="OpenBMB",
        mixer=Attention(kv=None, head_dim="dim_head"),
        ffn=Dense("dim_ff", False),
        norms=("self_att.layernorm_before_attention", "ffn.layernorm_before_ffn"),
        names=Names(
            embedding="cpmant.input_embedding",
            layer="cpmant.encoder.layers.{layer}",
            attention="self_att.self_attention",
            mlp="ffn.ffn",
            final_norm="cpmant.encoder.output_layernorm",
            renamed={f"{letter}_proj": f"project_{letter}" for letter in "qkv"}
            | {"o_proj": "attention_out", "gate_proj": "w_in.w_0", "up_proj": "w_in.w_1", "down_proj": "w_out"},
        ),
        rotary=None,
        own={"max_position_embeddings": None},
        extra_rows=cpmant_prompts,
        ties=False,
        extras=Weights(
            {
                "embedding": {"cpmant.segment_embedding.weight": ("segment_types", "hidden_size")},
                "other": {"cpmant.position_bias.relative_attention_bias": (cpmant_buckets, "num_attention_heads")},
            }
        ),
    ),
}
