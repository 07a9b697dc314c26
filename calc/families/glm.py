"""Zhipu's families: GLM."""

from dataclasses import replace

from calc.families.attention_rows import MLA, Attention, Every, Hybrid
from calc.families.deepseek import DEEPSEEK_EXPERTS, HYPER_CONNECTIONS, owns_indexer
from calc.families.family import GATE_UP, MTP, PACKED_QKV, TWO_NORMS, Family, Weights
from calc.families.fields import If
from calc.families.moonshot import KIMI_DELTA
from calc.families.rotary import WHOLE_HEAD, Rotary
from calc.model.conventions import Names

GLM_ATTENTION = Attention(qkv_bias="attention_bias")
GLM4_MOE_ATTENTION = replace(GLM_ATTENTION, qk_norm=If("use_qk_norm", "head", "none"))
GLM4_LITE_EXPERTS = replace(DEEPSEEK_EXPERTS, first_dense=1)
GLM4_NORMS = (*TWO_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm")
GLM_NAMES = Names(packed={"gate_up_proj": GATE_UP})
HALF = Rotary(share=0.5)
GLM_DSA = MLA(indexer=True, owns_indexer=owns_indexer)
GLM5_MIXER = Hybrid(
    replace(GLM_DSA, index_pool="index_kpool"),
    KIMI_DELTA.but(decays="heads"),
    Every(4),
    words=("full_attention", "indexed_attention", "linear_attention"),
)


GLM5_POOLS = Weights(
    "attention",
    {"ape": ("index_kpool", "index_head_dim"), "gate": ("index_head_dim", "hidden_size")},
    layers=lambda c, layer: GLM5_MIXER.is_attention(c, layer) and owns_indexer(c, layer),
    at=("self_attn.indexer.index_kpool_compress_",),
)

GLM4 = Family(mixer=GLM_ATTENTION, norms=GLM4_NORMS, names=GLM_NAMES, rotary=HALF)

GLM: dict[str, Family] = {
    "chatglm": Family(
        mixer=GLM_ATTENTION,
        names=Names(
            module="transformer",
            embedding="embedding.word_embeddings",
            layer="encoder.layers.{layer}",
            attention="self_attention",
            final_norm="encoder.final_layernorm",
            lm_head="transformer.output_layer",
            packed={"query_key_value": PACKED_QKV, "dense_h_to_4h": GATE_UP},
            renamed={"o_proj": "dense", "down_proj": "dense_4h_to_h"},
        ),
        rotary=HALF,
    ),
    "glm": Family(mixer=GLM_ATTENTION, names=GLM_NAMES, rotary=HALF),
    "glm4": GLM4,
    "glm4v_text": replace(GLM4, mixer=Attention(qkv_bias=True), rotary=Rotary(share=0.5, axes=3)),
    "glm_ocr_text": replace(GLM4, mixer=Attention(), rotary=WHOLE_HEAD),
    "glm4_moe": Family(
        mixer=GLM4_MOE_ATTENTION,
        ffn=DEEPSEEK_EXPERTS,
        rotary=HALF,
        prediction=MTP(GLM4_MOE_ATTENTION, DEEPSEEK_EXPERTS, own_tables=True),
    ),
    "glm4v_moe_text": Family(mixer=GLM_ATTENTION, ffn=DEEPSEEK_EXPERTS, rotary=Rotary(share=0.5, axes=3)),
    "glm4_moe_lite": Family(
        mixer=MLA(), ffn=GLM4_LITE_EXPERTS, prediction=MTP(MLA(), GLM4_LITE_EXPERTS, own_tables=True)
    ),
    "glm5_next_text": Family(
        mixer=GLM5_MIXER,
        ffn=replace(DEEPSEEK_EXPERTS, first_dense=3),
        names=Names(recurrent="self_attn"),
        rotary=None,
        layer_extras=(HYPER_CONNECTIONS, GLM5_POOLS),
    ),
    "glm_moe_dsa": Family(mixer=GLM_DSA, ffn=DEEPSEEK_EXPERTS, prediction=MTP(GLM_DSA, DEEPSEEK_EXPERTS)),
}
