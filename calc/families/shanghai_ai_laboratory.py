"""Shanghai AI Laboratory: InternLM."""

from dataclasses import replace

from calc.families.attention_rows import Attention
from calc.families.family import LLAMA_FILE, PACKED_QKV, Family
from calc.families.feedforward_rows import Dense
from calc.families.llama import LLAMA_LIKE
from calc.model.gguf_rules import GGUFRules
from calc.model.names import Names

SHANGHAI_AI_LABORATORY: dict[str, Family] = {
    "internlm": replace(LLAMA_LIKE, maker="Shanghai AI Laboratory", mixer=Attention(bias="bias"), own={"bias": True}),
    "internlm2": Family(
        maker="Shanghai AI Laboratory",
        mixer=Attention(bias="bias"),
        ffn=Dense(),
        norms=("attention_norm", "ffn_norm"),
        names=Names(
            embedding="model.tok_embeddings",
            attention="attention",
            mlp="feed_forward",
            lm_head="output",
            packed={"wqkv": PACKED_QKV},
            renamed={"o_proj": "wo", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"},
        ),
        defaults="llama",
        own={"bias": False},
        gguf=GGUFRules("internlm2", splits_qkv=True),
    ),
    "internlm3": Family(
        maker="Shanghai AI Laboratory",
        mixer=Attention(qkv_bias="qkv_bias", out_bias="bias"),
        ffn=Dense(bias="bias"),
        gguf=LLAMA_FILE,
    ),
}
