"""StepFun: Step 3.5."""

from dataclasses import replace

from calc.families.attention_rows import LISTED_ONLY, Attention
from calc.families.family import Family, Wrapper
from calc.families.feedforward_rows import Experts, is_sparse
from calc.families.fields import PER_LAYER_CONFIG, Fields, Size, kind
from calc.model.attention import GQA
from calc.model.names import Names


def own_layers(c: Fields) -> Fields:
    """Fields without the layers of multi-token prediction in lists."""
    layers, further = c.size("num_hidden_layers"), c.maybe("num_nextn_predict_layers", 0) or 0
    for name in ("layer_types", "mlp_layer_types"):
        words = c.get(name)
        if isinstance(words, list) and further and len(words) == layers + further:
            c = c.with_stated(name, words[:layers])
    return c


def step_sliding_heads(c: Fields) -> int:
    other = c.within(c.get("attention_other_setting")).maybe("num_attention_heads")
    return c.maybe("num_sliding_attention_heads") or other or c.size("num_attention_heads")


STEP_HEADS = Attention(bias="attention_bias", qk_norm="head", gate="heads")
STEP_CHANNELS = replace(STEP_HEADS, gate="channels")


def step_attention(c: Fields, layer: int) -> GQA:
    own = c.once("own layers", lambda: own_layers(c))
    attention = STEP_HEADS if c.get("gating") in (True, "per-head") else STEP_CHANNELS
    if kind(own, layer) == "sliding_attention":
        heads: Size = "num_attention_heads" if c.states(PER_LAYER_CONFIG) else step_sliding_heads
        attention = c.once((attention, "sliding"), lambda: replace(attention, heads=heads, window=LISTED_ONLY))
    return attention(own, layer)


def step_sparse(c: Fields, layer: int) -> bool:
    listed = c.get("moe_layers_enum")
    if listed is None or c.get("mlp_layer_types") is not None:
        return is_sparse(c.once("own layers", lambda: own_layers(c)), layer, 3)
    return str(layer) in str(listed).replace(" ", "").strip("[]").split(",")


STEPFUN: dict[str, Family] = {
    "step3p5": Family(
        maker="StepFun",
        mixer=step_attention,
        ffn=Experts(
            "n_routed_experts",
            shared_width="share_expert_dim",
            shared_bias="mlp_bias",
            correction="buffer",
            stacked="module",
            sparse=step_sparse,
        ),
        own={"num_nextn_predict_layers": 0, "gating": True},
        names=Names(router="moe.gate", correction="moe.router_bias", expert="moe", shared_expert="share_expert"),
        wrappers=(Wrapper("step3p7"),),
    ),
}
