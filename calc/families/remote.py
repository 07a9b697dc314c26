"""Families that transformers has no class for: their code stands beside the checkpoints."""

from calc.architecture import Block, Extra, PredictionModule
from calc.errors import ConfigError
from calc.families.latent import deepseek_prediction
from calc.families.reading import (
    GATE_UP,
    NO_BIAS,
    PACKED_QKV,
    QKV,
    TWO_NORMS,
    Family,
    attention_bias,
    deepseek_ffn,
    gated,
    gqa,
    mha,
    mla,
    plain_gqa,
    qwen_window,
)
from calc.feedforward import MLP, FeedForward
from calc.fields import Fields, shown
from calc.mixers import Mixer
from calc.names import Names


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


REMOTE: dict[str, Family] = {
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
