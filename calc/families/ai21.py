"""AI21: Jamba."""

from calc.families.attention_rows import Attention, Every, Hybrid
from calc.families.family import Family
from calc.families.feedforward_rows import Experts
from calc.families.fields import Fields
from calc.families.granite import FF_NORMS
from calc.families.recurrent_rows import Mamba
from calc.model.gguf_rules import GGUFRules
from calc.model.names import Names


def jamba_sparse(c: Fields, layer: int) -> bool:
    return c.size("num_experts") > 1 and Every("expert_layer_period", "expert_layer_offset")(c, layer)


AI21: dict[str, Family] = {
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
}
