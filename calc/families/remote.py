"""Families that transformers has no class for: their code stands beside the checkpoints."""

from calc.errors import ConfigError, shown
from calc.families.family import (
    GATE_UP,
    NO_BIAS,
    PACKED_QKV,
    QKV,
    QKVO,
    TWO_NORMS,
    Family,
    attention_bias,
    deepseek_ffn,
    extras,
    gated,
    gqa,
    mha,
    mla,
    moe,
    next_layers,
    plain_gqa,
    qwen_window,
    shared_mlp,
)
from calc.families.fields import Fields
from calc.families.latent import deepseek_prediction
from calc.families.linear import BAILING_NAMES
from calc.model.attention import GQA
from calc.model.block import Block, Extra, PredictionModule
from calc.model.feedforward import MLP, FeedForward
from calc.model.kernels import Kernels
from calc.model.mixers import Mixer
from calc.model.names import Names


def mimo_prediction(c: Fields) -> tuple[PredictionModule, ...]:
    after = c.size("num_hidden_layers")
    return tuple(
        PredictionModule(
            block=Block(layers=(after + i,), mixers=(gqa(c, bias=QKV),), ffn=gated(c), norms=TWO_NORMS),
            norms=("token_layernorm", "hidden_layernorm", "final_layernorm"),
            projection="input_proj",
        )
        for i in range(c.maybe("num_nextn_predict_layers", 0) or 0)
    )


def nas_part(c: Fields, layer: int, part: str) -> Fields:
    """The attention or the ffn of one layer in `block_configs`."""
    blocks = c.get("block_configs")
    layers = c.size("num_hidden_layers")
    if not isinstance(blocks, list) or len(blocks) != layers:
        raise ConfigError(f"block_configs must list the {layers:,} layers of the model.", "block_configs")
    found = blocks[layer].get(part) if isinstance(blocks[layer], dict) else None
    if not isinstance(found, dict):
        raise ConfigError(f"block_configs does not say the {part} of layer {layer}.", "block_configs")
    return c.within(found)


