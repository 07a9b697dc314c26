"""Zyphra's families: Zamba and Zamba 2, where one attention block, or a few, run in many layers; and ZAYA."""

from dataclasses import replace
from typing import Any

from calc.families.attention_rows import Attention, Window
from calc.families.family import GATE_UP, STACKED_EXPERTS, Family, Weights, extras
from calc.families.feedforward_rows import Experts, no_feedforward
from calc.families.fields import Fields, ShapeOf
from calc.families.recurrent_rows import MAMBA2, PREFIXED_MAMBA
from calc.families.rotary import Rotary
from calc.model.attention import GQA
from calc.model.block import Block, Extra
from calc.model.conventions import Names
from calc.model.feedforward import MLP
from calc.model.mixers import Mixer
from calc.model.recurrent import QKConvs
from calc.model.tensor import Shape


def zamba_is_hybrid(c: Fields, layer: int) -> bool:
    """Whether a layer runs a shared block too."""
    listed = c.get("layers_block_type")
    if isinstance(listed, list) and layer < len(listed):
        return bool(listed[layer] == "hybrid")
    if "attn_layer_period" in c.defaults:
        period, offset = c.size("attn_layer_period"), c.size("attn_layer_offset", 0)
        return layer == 2 if layer < 3 else (layer - 3) % period == offset
    return layer in ZAMBA2_HYBRID


ZAMBA2_HYBRID = frozenset({6, 12, 18, 24, 30, 36, 42, 47, 51})
"""The class's default for Zamba2 of 54 layers."""


def zamba_places(c: Fields) -> tuple[int, ...]:
    return tuple(i for i in range(c.size("num_hidden_layers")) if zamba_is_hybrid(c, i))


def zamba_attention(c: Fields) -> GQA:
    """Attention to the hidden state joined to the embedding: twice as wide."""
    n_q = c.size("num_attention_heads")
    d_head = c.maybe("attention_head_dim") or 2 * c.size("hidden_size") // n_q
    return GQA(n_q=n_q, n_kv=c.maybe("num_key_value_heads") or n_q, d_head=d_head, d_in=zamba_width(c))


def zamba_width(c: Fields) -> int:
    return c.maybe("attention_hidden_size") or 2 * c.size("hidden_size")


def zamba_block(c: Fields, path: str, places: tuple[int, ...], ffn: MLP, adapters: tuple[Extra, ...] = ()) -> Block:
    """A shared block, with the layers that run it."""
    norms = {f"{path}.input_layernorm.weight": (zamba_width(c),)}
    norms |= {f"{path}.pre_ff_layernorm.weight": (c.size("hidden_size"),)}
    return Block(
        layers=places[:1],
        mixers=(zamba_attention(c),),
        ffn=ffn,
        norms=(),
        extras=(*extras("norms", norms), *adapters),
        places=places,
    )


def zamba_shared(c: Fields) -> tuple[Block, ...]:
    places, ffn = zamba_places(c), MLP(intermediate=c.size("intermediate_size"))
    return (zamba_block(c, "shared_transf", places, ffn),) if places else ()


def zamba2_shared(c: Fields) -> tuple[Block, ...]:
    """`num_mem_blocks` blocks take turns; each place that runs one has low-rank adapters of its own."""
    places, number = zamba_places(c), c.size("num_mem_blocks")
    ffn = MLP(intermediate=c.maybe("intermediate_size") or 4 * c.size("hidden_size"), bias=c.flag("add_bias_linear"))
    return tuple(
        zamba_block(
            c,
            "shared_transformer",
            places[block::number],
            ffn,
            zamba2_adapters(c, range(block, len(places), number), ffn.intermediate),
        )
        for block in range(min(number, len(places)))
    )


def zamba2_adapters(c: Fields, turns: range, width: int) -> tuple[Extra, ...]:
    """Low-rank adapters of a shared block, one set for each place that runs it."""
    hidden, rank = c.size("hidden_size"), c.size("adapter_rank")
    attention: dict[str, Shape] = {}
    mlp: dict[str, Shape] = {}
    for turn in turns:
        path = f"shared_transformer.feed_forward.gate_up_proj_adapter_list.{turn}"
        mlp |= {f"{path}.0.weight": (rank, hidden), f"{path}.1.weight": (2 * width, rank)}
        if c.flag("use_shared_attention_adapter"):
            for part in ("q", "k", "v"):
                path = f"shared_transformer.self_attn.linear_{part}_adapter_list.{turn}"
                attention |= {f"{path}.0.weight": (rank, zamba_width(c)), f"{path}.1.weight": (zamba_width(c), rank)}
    return (*extras("attention", attention), *extras("mlp", mlp))


