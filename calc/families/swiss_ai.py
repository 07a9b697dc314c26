"""Swiss AI: Apertus."""

from calc.families.attention_rows import Attention
from calc.families.family import Family, Weights
from calc.families.feedforward_rows import Dense
from calc.families.fields import Fields
from calc.model.block import Extra
from calc.model.gguf_rules import GGUFRules
from calc.model.kernels import Kernels

QK_NORMED = Attention(bias="attention_bias", qk_norm="head")
XIELU = Weights({"mlp": {f"mlp.act_fn.{name}": (1,) for name in ("alpha_p", "alpha_n")}})
XIELU_CONSTANTS = Weights(
    {"mlp": {f"mlp.act_fn.{name}": () for name in ("beta", "eps")}}, excluded_as="persistent_buffers"
)


def apertus_scalars(c: Fields, layer: int) -> tuple[Extra, ...]:
    """xIELU, arXiv:2411.13010: two learned slopes and two constants."""
    if c.get("hidden_act") not in (None, "xielu"):
        return ()
    return XIELU(c) + XIELU_CONSTANTS(c)


SWISS_AI: dict[str, Family] = {
    "apertus": Family(
        maker="Swiss AI",
        mixer=QK_NORMED,
        ffn=Dense(gated=False, bias=False),
        norms=("attention_layernorm", "feedforward_layernorm"),
        layer_extras=apertus_scalars,
        kernels=Kernels(activation="xielu"),
        gguf=GGUFRules("apertus"),
    ),
}
