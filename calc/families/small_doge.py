"""SmallDoge: Doge."""

from math import isqrt

from calc.families.attention_rows import Attention, Window
from calc.families.family import Family, extras
from calc.families.feedforward_rows import Dense
from calc.families.fields import Fields
from calc.model.block import Extra
from calc.model.tensor import Shape

DOGE_ATTENTION = Attention(bias="attention_bias", qk_norm="head", window=Window())


def doge_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Doge: a mask made of the values, scales of the residual, and experts of one row each in each direction."""
    hidden, attention = c.size("hidden_size"), DOGE_ATTENTION(c, layer)
    step: dict[str, Shape] = {
        "self_attn.A": (attention.n_kv,),
        "self_attn.dt_proj.weight": (attention.n_kv, attention.n_kv * attention.d_head),
    }
    if c.flag("attention_bias"):
        step |= {"self_attn.dt_proj.bias": (attention.n_kv,)}
    tensors = extras("attention", step)
    tensors += extras("other", {"input_residual": (hidden,), "post_attention_residual": (hidden,)})
    if c.flag("is_moe"):
        experts = c.size("num_experts")
        rows: dict[str, Shape] = {f"mlp.{way}_embed.weight": (experts, hidden) for way in ("down", "up")}
        tensors += extras("experts_routed", rows, experts=experts, top_k=c.size("num_experts_per_tok"))
        tensors += extras("router", {"mlp.router_gate.weight": (2 * isqrt(experts), hidden)})
    return tensors


SMALL_DOGE: dict[str, Family] = {
    "doge": Family(maker="SmallDoge", mixer=DOGE_ATTENTION, ffn=Dense(), layer_extras=doge_extras),
}
