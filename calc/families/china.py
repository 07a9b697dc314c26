"""Families of smaller Chinese makers, a row or a few each."""

from collections.abc import Callable
from dataclasses import replace

from calc.families.attention_rows import LISTED_ONLY, MLA, Attention, Sliding, shared_width
from calc.families.deepseek import DEEPSEEK_EXPERTS
from calc.families.family import LLAMA_FILE, MTP, PACKED_QKV, TWO_NORMS, Family, Weights, Wrapper, extras
from calc.families.feedforward_rows import Dense, Experts, is_sparse
from calc.families.fields import PER_LAYER_CONFIG, Fields, Size, kind
from calc.families.llama import LLAMA_LIKE
from calc.families.qwen import QWEN2_ATTENTION
from calc.model.attention import GQA
from calc.model.block import Extra
from calc.model.gguf_rules import GGUFRules
from calc.model.kernels import Kernels
from calc.model.mixers import Mixer
from calc.model.names import Names


def minicpm3_d_v(c: Fields) -> int:
    return c.maybe("v_head_dim") or shared_width(c, "hidden_size", "num_attention_heads")


# MiMo-V2: sliding layers have more KV heads, and sinks


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


# Step 3.5: sliding layers may have another number of heads


def own_layers(c: Fields) -> Fields:
    """Its lists go on for the layers of multi-token prediction."""
    layers, further = c.size("num_hidden_layers"), c.maybe("num_nextn_predict_layers", 0) or 0
    for name in ("layer_types", "mlp_layer_types"):
        words = c.get(name)
        if isinstance(words, list) and further and len(words) == layers + further:
            c = c.with_stated(name, words[:layers])
    return c


def step_sliding_heads(c: Fields) -> int:
    other = c.within(c.get("attention_other_setting")).maybe("num_attention_heads")
    return c.maybe("num_sliding_attention_heads") or other or c.size("num_attention_heads")


STEP_HEADS = Attention(bias="attention_bias", qk_norm="head", gate="heads")
STEP_CHANNELS = replace(STEP_HEADS, gate="channels")


def step_attention(c: Fields, layer: int) -> GQA:
    own = c.once("own layers", lambda: own_layers(c))
    attention = STEP_HEADS if c.get("gating") in (True, "per-head") else STEP_CHANNELS
    if kind(own, layer) == "sliding_attention":
        heads: Size = "num_attention_heads" if c.states(PER_LAYER_CONFIG) else step_sliding_heads
        attention = c.once((attention, "sliding"), lambda: replace(attention, heads=heads, window=LISTED_ONLY))
    return attention(own, layer)


def step_sparse(c: Fields, layer: int) -> bool:
    listed = c.get("moe_layers_enum")
    if listed is None or c.get("mlp_layer_types") is not None:
        return is_sparse(c.once("own layers", lambda: own_layers(c)), layer, 3)
    return str(layer) in str(listed).replace(" ", "").strip("[]").split(",")


# LongCat-Flash, arXiv:2509.01322: experts beside two whole layers, some of which are empty: no weights. Active are all
# `moe_topk` as if none of them were empty, the most that one token passes through: 32.2 B, which the paper gives as
# 31.3 B without the embedding. On average a third of them is empty: 28.0 B, the paper's 27 B.


def longcat_mlps(c: Fields, layer: int) -> tuple[Extra, ...]:
    """The dense feed-forward of each half of a layer."""
    shapes = Dense("ffn_hidden_size", False)(c).shapes(c.size("hidden_size"))
    return extras("mlp", {f"mlps.{half}.{name}": shape for half in (0, 1) for name, shape in shapes.items()})


LONGCAT_MLA = MLA()

# dots3: latent attention of two sizes; full layers pick their tokens


def dots3_size(name: str, default: int) -> Callable[[Fields], int]:
    """A size of a sliding layer, by the name of its field."""
    return lambda c: c.maybe(f"swa_{name}", 0) or default


def dots3_window(c: Fields) -> int:
    return c.maybe("sliding_window") or c.maybe("sliding_window_size") or 512


def dots3_rope(c: Fields) -> int:
    whole = dots3_size("head_dim", 256)(c) - dots3_size("qk_nope_head_dim", 192)(c)
    return dots3_size("qk_rope_head_dim", whole)(c)


DOTS3_WINDOW = Sliding(full_every=4, full_at=1, first_full=2, when="use_sliding_window", size=dots3_window)
DOTS3_FULL = MLA(gate="heads", rope_norm=True)
DOTS3_INDEXED = replace(DOTS3_FULL, indexer=True, fp32_index=True)
DOTS3_SLIDING_SAVED = replace(DOTS3_FULL, window=DOTS3_WINDOW)
DOTS3_SLIDING = replace(
    DOTS3_SLIDING_SAVED,
    heads=dots3_size("num_attention_heads", 64),
    q_rank=dots3_size("q_lora_rank", 1024),
    kv_rank=dots3_size("kv_lora_rank", 1024),
    d_nope=dots3_size("qk_nope_head_dim", 192),
    d_rope=dots3_rope,
    d_v=dots3_size("v_head_dim", 128),
)


