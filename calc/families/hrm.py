"""Sapient's HRM, arXiv:2506.21734: two stacks that run by turns, the low one `L_cycles` times for each of the high one;
each run has a cache of its own."""

from math import prod

from calc.families.attention_rows import Attention
from calc.families.family import GATE_UP, PACKED_QKV, Family, Weights
from calc.families.feedforward_rows import Dense, no_feedforward
from calc.families.fields import Fields
from calc.model.block import Block
from calc.model.names import Names

HRM_ATTENTION = Attention(kv=None, bias="attention_bias", gate="channels", gate_bias="attention_bias")


def hrm_layers(c: Fields) -> tuple[int, int, int]:
    """Layers of one stack, high cycles, and runs in each of them."""
    high, runs = c.size("H_cycles"), c.size("L_cycles") + 1
    stated = c.maybe("num_layers_per_stack")
    return stated or c.size("num_hidden_layers"), high, runs


def hrm_count(c: Fields) -> int:
    return prod(hrm_layers(c))


def hrm_shared(c: Fields) -> tuple[Block, ...]:
    """Each layer of each stack, with all its runs."""
    layers, high, runs = hrm_layers(c)
    turns = {
        "L_module": [r for r in range(high * runs) if (r + 1) % runs],
        "H_module": range(runs - 1, high * runs, runs),
    }
    return tuple(
        Block(
            layers=(first := runs_of[0] * layers + i,),
            places=tuple(run * layers + i for run in runs_of),
            mixers=(HRM_ATTENTION(c),),
            ffn=Dense()(c),
            norms=(),
            norm="none",
            stack=f"model.{name}.layers.{{layer}}",
            begins=first - i,
        )
        for name, runs_of in turns.items()
        for i in range(layers)
    )


def no_mixer(c: Fields, layer: int) -> None:
    """All layers are in stacks that run several times."""


HRM: dict[str, Family] = {
    "hrm_text": Family(
        maker="Sapient",
        mixer=no_mixer,
        ffn=no_feedforward,
        norms=(),
        norm="none",
        count=hrm_count,
        shared=hrm_shared,
        names=Names(
            attention="attn",
            packed={"gqkv_proj": ("g_proj", *PACKED_QKV), "gate_up_proj": GATE_UP},
        ),
        own={"num_layers_per_stack": None},
        extras=Weights({"other": {"model.z_L_init": ("hidden_size",)}}),
    ),
}