def zamba_names(path: str, **more: Any) -> Names:
    return Names(
        recurrent="mamba",
        attention=f"{path}.self_attn",
        mlp=f"{path}.feed_forward",
        final_norm="final_layernorm",
        **more,
    )


# ZAYA, arXiv:2605.05365: convolutions over queries and keys, a router of its own width that passes its state on

ZAYA_FULL = Attention(bias="attention_bias", delayed=True)
ZAYA_SLIDING = replace(ZAYA_FULL, window=Window())


def zaya_mixers(c: Fields, layer: int) -> tuple[Mixer, ...]:
    """Attention, and the convolutions over its queries and keys."""
    kinds = c.per_layer("layer_types", c.size("num_hidden_layers"), ("hybrid", "hybrid_sliding"))
    attention = (ZAYA_SLIDING if kinds and kinds[layer] == "hybrid_sliding" else ZAYA_FULL)(c, layer)
    convs = QKConvs(
        n_q=attention.n_q,
        n_kv=attention.n_kv,
        d_head=attention.d_head,
        d_channel=c.size("cca_time0"),
        d_grouped=c.size("cca_time1"),
    )
    return attention, convs


def follows(c: Fields, layer: int) -> bool:
    """Whether a layer's router has a state before it: all but the first."""
    return layer > 0


STREAMS = ("hidden_states", "residual")
LINEAR: dict[str, ShapeOf] = {"weight": ("router_hidden_size", "router_hidden_size"), "bias": ("router_hidden_size",)}
ZAYA_LAYER = (
    Weights("router", {"down_proj.weight": ("router_hidden_size", "hidden_size")}, at=("mlp.gate.",)),
    Weights("router", {"down_proj.bias": ("router_hidden_size",)}, at=("mlp.gate.",)),
    Weights("router", {"norm.weight": ("router_hidden_size",)}, at=("mlp.gate.router_mlp.",)),
    Weights("router", LINEAR, at=("mlp.gate.router_mlp.fc1.", "mlp.gate.router_mlp.fc2.")),
    Weights("router", {"mlp.gate.router_states_scale": ("router_hidden_size",)}, layers=follows),
    Weights(
        "other",
        dict.fromkeys(("scale", "bias"), ("hidden_size",)),
        at=tuple(f"post_{part}_residual_scale.{name}_" for part in ("attention", "mlp") for name in STREAMS),
    ),
)
ZAMBA = Family(
    mixer=PREFIXED_MAMBA.but(n_heads="n_mamba_heads"),
    ffn=no_feedforward,
    norms=("input_layernorm",),
    names=zamba_names("shared_transf"),
    shared=zamba_shared,
    layer_extras=(Weights("other", {"linear.weight": ("hidden_size", "hidden_size")}, layers=zamba_is_hybrid),),
    path=lambda c, layer: "mamba_decoder" if zamba_is_hybrid(c, layer) else "",
)

ZYPHRA: dict[str, Family] = {
    "zamba": ZAMBA,
    "zamba2": replace(
        ZAMBA,
        mixer=MAMBA2.but(
            n_heads="n_mamba_heads",
            d_head=lambda c: c.size("mamba_expand") * c.size("hidden_size") // c.size("n_mamba_heads"),
            d_state="mamba_d_state",
            n_groups="mamba_ngroups",
            d_conv="mamba_d_conv",
            conv_bias=True,
            bias="add_bias_linear",
        ),
        names=zamba_names("shared_transformer", packed={"gate_up_proj": GATE_UP}),
        shared=zamba2_shared,
    ),
    "zaya": Family(
        mixer=zaya_mixers,
        ffn=Experts(correction="buffer", d_router="router_hidden_size", n_zero=1, stacked="out_in"),
        names=STACKED_EXPERTS.but(
            recurrent="self_attn",
            router="mlp.gate.router_mlp.out_proj",
            correction="mlp.gate.balancing_biases",
            renamed={name: f"qkv_proj.{name}" for name in ("q_proj", "k_proj", "v_proj_current", "v_proj_delayed")},
        ),
        rotary=Rotary(share=0.5, own_within_windows=True),
        layer_extras=ZAYA_LAYER,
        extras=(
            Weights("other", {f"model.input_hidden_states_{leaf}": ("hidden_size",) for leaf in ("scale", "bias")}),
        ),
        head_bias="lm_head_bias",
    ),
}
