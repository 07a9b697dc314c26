"""Families from Korea: LG's EXAONE, SK Telecom's A.X, Naver's HyperCLOVA X, Upstage's Solar."""

from dataclasses import replace

from calc.families.attention_rows import MLA, Attention, Sliding
from calc.families.deepseek import DEEPSEEK_EXPERTS
from calc.families.family import POST_NORMS, TWO_NORMS, Family, If, Wrapper, extras
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields
from calc.model.block import Extra
from calc.model.gguf_rules import GGUFRules
from calc.model.names import Names
from calc.model.tensor import Shape

EXAONE4_ATTENTION = Attention(qk_norm="head", window=Sliding(full_every="sliding_window_pattern"))


def axk1_norms(c: Fields, layer: int) -> tuple[Extra, ...]:
    """A.X K1: a norm behind experts."""
    if not DEEPSEEK_EXPERTS.is_sparse(c, layer):
        return ()
    return extras("norms", {"post_mlp_layernorm.weight": (c.size("hidden_size"),)})


def axk2_norms(c: Fields, layer: int) -> tuple[str, ...]:
    """A.X K2: norms with a gate, before attention and before experts."""
    gated_too = DEEPSEEK_EXPERTS.is_sparse(c, layer)
    return ("input_layernorm.norm", "post_attention_layernorm" + (".norm" if gated_too else ""))


def axk2_gates(c: Fields, layer: int) -> tuple[Extra, ...]:
    """The gate of a norm: its input through a bottleneck."""
    hidden, rank = c.size("hidden_size"), c.size("gated_norm_rank")
    norms = [name.removesuffix(".norm") for name in axk2_norms(c, layer) if name.endswith(".norm")]
    shapes: dict[str, Shape] = {f"{name}.W_down.weight": (rank, hidden) for name in norms}
    return extras("norms", shapes | {f"{name}.W_up.weight": (hidden, rank) for name in norms})


KOREA: dict[str, Family] = {
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
    "axk1": Family(
        maker="SK Telecom", mixer=MLA(), ffn=DEEPSEEK_EXPERTS, own={"first_k_dense_replace": 1}, layer_extras=axk1_norms
    ),
    "axk2": Family(
        maker="SK Telecom",
        mixer=MLA(indexer=True, query_gate=True),
        ffn=DEEPSEEK_EXPERTS,
        norms=axk2_norms,
        own={"first_k_dense_replace": 1},
        layer_extras=axk2_gates,
    ),
    "hyperclovax": Family(
        maker="Naver",
        mixer=Attention(bias="attention_bias"),
        ffn=Dense(),
        norms=If("use_post_norm", (*TWO_NORMS, "post_norm1", "post_norm2"), TWO_NORMS),
        wrappers=(Wrapper("hyperclovax_vision_v2"),),
    ),
    "solar_open": Family(
        maker="Upstage",
        mixer=Attention(qkv_bias="attention_bias"),
        ffn=replace(DEEPSEEK_EXPERTS, first_dense=None),
        gguf=GGUFRules("glm4moe"),
    ),
}
