"""SK Telecom: A.X."""

from calc.families.attention_rows import MLA
from calc.families.deepseek import DEEPSEEK_EXPERTS
from calc.families.family import Family, extras
from calc.families.fields import Fields
from calc.model.block import Extra
from calc.model.tensor import Shape


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


SK_TELECOM: dict[str, Family] = {
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
}
