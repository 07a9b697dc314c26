"""Xiaomi: MiMo; the sliding layers of MiMo-V2 have more KV heads, and sinks."""

from dataclasses import replace

from calc.families.attention_rows import Attention, Sliding
from calc.families.deepseek import DEEPSEEK_EXPERTS
from calc.families.family import MTP, Family
from calc.families.feedforward_rows import Dense, is_sparse
from calc.families.fields import Fields
from calc.families.qwen import QWEN2_ATTENTION
from calc.model.attention import GQA
from calc.model.names import Names


def mimo_v2_reach(c: Fields) -> int:
    stated = c.maybe("sliding_window_size")
    return stated + 1 if stated is not None else c.size("sliding_window")


MIMO_V2_WINDOW = Sliding(full_every=6, first_full=1, marks="hybrid_layer_pattern", size=mimo_v2_reach)
MIMO_V2_FULL = Attention(d_v="v_head_dim", qkv_bias="attention_bias")
MIMO_V2_SLIDING = replace(MIMO_V2_FULL, kv="swa_num_key_value_heads", sinks=True, window=MIMO_V2_WINDOW)


def mimo_v2_attention(c: Fields, layer: int) -> GQA:
    if MIMO_V2_WINDOW(c, layer) is None:
        return MIMO_V2_FULL(c, layer)
    if c.maybe("swa_num_key_value_heads") is None:
        twice = {"swa_num_key_value_heads": 2 * c.size("num_key_value_heads")}
        c = c.once("mimo_v2 sliding", lambda: c.with_all_stated(twice))
    return MIMO_V2_SLIDING(c, layer)


def mimo_v2_sparse(c: Fields, layer: int) -> bool:
    freq = c.get("moe_layer_freq")
    return bool(freq[layer]) if isinstance(freq, list) and layer < len(freq) else is_sparse(c, layer, 1)


XIAOMI: dict[str, Family] = {
    "mimo": Family(
        maker="Xiaomi",
        mixer=QWEN2_ATTENTION,
        ffn=Dense(),
        defaults="qwen2",
        own={"num_nextn_predict_layers": 0},
        prediction=MTP(
            Attention(qkv_bias=True),
            Dense(),
            norms=("token_layernorm", "hidden_layernorm", "final_layernorm"),
            projection=("input_proj",),
            layer="model.mtp_layers.{layer}",
        ),
    ),
    "mimo_v2_flash": Family(
        maker="Xiaomi",
        mixer=mimo_v2_attention,
        ffn=replace(DEEPSEEK_EXPERTS, sparse=mimo_v2_sparse, dense=Dense()),
        names=Names(renamed={"sinks": "attention_sink_bias"}),
        own={"n_shared_experts": None, "swa_num_key_value_heads": None, "sliding_window_size": None},
    ),
}
