"""Meituan: LongCat-Flash: two attentions and two dense feed-forwards a layer."""

from calc.families.attention_rows import MLA
from calc.families.family import TWO_NORMS, Family, extras
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields
from calc.model.block import Extra
from calc.model.names import Names


def longcat_mlps(c: Fields, layer: int) -> tuple[Extra, ...]:
    """The dense feed-forward of each half of a layer."""
    shapes = Dense("ffn_hidden_size", False)(c).shapes(c.size("hidden_size"))
    return extras("mlp", {f"mlps.{half}.{name}": shape for half in (0, 1) for name, shape in shapes.items()})


LONGCAT_MLA = MLA()

MEITUAN: dict[str, Family] = {
    "longcat_flash": Family(
        maker="Meituan",
        mixer=lambda c, i: (LONGCAT_MLA(c), LONGCAT_MLA(c)),
        ffn=Experts(
            "n_routed_experts",
            "expert_ffn_hidden_size",
            "moe_topk",
            correction="buffer",
            router_bias="router_bias",
            n_zero="zero_expert_num",
        ),
        norms=tuple(f"{norm}.{half}" for norm in TWO_NORMS for half in (0, 1)),
        names=Names(
            attention="self_attn.{mixer}",
            router="mlp.router.classifier",
            correction="mlp.router.e_score_correction_bias",
        ),
        layers="num_layers",
        layer_extras=longcat_mlps,
        follows={"qk_head_dim": lambda c: c.size("qk_nope_head_dim") + c.size("qk_rope_head_dim")},
    ),
}
