"""MyShell: JetMoE, arXiv:2404.07413: an expert of attention is a query and an output projection of all heads."""

from calc.families.family import Family, extras
from calc.families.feedforward_rows import Experts
from calc.families.fields import Fields
from calc.families.granite import GRANITE_MOE_NAMES
from calc.model.attention import GQA
from calc.model.block import Extra
from calc.model.mixers import Mixer
from calc.model.tensor import Shape


def jetmoe_attention(c: Fields, layer: int) -> Mixer:
    n_kv = c.size("num_key_value_heads")
    return GQA(n_q=n_kv * c.size("num_experts_per_tok"), n_kv=n_kv, d_head=c.size("kv_channels"), routed=True)


def jetmoe_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """The experts of attention, and a bias behind each set of experts."""
    hidden, wide = c.size("hidden_size"), c.size("num_key_value_heads") * c.size("kv_channels")
    experts, top_k, path = c.size("num_local_experts"), c.size("num_experts_per_tok"), "self_attention.experts"
    pairs: dict[str, Shape] = {
        f"{path}.input_linear.weight": (experts, wide, hidden),
        f"{path}.output_linear.weight": (experts, hidden, wide),
    }
    return (
        *extras("attention", pairs, experts=experts, top_k=top_k),
        *extras("attention", {f"{path}.bias": (hidden,)}),
        *extras("router", {f"{path}.router.layer.weight": (experts, hidden)}),
        *extras("experts_shared", {"mlp.bias": (hidden,)}),
    )


MYSHELL: dict[str, Family] = {
    "jetmoe": Family(
        maker="MyShell",
        mixer=jetmoe_attention,
        ffn=Experts("num_local_experts", "intermediate_size", stacked="module"),
        layer_extras=jetmoe_extras,
        names=GRANITE_MOE_NAMES.model_copy(
            update={
                "attention": "self_attention",
                "router": "mlp.router.layer",
                "expert": "mlp",
                "packed": {"kv_proj": ("k_proj", "v_proj")},
            }
        ),
    ),
}
