"""BAAI: Aquila and Emu3."""

from dataclasses import replace

from calc.families.attention_rows import Attention
from calc.families.family import Family, Wrapper
from calc.families.feedforward_rows import Dense
from calc.families.llama import LLAMA_LIKE
from calc.model.names import Names

BAAI: dict[str, Family] = {
    "aquila": replace(LLAMA_LIKE, maker="BAAI"),
    "emu3_text_model": Family(
        maker="BAAI",
        mixer=Attention(bias="attention_bias"),
        ffn=Dense(),
        own={"mlp_bias": False, "attention_bias": False},
        names=Names(
            embedding="text_model.model.embed_tokens",
            layer="text_model.model.layers.{layer}",
            final_norm="text_model.model.norm",
            lm_head="text_model.lm_head",
        ),
        wrappers=(Wrapper("emu3"),),
    ),
}
