"""LG AI Research: EXAONE."""

from calc.families.attention_rows import Attention, Sliding
from calc.families.family import POST_NORMS, Family, Wrapper
from calc.families.feedforward_rows import Dense, Experts
from calc.model.gguf_rules import GGUFRules
from calc.model.names import Names

EXAONE4_ATTENTION = Attention(qk_norm="head", window=Sliding(full_every="sliding_window_pattern"))

LG: dict[str, Family] = {
    "exaone": Family(
        maker="LG AI Research",
        mixer=Attention(),
        ffn=Dense(bias=False),
        norms=("ln_1", "ln_2"),
        names=Names(
            embedding="transformer.wte",
            layer="transformer.h.{layer}",
            attention="attn.attention",
            final_norm="transformer.ln_f",
            renamed={"o_proj": "out_proj", "gate_proj": "c_fc_0", "up_proj": "c_fc_1", "down_proj": "c_proj"},
        ),
        defaults="llama",
        aliases={"num_layers": "num_hidden_layers"},
        gguf=GGUFRules("exaone"),
    ),
    "exaone4": Family(
        maker="LG AI Research",
        mixer=EXAONE4_ATTENTION,
        ffn=Dense(),
        norms=POST_NORMS,
        wrappers=(Wrapper("exaone4_5"),),
        gguf=GGUFRules("exaone4"),
    ),
    "exaone_moe": Family(
        maker="LG AI Research",
        mixer=EXAONE4_ATTENTION,
        ffn=Experts(
            shared="num_shared_experts",
            shared_bias="mlp_bias",
            correction="buffer",
            first_dense="first_k_dense_replace",
        ),
        names=Names(correction="mlp.e_score_correction_bias"),
    ),
}
