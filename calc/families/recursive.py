"""Recursive: Flint."""

from calc.families.attention_rows import Attention, Sliding
from calc.families.family import Family
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields
from calc.model.names import Names


def flint_sparse(c: Fields, layer: int) -> bool:
    dense = c.indices("mlp_only_layers") if c.get("mlp_only_layers") is not None else frozenset({0, 1})
    return layer not in dense and (layer + 1) % c.size("decoder_sparse_step") == 0


RECURSIVE: dict[str, Family] = {
    "flint": Family(
        maker="Recursive",
        mixer=Attention(
            bias="attention_bias",
            qk_norm="head",
            sinks=True,
            window=Sliding(full_every=4, full_at=1, first_full=2, last_full=True),
        ),
        ffn=Experts(shared_width="shared_expert_intermediate_size", sparse=flint_sparse, dense=Dense(bias=False)),
        names=Names(shared_expert="mlp.shared_expert", renamed={"sinks": "softmax_offset"}),
    ),
}
