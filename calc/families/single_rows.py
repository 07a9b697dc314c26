"""Makers of one family that has no rule of its own."""

from dataclasses import replace

from calc.families.attention_rows import LISTED_ONLY, Attention, Sliding
from calc.families.deepseek import DEEPSEEK_EXPERTS
from calc.families.family import (
    GATE_UP,
    GEMMA_NORMS,
    LLAMA_FILE,
    PACKED_QKV,
    QK_LAYERNORM,
    TWO_NORMS,
    Family,
    If,
    Weights,
    Wrapper,
)
from calc.families.feedforward_rows import Dense, Experts
from calc.families.llama import LLAMA_LIKE
from calc.model.gguf_rules import GGUFRules
from calc.model.kernels import Kernels
from calc.model.names import Names

BIASED = Attention(bias="attention_bias")

SINGLE_ROWS: dict[str, Family] = {
    "baichuan": Family(
        maker="Baichuan",
        mixer=Attention(kv=None, head_dim=None),
        ffn=Dense(),
        names=Names(packed={"W_pack": PACKED_QKV}),
        defaults="llama",
        aliases={"model_max_length": "max_position_embeddings"},
        gguf=GGUFRules("baichuan", splits_qkv=True),
    ),
    "skywork": replace(LLAMA_LIKE, maker="Kunlun"),
    "xverse": replace(LLAMA_LIKE, maker="XVERSE", gguf=GGUFRules("xverse")),
    "Yi": replace(LLAMA_LIKE, maker="01.AI", norms=("ln1", "ln2"), gguf=LLAMA_FILE),
    "orion": replace(LLAMA_LIKE, maker="OrionStar", norm="layer", gguf=GGUFRules("orion")),
    "telechat": Family(
        maker="China Telecom",
        mixer=Attention(out_bias=True),
        ffn=Dense(bias=False),
        names=Names(
            embedding="transformer.word_embeddings",
            layer="transformer.h.{layer}",
            attention="self_attention",
            final_norm="transformer.ln_f",
            packed={"key_value": ("k_proj", "v_proj")},
            renamed={"q_proj": "query", "o_proj": "dense"},
        ),
        defaults="llama",
        aliases={
            "n_layer": "num_hidden_layers",
            "n_head": "num_attention_heads",
            "ffn_hidden_size": "intermediate_size",
            "n_embed": "hidden_size",
            "seq_length": "max_position_embeddings",
        },
        layer_extras=Weights({"mlp": {"mlp.down_proj.bias": ("hidden_size",)}}),  # and none on the other two
    ),
    "seed_oss": Family(
        maker="ByteDance",
        mixer=Attention(qkv_bias="attention_bias", out_bias="attention_out_bias"),
        ffn=Dense(),
        kernels=Kernels(dropout=frozenset({"scores", "residual"})),
        gguf=GGUFRules("seed_oss"),
    ),
    "iquestcoder": Family(maker="IQuest", mixer=Attention(bias="attention_bias"), ffn=Dense(), gguf=LLAMA_FILE),
    "hyperclovax": Family(
        maker="Naver",
        mixer=Attention(bias="attention_bias"),
        ffn=Dense(),
        norms=If("use_post_norm", (*TWO_NORMS, "post_norm1", "post_norm2"), TWO_NORMS),
        wrappers=(Wrapper("hyperclovax_vision_v2"),),
    ),
    "solar_open": Family(
        maker="Upstage",
        mixer=Attention(qkv_bias="attention_bias"),
        ffn=replace(DEEPSEEK_EXPERTS, first_dense=None),
        gguf=GGUFRules("glm4moe"),
    ),
    "persimmon": Family(
        maker="Adept",
        mixer=Attention(
            kv=None, head_dim=None, bias=True, qk_norm="head", qk_norm_when="qk_layernorm", qk_norm_bias=True
        ),
        ffn=Dense(gated=False, bias=True),
        norm="layer",
        names=Names(
            packed={"query_key_value": PACKED_QKV},
            renamed={"o_proj": "dense", "up_proj": "dense_h_to_4h", "down_proj": "dense_4h_to_h"} | QK_LAYERNORM,
            final_norm="model.final_layernorm",
        ),
        wrappers=(Wrapper("fuyu"),),
    ),
    "nanochat": Family(
        maker="Karpathy",
        mixer=BIASED,
        ffn=Dense(gated=False, bias=False),
        norms=(),
        norm="none",
        names=Names(renamed={"up_proj": "fc1", "down_proj": "fc2"}),
        kernels=Kernels(
            rms_alone=True,
            norms_unweighted=frozenset({"rotated", "embedded"}),
            activation="squared",
            capped_logits=True,
        ),
    ),
    "jais2": Family(
        maker="Inception", mixer=BIASED, ffn=Dense(gated=False), norm="layer", kernels=Kernels(activation="squared")
    ),
    "aria_text": Family(
        maker="Rhymes AI",
        mixer=BIASED,
        ffn=Experts(
            "moe_num_experts",
            "intermediate_size",
            "moe_topk",
            shared="moe_num_shared_experts",
            shared_bias="mlp_bias",
            stacked="module_in_out",
        ),
        names=Names(
            router="mlp.router",
            expert="mlp.experts",
            expert_packed={"fc1": GATE_UP},
            expert_renamed={"down_proj": "fc2"},
        ),
        wrappers=(Wrapper("aria"),),
    ),
    "mellum": Family(
        maker="JetBrains",
        mixer=Attention(bias="attention_bias", qk_norm="head", window=LISTED_ONLY),
        ffn=Experts(first_dense=0, dense=Dense(bias=False)),
    ),
    "kolibri1": Family(
        maker="Aleph Alpha",
        mixer=Attention(qk_norm="head", window=Sliding(full_every=5)),
        ffn=Experts(shared_width="shared_expert_intermediate_size", correction="buffer"),
        norms=(*TWO_NORMS, "post_attn_norm", "post_ffn_norm"),
        names=Names(correction="moe.router.expert_bias"),
        aliases={"num_local_experts": "num_experts"},
    ),
    "beam": Family(
        maker="Reflection AI",
        mixer=Attention(
            bias="attention_bias", qk_norm="head", gate="channels", window=Sliding(full_every=6, last_full=True)
        ),
        ffn=Experts(correction="buffer", first_dense=3, dense=Dense(bias=False)),
        norms=GEMMA_NORMS,
        names=Names(renamed={"g_proj": "gate_proj"}),
        layer_extras=Weights({"attention": {"self_attn.gate_bias": ("num_attention_heads",)}}),
        kernels=Kernels(capped_logits=True),
    ),
}
