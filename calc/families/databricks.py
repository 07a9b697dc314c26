"""Databricks' families: MPT and DBRX."""

from calc.families.attention_rows import Attention
from calc.families.family import PACKED_QKV, Family
from calc.families.feedforward_rows import Dense, Experts, Times
from calc.families.fields import Fields
from calc.model.feedforward import MoE
from calc.model.gguf_rules import GGUFRules
from calc.model.mixers import Mixer
from calc.model.names import Names


def dbrx_section(c: Fields, name: str, defaults: dict[str, int]) -> Fields:
    stated = c.get(name)
    return c.within(defaults | (stated if isinstance(stated, dict) else {}))


DBRX_ATTENTION = Attention(heads="n_heads", hidden="d_model", head_dim=None)
DBRX_EXPERTS = Experts("moe_num_experts", "ffn_hidden_size", "moe_top_k", stacked="out_in")


def dbrx_attention(c: Fields, layer: int) -> Mixer:
    n_kv = dbrx_section(c, "attn_config", {"kv_n_heads": 1}).size("kv_n_heads")
    return DBRX_ATTENTION(c.with_stated("num_key_value_heads", n_kv))


def dbrx_moe(c: Fields, layer: int) -> MoE:
    defaults = {"ffn_hidden_size": 3584, "moe_num_experts": 4, "moe_top_k": 1}
    return DBRX_EXPERTS.experts(dbrx_section(c, "ffn_config", defaults))


DATABRICKS: dict[str, Family] = {
    "mpt": Family(
        maker="Databricks",
        mixer=Attention(heads="n_heads", kv=None, head_dim=None, hidden="d_model"),
        ffn=Dense(Times("expansion_ratio", "d_model"), False, gated=False),
        norms=("norm_1", "norm_2"),
        names=Names(
            embedding="transformer.wte",
            layer="transformer.blocks.{layer}",
            attention="attn",
            mlp="ffn",
            final_norm="transformer.norm_f",
            packed={"Wqkv": PACKED_QKV},
            renamed={"o_proj": "out_proj"},
        ),
        rotary=None,
        layers="n_layers",
        hidden="d_model",
        max_positions="max_seq_len",
        gguf=GGUFRules("mpt"),
    ),
    "dbrx": Family(
        maker="Databricks",
        mixer=dbrx_attention,
        ffn=dbrx_moe,
        norms=("norm_attn_norm.norm_1", "norm_attn_norm.norm_2"),
        names=Names(
            embedding="transformer.wte",
            layer="transformer.blocks.{layer}",
            attention="norm_attn_norm.attn",
            router="ffn.router.layer",
            expert="ffn.experts.mlp",
            final_norm="transformer.norm_f",
            packed={"Wqkv": PACKED_QKV},
            renamed={"o_proj": "out_proj"},
            expert_renamed={"gate_proj": "w1", "up_proj": "v1", "down_proj": "w2"},
        ),
        layers="n_layers",
        hidden="d_model",
        max_positions="max_seq_len",
        gguf=GGUFRules("dbrx"),
    ),
}
