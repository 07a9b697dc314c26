"""Kyutai: Helium."""

from calc.families.attention_rows import Attention, shared_width
from calc.families.family import Family
from calc.families.feedforward_rows import Dense
from calc.families.fields import Fields


def helium_d_head(c: Fields) -> int:
    """The class's output projection is square."""
    return shared_width(c, "hidden_size", "num_attention_heads")


KYUTAI: dict[str, Family] = {
    "helium": Family(
        maker="Kyutai", mixer=Attention(qkv_bias="attention_bias"), ffn=Dense(), follows={"head_dim": helium_d_head}
    ),
}