def nas_mixer(c: Fields, layer: int) -> Mixer | None:
    part = nas_part(c, layer, "attention")
    if part.flag("no_op") or part.flag("replace_with_linear"):
        return None
    n_q, group = c.size("num_attention_heads"), part.size("n_heads_in_group")
    if n_q % group:
        raise ConfigError(f"n_heads_in_group is {group:,}, which does not divide {n_q:,} heads.", "block_configs")
    return gqa(c.with_stated("num_key_value_heads", n_q // group), bias=attention_bias(c))


def nas_ffn(c: Fields, layer: int) -> FeedForward | None:
    part = nas_part(c, layer, "ffn")
    if part.flag("no_op") or part.flag("replace_with_linear"):
        return None
    multiple = part.get("ffn_mult")
    if isinstance(multiple, bool) or not isinstance(multiple, int | float) or not 0 < multiple < 1000:
        raise ConfigError(f"ffn_mult is {shown(multiple)}; it must be a number such as 2.625.", "block_configs")
    width = int(2 * multiple * c.size("hidden_size") / 3)
    return MLP(intermediate=-(-width // 256) * 256, bias=c.flag("mlp_bias"))


def nas_norms(c: Fields, layer: int) -> tuple[str, ...]:
    parts = zip(("attention", "ffn"), TWO_NORMS, strict=True)
    return tuple(norm for part, norm in parts if not nas_part(c, layer, part).flag("no_op"))


def nas_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    hidden = c.size("hidden_size")
    found: list[Extra] = []
    for part, component, path in (("attention", "attention", "self_attn"), ("ffn", "mlp", "mlp")):
        if nas_part(c, layer, part).flag("replace_with_linear"):
            name = f"{path}.linear_attn.weight" if part == "attention" else f"{path}.linear_mlp.weight"
            found.append(Extra.model_validate({"name": name, "shape": (hidden, hidden), "component": component}))
    return tuple(found)


def qwen1_mlp(c: Fields, layer: int) -> MLP:
    """`intermediate_size` counts both halves of the gated feed-forward."""
    return MLP(intermediate=c.size("intermediate_size") // 2, bias=not c.flag("no_bias"))


def qwen1_attention(c: Fields, layer: int) -> GQA:
    n_q = c.size("num_attention_heads")
    return GQA(n_q=n_q, n_kv=n_q, d_head=c.size("kv_channels"), bias=QKV if c.flag("no_bias") else QKVO)


def telechat_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """A bias on the last projection of the feed-forward alone."""
    return extras("mlp", {"mlp.down_proj.bias": (c.size("hidden_size"),)})


def openelm_listed(c: Fields, name: str, layer: int) -> int:
    """One number of a list with one for each layer."""
    listed = c.get(name)
    if not isinstance(listed, list) or layer >= len(listed):
        raise ConfigError(f"{name} must list a number for each layer.", name)
    return c.within({name: listed[layer]}).size(name)


def openelm_attention(c: Fields, layer: int) -> GQA:
    """OpenELM, arXiv:2404.14619: heads differ from layer to layer."""
    return GQA(
        n_q=openelm_listed(c, "num_query_heads", layer),
        n_kv=openelm_listed(c, "num_kv_heads", layer),
        d_head=c.size("head_dim"),
        qk_norm="head" if c.flag("normalize_qk_projections") else "none",
    )


def openelm_mlp(c: Fields, layer: int) -> MLP:
    multipliers, divisor = c.get("ffn_multipliers"), c.size("ffn_dim_divisor")
    multiple = multipliers[layer] if isinstance(multipliers, list) and layer < len(multipliers) else None
    if isinstance(multiple, bool) or not isinstance(multiple, int | float) or not 0 < multiple < 1000:
        raise ConfigError("ffn_multipliers must list a number for each layer.", "ffn_multipliers")
    wanted = multiple * c.size("model_dim")
    near = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
    width = near if near >= 0.9 * wanted else near + divisor
    return MLP(intermediate=width, gated=c.flag("ffn_with_glu"))


def bailing_moe(c: Fields, layer: int) -> FeedForward:
    if layer < (c.maybe("first_k_dense_replace", 0) or 0):
        return gated(c, bias="use_bias")
    correction = "buffer" if c.flag("moe_router_enable_expert_bias") else "none"
    shared = shared_mlp(c, "num_shared_experts", bias="use_bias")
    return moe(c, "num_experts", "moe_intermediate_size", shared=shared, router_correction=correction)


def bailing_gqa(c: Fields, layer: int = 0) -> GQA:
    bias = (QKV if c.flag("use_qkv_bias") else NO_BIAS) | (QKVO - QKV if c.flag("use_bias") else NO_BIAS)
    return gqa(c, bias=bias, qk_norm="head" if c.flag("use_qk_norm") else "none")


def phi3small_fields(c: Fields, layer: int) -> MLP:
    return MLP(intermediate=c.size("ff_intermediate_size"), bias=True)


EXAONE_NAMES = Names(
    embedding="transformer.wte",
    layer="transformer.h.{layer}",
    attention="attn.attention",
    final_norm="transformer.ln_f",
    renamed={"o_proj": "out_proj", "gate_proj": "c_fc_0", "up_proj": "c_fc_1", "down_proj": "c_proj"},
)
TELECHAT_NAMES = Names(
    embedding="transformer.word_embeddings",
    layer="transformer.h.{layer}",
    attention="self_attention",
    final_norm="transformer.ln_f",
    packed={"key_value": ("k_proj", "v_proj")},
    renamed={"q_proj": "query", "o_proj": "dense"},
)
LLAMA_LIKE = Family(mixer=plain_gqa, ffn=lambda c, i: gated(c, bias=None), defaults="llama")

REMOTE: dict[str, Family] = {
    "aquila": LLAMA_LIKE,
    "skywork": LLAMA_LIKE,
    "xverse": LLAMA_LIKE,
    "Yi": LLAMA_LIKE.model_copy(update={"norms": ("ln1", "ln2")}),
    "orion": LLAMA_LIKE.model_copy(update={"norm": "layer"}),
    "internlm": LLAMA_LIKE.model_copy(
        update={"mixer": lambda c, i: gqa(c, bias=attention_bias(c, "bias")), "own": {"bias": True}}
    ),
    "minicpm": LLAMA_LIKE.model_copy(update={"own": {"tie_word_embeddings": True}}),
    "stablelm_epoch": Family(
        mixer=lambda c, i: gqa(c, bias=QKV if c.flag("use_qkv_bias") else NO_BIAS),
        ffn=lambda c, i: gated(c, bias=None),
        norm="layer",
        defaults="stablelm",
    ),
    "qwen": Family(
        mixer=qwen1_attention,
        ffn=qwen1_mlp,
        norms=("ln_1", "ln_2"),
        names=Names(
            embedding="transformer.wte",
            layer="transformer.h.{layer}",
            attention="attn",
            final_norm="transformer.ln_f",
            packed={"c_attn": PACKED_QKV},
            renamed={"o_proj": "c_proj", "gate_proj": "w2", "up_proj": "w1", "down_proj": "c_proj"},
        ),
        defaults="none",
        own={
            "vocab_size": 151936,
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "kv_channels": 128,
            "intermediate_size": 22016,
            "no_bias": True,
            "tie_word_embeddings": False,
            "max_position_embeddings": 8192,
        },
    ),
    "exaone": Family(
        mixer=lambda c, i: gqa(c),
        ffn=lambda c, i: gated(c, bias=None),
        norms=("ln_1", "ln_2"),
        names=EXAONE_NAMES,
        defaults="llama",
        aliases={"num_layers": "num_hidden_layers"},
    ),
    "telechat": Family(
        mixer=lambda c, i: gqa(c, bias=frozenset({"o_proj"})),
        ffn=lambda c, i: gated(c, bias=None),
        names=TELECHAT_NAMES,
        defaults="llama",
        aliases={
            "n_layer": "num_hidden_layers",
            "n_head": "num_attention_heads",
            "ffn_hidden_size": "intermediate_size",
            "n_embed": "hidden_size",
            "seq_length": "max_position_embeddings",
        },
        layer_extras=telechat_extras,
    ),
    "phi3small": Family(
        mixer=lambda c, i: gqa(c, bias=QKVO),
        ffn=phi3small_fields,
        norm="layer",
        names=Names(
            final_norm="model.final_layernorm",
            packed={"query_key_value": PACKED_QKV, "up_proj": GATE_UP},
            renamed={"o_proj": "dense"},
        ),
        defaults="none",
        own={
            "vocab_size": 100352,
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "ff_intermediate_size": 14336,
            "head_dim": None,
            "tie_word_embeddings": True,
            "max_position_embeddings": 8192,
        },
    ),
    "openelm": Family(
        mixer=openelm_attention,
        ffn=openelm_mlp,
        norms=("attn_norm", "ffn_norm"),
        names=Names(
            embedding="transformer.token_embeddings",
            layer="transformer.layers.{layer}",
            attention="attn",
            mlp="ffn",
            final_norm="transformer.norm",
            packed={"qkv_proj": PACKED_QKV, "proj_1": GATE_UP},
            renamed={"o_proj": "out_proj", "down_proj": "proj_2"},
        ),
        defaults="none",
        own={
            "vocab_size": 32000,
            "model_dim": None,
            "num_transformer_layers": None,
            "num_query_heads": None,
            "num_kv_heads": None,
            "ffn_multipliers": None,
            "ffn_dim_divisor": 256,
            "ffn_with_glu": True,
            "head_dim": 64,
            "normalize_qk_projections": True,
            "tie_word_embeddings": True,
            "max_context_length": 2048,
        },
        aliases={"share_input_output_layers": "tie_word_embeddings"},
        layers="num_transformer_layers",
        hidden="model_dim",
        max_positions="max_context_length",
    ),
    "bailing_moe": Family(
        mixer=bailing_gqa,
        ffn=bailing_moe,
        names=BAILING_NAMES.model_copy(
            update={
                "packed": {"query_key_value": PACKED_QKV},
                "renamed": {"o_proj": "dense", "q_norm": "query_layernorm", "k_norm": "key_layernorm"},
            }
        ),
        defaults="llama",
        own={
            "head_dim": None,
            "num_experts": 16,
            "num_experts_per_tok": 2,
            "num_shared_experts": 0,
            "moe_intermediate_size": None,
            "first_k_dense_replace": 0,
            "use_bias": False,
            "use_qkv_bias": False,
            "use_qk_norm": False,
            "moe_router_enable_expert_bias": False,
            "num_nextn_predict_layers": 0,
        },
        prediction=lambda c: next_layers(
            c, bailing_gqa(c), bailing_moe(c, c.size("num_hidden_layers")), own_tables=False
        ),
    ),
    "mimo": Family(
        mixer=lambda c, i: gqa(c, bias=QKV, window=qwen_window(c, i)),
        ffn=gated,
        defaults="qwen2",
        own={"num_nextn_predict_layers": 0},
        prediction=mimo_prediction,
    ),
    "chatglm": Family(
        mixer=lambda c, i: gqa(c, bias=QKV if c.flag("attention_bias") else NO_BIAS),
        ffn=gated,
        names=Names(
            embedding="transformer.embedding.word_embeddings",
            layer="transformer.encoder.layers.{layer}",
            attention="self_attention",
            final_norm="transformer.encoder.final_layernorm",
            lm_head="transformer.output_layer",
            packed={"query_key_value": PACKED_QKV, "dense_h_to_4h": GATE_UP},
            renamed={"o_proj": "dense", "down_proj": "dense_4h_to_h"},
        ),
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
    "baichuan": Family(
        mixer=lambda c, i: mha(c, "num_attention_heads"),
        ffn=gated,
        names=Names(packed={"W_pack": PACKED_QKV}),
        defaults="llama",
        aliases={"model_max_length": "max_position_embeddings"},
    ),
    "internlm2": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c, "bias")),
        ffn=gated,
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
    ),
    "deepseek": Family(
        mixer=plain_gqa,
        ffn=lambda c, i: deepseek_ffn(c, i, correction="none"),
        kernels=Kernels(fp32_weights=True),
        defaults="deepseek_v2",
        own={"head_dim": None},
    ),
    "kimi_k2": Family(mixer=mla, ffn=deepseek_ffn, defaults="deepseek_v3", prediction=deepseek_prediction),
    "nemotron-nas": Family(
        mixer=nas_mixer,
        ffn=nas_ffn,
        norms=nas_norms,
        defaults="llama",
        own={"block_configs": None},
        layer_extras=nas_extras,
    ),
}