def dots3_mixer(c: Fields, layer: int) -> Mixer:
    """Checkpoints call layers that pick their tokens “full_attention”, and state two sizes by `swa_`; saved again, each
    sliding layer states its own."""
    saved = c.states(PER_LAYER_CONFIG)
    if DOTS3_WINDOW(c, layer) is not None:
        return (DOTS3_SLIDING_SAVED if saved else DOTS3_SLIDING)(c, layer)
    says = c.get("use_dsa") is not False and (c.states("use_dsa") or not saved)
    return (DOTS3_INDEXED if says or kind(c, layer) == "indexed_attention" else DOTS3_FULL)(c, layer)


def dots3_sparse(c: Fields, layer: int) -> bool:
    if c.get("mlp_layer_types") is not None:
        return is_sparse(c, layer, 0)
    freq = c.get("moe_layer_freq")
    if isinstance(freq, list) and layer < len(freq):
        chosen = bool(freq[layer])
    else:
        chosen = layer % (c.maybe("moe_layer_freq") or 1) == 0
    return chosen and layer >= (c.maybe("first_k_dense_replace", 0) or 0)


def cpmant_prompts(c: Fields) -> int:
    """Rows of the embedding for learned prompts."""
    return c.size("prompt_types") * c.size("prompt_length")


def cpmant_buckets(c: Fields) -> int:
    """One for each pair of segments and each range of distances."""
    return c.size("segment_types") ** 2 + c.size("position_bias_num_buckets")


CHINA: dict[str, Family] = {
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
    "minicpm": replace(LLAMA_LIKE, maker="OpenBMB", own={"tie_word_embeddings": True}, gguf=GGUFRules("minicpm")),
    "minicpm3": Family(
        maker="OpenBMB", mixer=MLA(d_v=minicpm3_d_v), ffn=Dense(), gguf=GGUFRules("minicpm3", splits_latent=False)
    ),
    "cpmant": Family(
        maker="OpenBMB",
        mixer=Attention(kv=None, head_dim="dim_head"),
        ffn=Dense("dim_ff", False),
        norms=("self_att.layernorm_before_attention", "ffn.layernorm_before_ffn"),
        names=Names(
            embedding="cpmant.input_embedding",
            layer="cpmant.encoder.layers.{layer}",
            attention="self_att.self_attention",
            mlp="ffn.ffn",
            final_norm="cpmant.encoder.output_layernorm",
            renamed={f"{letter}_proj": f"project_{letter}" for letter in "qkv"}
            | {"o_proj": "attention_out", "gate_proj": "w_in.w_0", "up_proj": "w_in.w_1", "down_proj": "w_out"},
        ),
        rotary=None,
        own={"max_position_embeddings": None},
        extra_rows=cpmant_prompts,
        ties=False,
        extras=Weights(
            {
                "embedding": {"cpmant.segment_embedding.weight": ("segment_types", "hidden_size")},
                "other": {"cpmant.position_bias.relative_attention_bias": (cpmant_buckets, "num_attention_heads")},
            }
        ),
    ),
    "seed_oss": Family(
        maker="ByteDance",
        mixer=Attention(qkv_bias="attention_bias", out_bias="attention_out_bias"),
        ffn=Dense(),
        kernels=Kernels(dropout=frozenset({"scores", "residual"})),
        gguf=GGUFRules("seed_oss"),
    ),
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
    "step3p5": Family(
        maker="StepFun",
        mixer=step_attention,
        ffn=Experts(
            "n_routed_experts",
            shared_width="share_expert_dim",
            shared_bias="mlp_bias",
            correction="buffer",
            stacked="module",
            sparse=step_sparse,
        ),
        own={"num_nextn_predict_layers": 0, "gating": True},
        names=Names(router="moe.gate", correction="moe.router_bias", expert="moe", shared_expert="share_expert"),
        wrappers=(Wrapper("step3p7"),),
    ),
    "longcat_flash": Family(
        maker="Meituan",
        mixer=lambda c, i: (LONGCAT_MLA(c), LONGCAT_MLA(c)),
        ffn=Experts(
            "n_routed_experts",
            "expert_ffn_hidden_size",
            "moe_topk",
            correction="buffer",
            router_bias="router_bias",
            n_zero="zero_expert_num",
        ),
        norms=tuple(f"{norm}.{half}" for norm in TWO_NORMS for half in (0, 1)),
        names=Names(
            attention="self_attn.{mixer}",
            router="mlp.router.classifier",
            correction="mlp.router.e_score_correction_bias",
        ),
        layers="num_layers",
        layer_extras=longcat_mlps,
        follows={"qk_head_dim": lambda c: c.size("qk_nope_head_dim") + c.size("qk_rope_head_dim")},
    ),
    "dots1": Family(
        maker="rednote",
        mixer=Attention(bias="attention_bias", qk_norm="head", window=Sliding(after="max_window_layers")),
        ffn=DEEPSEEK_EXPERTS,
        gguf=GGUFRules("dots1"),
    ),
    "dots3_note_text": Family(
        maker="rednote",
        mixer=dots3_mixer,
        ffn=replace(
            DEEPSEEK_EXPERTS,
            shared_width="shared_experts_intermediate_size",
            sparse=dots3_sparse,
        ),
        own={"use_sliding_window": True, "first_k_dense_replace": 1, "use_dsa": True},
        wrappers=(Wrapper("dots3_note"),),
    ),
    "iquestcoder": Family(maker="IQuest", mixer=Attention(bias="attention_bias"), ffn=Dense(), gguf=LLAMA_FILE),
}
