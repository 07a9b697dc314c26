"""Zhipu's families: GLM."""

from dataclasses import replace

from calc.families.attention import MLA, Attention
from calc.families.deepseek import DEEPSEEK_EXPERTS
from calc.families.family import GATE_UP, MTP, PACKED_QKV, TWO_NORMS, Family, Wrapper, made_by
from calc.families.feedforward import Dense
from calc.families.fields import Fields
from calc.families.rotary import Rotary
from calc.families.tower_readers import GLM4V
from calc.model.names import Names

GLM_ATTENTION = Attention(qkv_bias="attention_bias")
GLM4_MOE_ATTENTION = replace(GLM_ATTENTION, qk_norm="head", qk_norm_when="use_qk_norm")
GLM4_LITE_EXPERTS = replace(DEEPSEEK_EXPERTS, first_dense=1)
GLM4_NORMS = (*TWO_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm")
GLM_NAMES = Names(packed={"gate_up_proj": GATE_UP})
HALF = Rotary(share=0.5)


def owns_indexer(c: Fields, layer: int) -> bool:
    """GLM-5.2: some layers share the choice of an earlier one."""
    layers = c.size("num_hidden_layers")
    if layer >= layers:
        return True
    listed = c.per_layer("indexer_types", layers, ("full", "shared"))
    if listed is not None:
        return listed[layer] == "full"
    pattern = c.get("index_topk_pattern")
    if isinstance(pattern, str) and layer < len(pattern):
        return pattern[layer] == "F"
    freq, skip = c.maybe("index_topk_freq", 0) or 1, c.maybe("index_skip_topk_offset", 0)
    return max(layer - (2 if skip is None else skip) + 1, 0) % freq == 0


GLM_DSA = MLA(indexer=True, owns_indexer=owns_indexer)

GLM: dict[str, Family] = made_by(
    "Zhipu",
    {
        "chatglm": Family(
            mixer=GLM_ATTENTION,
            ffn=Dense(),
            names=Names(
                embedding="transformer.embedding.word_embeddings",
                layer="transformer.encoder.layers.{layer}",
                attention="self_attention",
                final_norm="transformer.encoder.final_layernorm",
                lm_head="transformer.output_layer",
                packed={"query_key_value": PACKED_QKV, "dense_h_to_4h": GATE_UP},
                renamed={"o_proj": "dense", "down_proj": "dense_4h_to_h"},
            ),
            rotary=HALF,
            defaults="glm",
            aliases={
                "padded_vocab_size": "vocab_size",
                "num_layers": "num_hidden_layers",
                "ffn_hidden_size": "intermediate_size",
                "multi_query_group_num": "num_key_value_heads",
                "kv_channels": "head_dim",
                "add_qkv_bias": "attention_bias",
                "seq_length": "max_position_embeddings",
            },
        ),
        "glm": Family(mixer=GLM_ATTENTION, ffn=Dense(), names=GLM_NAMES, rotary=HALF),
        "glm4": Family(mixer=GLM_ATTENTION, ffn=Dense(), norms=GLM4_NORMS, names=GLM_NAMES, rotary=HALF),
        "glm4v_text": Family(
            mixer=Attention(qkv_bias=True),
            ffn=Dense(),
            norms=GLM4_NORMS,
            names=GLM_NAMES,
            rotary=Rotary(share=0.5, axes=3),
            wrappers=(Wrapper("glm46v", tower=GLM4V), Wrapper("glm4v", tower=GLM4V), Wrapper("glmga")),
        ),
        "glm_ocr_text": Family(
            mixer=Attention(), ffn=Dense(), norms=GLM4_NORMS, names=GLM_NAMES, wrappers=(Wrapper("glm_ocr"),)
        ),
        "glm4_moe": Family(
            mixer=GLM4_MOE_ATTENTION,
            ffn=DEEPSEEK_EXPERTS,
            rotary=HALF,
            prediction=MTP(GLM4_MOE_ATTENTION, DEEPSEEK_EXPERTS, own_tables=True),
        ),
        "glm4v_moe_text": Family(
            mixer=GLM_ATTENTION,
            ffn=DEEPSEEK_EXPERTS,
            rotary=Rotary(share=0.5, axes=3),
            wrappers=(Wrapper("glm4v_moe", tower=GLM4V),),
        ),
        "glm4_moe_lite": Family(
            mixer=MLA(),
            ffn=GLM4_LITE_EXPERTS,
            own={"num_nextn_predict_layers": 0},
            prediction=MTP(MLA(), GLM4_LITE_EXPERTS, own_tables=True),
        ),
        "glm_moe_dsa": Family(
            mixer=GLM_DSA,
            ffn=DEEPSEEK_EXPERTS,
            own={"num_nextn_predict_layers": 0},
            prediction=MTP(GLM_DSA, DEEPSEEK_EXPERTS),
        ),
    },
)
