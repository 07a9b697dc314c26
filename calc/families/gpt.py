"""Families of GPT-2's line: LayerNorm, biases, feed-forwards of two matrices; some with learned positions."""

from calc.families.family import (
    NO_BIAS,
    PACKED_QKV,
    QKV,
    QKVO,
    TWO_NORMS,
    Family,
    attention_bias,
    extras,
    gated,
    gqa,
    mha,
    one_window,
    plain,
    plain_gqa,
    shared_width,
    squared,
)
from calc.families.fields import Fields
from calc.model.attention import GQA
from calc.model.block import Extra, Norm
from calc.model.feedforward import MLP
from calc.model.kernels import Dropout, Kernels
from calc.model.names import Names


def gpt2_attention(c: Fields, layer: int) -> GQA:
    n_q = c.size("n_head")
    return GQA(n_q=n_q, n_kv=n_q, d_head=shared_width(c, "n_embd", "n_head"), bias=QKVO)


def bigcode_attention(c: Fields, layer: int) -> GQA:
    n_q = c.size("n_head")
    n_kv = 1 if c.flag("multi_query") else n_q
    return GQA(n_q=n_q, n_kv=n_kv, d_head=shared_width(c, "n_embd", "n_head"), bias=QKVO)


def falcon_attention(c: Fields, layer: int) -> GQA:
    """40B and 180B group their heads; 7B has one KV head; the earliest have one for each."""
    n_q = c.size("num_attention_heads")
    if c.flag("new_decoder_architecture"):
        n_kv = c.maybe("num_kv_heads") or n_q
    else:
        n_kv = 1 if c.flag("multi_query") else n_q
    d_head = shared_width(c, "hidden_size", "num_attention_heads")
    return GQA(n_q=n_q, n_kv=n_kv, d_head=d_head, bias=attention_bias(c, "bias"))


def falcon_norms(c: Fields, layer: int) -> tuple[str, ...]:
    parallel = c.maybe("num_ln_in_parallel_attn") or (2 if c.flag("new_decoder_architecture") else 1)
    if c.flag("new_decoder_architecture") and parallel == 2:
        return ("ln_attn", "ln_mlp")
    return ("input_layernorm",) if c.flag("parallel_attn") else TWO_NORMS


def gpt2_mlp(c: Fields, layer: int) -> MLP:
    width = c.maybe("n_inner") or 4 * c.size("n_embd")
    return MLP(intermediate=width, gated=False, bias=True)


def quadruple(c: Fields, field: str | None, hidden: str = "hidden_size", *, bias: bool = True) -> MLP:
    """Two matrices, four times as wide as the model where the config does not say otherwise."""
    width = c.maybe(field) if field else None
    return MLP(intermediate=width or 4 * c.size(hidden), gated=False, bias=bias)


def bloom_norm(c: Fields) -> tuple[Extra, ...]:
    norm = "transformer.word_embeddings_layernorm"
    shape = (c.size("hidden_size"),)
    return tuple(Extra(name=f"{norm}.{leaf}", shape=shape, component="norms") for leaf in ("weight", "bias"))


def opt_projections(c: Fields) -> tuple[Extra, ...]:
    """OPT-350m embeds in fewer dimensions than its layers have."""
    hidden, narrow = c.size("hidden_size"), c.maybe("word_embed_proj_dim")
    if narrow is None or narrow == hidden:
        return ()
    return (
        Extra(name="model.decoder.project_in.weight", shape=(hidden, narrow), component="other"),
        Extra(name="model.decoder.project_out.weight", shape=(narrow, hidden), component="other"),
    )


def opt_final_norm(c: Fields) -> Norm:
    return "layer" if c.flag("do_layer_norm_before") and not c.flag("_remove_final_layer_norm") else "none"


NEOX_NAMES = Names(
    embedding="gpt_neox.embed_in",
    layer="gpt_neox.layers.{layer}",
    attention="attention",
    final_norm="gpt_neox.final_layer_norm",
    lm_head="embed_out",
    packed={"query_key_value": PACKED_QKV},
    renamed={"o_proj": "dense", "up_proj": "dense_h_to_4h", "down_proj": "dense_4h_to_h"},
)


BLOOM_NAMES = Names(
    embedding="transformer.word_embeddings",
    layer="transformer.h.{layer}",
    attention="self_attention",
    final_norm="transformer.ln_f",
    packed={"query_key_value": PACKED_QKV},
    renamed={"o_proj": "dense", "up_proj": "dense_h_to_4h", "down_proj": "dense_4h_to_h"},
)


GPT2_NAMES = Names(
    embedding="transformer.wte",
    positions="transformer.wpe",
    layer="transformer.h.{layer}",
    attention="attn",
    final_norm="transformer.ln_f",
    packed={"c_attn": PACKED_QKV},
    renamed={"o_proj": "c_proj", "up_proj": "c_fc", "down_proj": "c_proj"},
)


GPT2_FIELDS = {"layers": "n_layer", "hidden": "n_embd", "max_positions": "n_positions"}


EVERYWHERE: frozenset[Dropout] = frozenset({"embedding", "scores", "residual"})


FALCON = Family(
    mixer=falcon_attention,
    ffn=lambda c, i: quadruple(c, "ffn_hidden_size", bias=c.flag("bias")),
    norms=falcon_norms,
    norm="layer",
    names=BLOOM_NAMES,
    kernels=lambda c: Kernels(fp32_softmax=False, parallel=c.flag("new_decoder_architecture")),
    aliases={"n_head_kv": "num_kv_heads", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers"},
)

GPT: dict[str, Family] = {
    "gpt2": Family(
        mixer=gpt2_attention,
        ffn=gpt2_mlp,
        norms=("ln_1", "ln_2"),
        norm="layer",
        kernels=Kernels(dropout=EVERYWHERE, fp32_softmax=False, activation="written_out"),
        names=GPT2_NAMES.model_copy(update={"transposed": True}),
        positions=lambda c: c.size("n_positions"),
        **GPT2_FIELDS,
    ),
    "gpt_bigcode": Family(
        mixer=bigcode_attention,
        ffn=gpt2_mlp,
        norms=("ln_1", "ln_2"),
        norm="layer",
        kernels=Kernels(dropout=EVERYWHERE),
        names=GPT2_NAMES,
        positions=lambda c: c.size("n_positions"),
        **GPT2_FIELDS,
    ),
    "gptj": Family(
        mixer=lambda c, i: mha(c, "n_head", "n_embd"),
        ffn=gpt2_mlp,
        kernels=Kernels(activation="written_out"),
        norms=("ln_1",),
        norm="layer",
        names=Names(
            embedding="transformer.wte",
            layer="transformer.h.{layer}",
            attention="attn",
            final_norm="transformer.ln_f",
            renamed={"o_proj": "out_proj", "up_proj": "fc_in", "down_proj": "fc_out"},
        ),
        head_bias=lambda c: True,
        **GPT2_FIELDS,
    ),
    "codegen": Family(
        mixer=lambda c, i: mha(c, "n_head", "n_embd"),
        ffn=gpt2_mlp,
        kernels=Kernels(activation="written_out"),
        norms=("ln_1",),
        norm="layer",
        names=Names(
            embedding="transformer.wte",
            layer="transformer.h.{layer}",
            attention="attn",
            final_norm="transformer.ln_f",
            packed={"qkv_proj": PACKED_QKV},
            renamed={"o_proj": "out_proj", "up_proj": "fc_in", "down_proj": "fc_out"},
        ),
        head_bias=lambda c: True,
        **GPT2_FIELDS,
    ),
    "openai-gpt": Family(
        mixer=gpt2_attention,
        ffn=lambda c, i: MLP(intermediate=4 * c.size("n_embd"), gated=False, bias=True),
        norms=("ln_1", "ln_2"),
        norm="layer",
        names=GPT2_NAMES.model_copy(
            update={
                "embedding": "transformer.tokens_embed",
                "positions": "transformer.positions_embed",
                "transposed": True,
            }
        ),
        positions=lambda c: c.size("n_positions"),
        final_norm=lambda c: "none",
        kernels=Kernels(fp32_softmax=False),
        **GPT2_FIELDS,
    ),
    "biogpt": Family(
        mixer=lambda c, i: mha(c, "num_attention_heads", bias=QKVO),
        ffn=plain,
        norms=("self_attn_layer_norm", "final_layer_norm"),
        norm="layer",
        names=Names(
            embedding="biogpt.embed_tokens",
            positions="biogpt.embed_positions",
            layer="biogpt.layers.{layer}",
            mlp="",
            final_norm="biogpt.layer_norm",
            lm_head="output_projection",
            renamed={"o_proj": "out_proj", "up_proj": "fc1", "down_proj": "fc2"},
        ),
        positions=lambda c: c.size("max_position_embeddings") + 2,
    ),
    "xglm": Family(
        mixer=lambda c, i: mha(c, "attention_heads", "d_model", bias=QKVO),
        ffn=lambda c, i: plain(c, width="ffn_dim"),
        norms=("self_attn_layer_norm", "final_layer_norm"),
        norm="layer",
        names=Names(
            mlp="",
            final_norm="model.layer_norm",
            renamed={"o_proj": "out_proj", "up_proj": "fc1", "down_proj": "fc2"},
        ),
        layers="num_layers",
        hidden="d_model",
    ),
    "gpt_neox_japanese": Family(
        mixer=lambda c, i: mha(c, "num_attention_heads"),
        ffn=lambda c, i: MLP(intermediate=c.size("intermediate_multiple_size") * c.size("hidden_size"), gated=False),
        norm="layer",
        names=NEOX_NAMES.model_copy(
            update={
                "embedding": "gpt_neox_japanese.embed_in",
                "layer": "gpt_neox_japanese.layers.{layer}",
                "final_norm": "gpt_neox_japanese.final_layer_norm",
            }
        ),
        layer_extras=lambda c, i: (
            extras("attention", {"attention.dense_bias": (c.size("hidden_size"),)})
            if i == c.size("num_hidden_layers") - 1
            else ()
        ),
    ),
    "gpt_neo": Family(
        mixer=lambda c, i: mha(c, "num_heads", bias=frozenset({"o_proj"})),
        ffn=lambda c, i: quadruple(c, "intermediate_size"),
        norms=("ln_1", "ln_2"),
        norm="layer",
        names=Names(
            embedding="transformer.wte",
            positions="transformer.wpe",
            layer="transformer.h.{layer}",
            attention="attn.attention",
            final_norm="transformer.ln_f",
            renamed={"o_proj": "out_proj", "up_proj": "c_fc", "down_proj": "c_proj"},
        ),
        layers="num_layers",
        positions=lambda c: c.size("max_position_embeddings"),
    ),
    "gpt_neox": Family(
        mixer=lambda c, i: mha(c, "num_attention_heads", bias=attention_bias(c)),
        ffn=plain,
        norm="layer",
        names=NEOX_NAMES,
        kernels=lambda c: Kernels(parallel=c.stated.get("use_parallel_residual") is not False),
    ),
    "bloom": Family(
        mixer=lambda c, i: mha(c, "n_head", bias=QKVO),
        ffn=lambda c, i: quadruple(c, None),
        norm="layer",
        names=BLOOM_NAMES,
        layers="n_layer",
        own={"max_position_embeddings": None},
        aliases={"n_embed": "hidden_size"},
        extras=bloom_norm,
    ),
    "falcon": FALCON,
    "RefinedWeb": FALCON.model_copy(update={"defaults": "falcon", "own": {"new_decoder_architecture": True}}),
    "RefinedWebModel": FALCON.model_copy(update={"defaults": "falcon"}),
    "mpt": Family(
        mixer=lambda c, i: mha(c, "n_heads", "d_model"),
        ffn=lambda c, i: MLP(intermediate=c.size("expansion_ratio") * c.size("d_model"), gated=False),
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
        layers="n_layers",
        hidden="d_model",
        max_positions="max_seq_len",
    ),
    "opt": Family(
        mixer=lambda c, i: mha(c, "num_attention_heads", bias=attention_bias(c, "enable_bias")),
        ffn=lambda c, i: plain(c, width="ffn_dim", bias=c.flag("enable_bias")),
        norms=("self_attn_layer_norm", "final_layer_norm"),
        norm="layer",
        names=Names(
            embedding="model.decoder.embed_tokens",
            positions="model.decoder.embed_positions",
            layer="model.decoder.layers.{layer}",
            mlp="",
            final_norm="model.decoder.final_layer_norm",
            renamed={"o_proj": "out_proj", "up_proj": "fc1", "down_proj": "fc2"},
        ),
        positions=lambda c: c.size("max_position_embeddings") + 2,
        d_embedding="word_embed_proj_dim",
        final_norm=opt_final_norm,
        extras=opt_projections,
    ),
    "persimmon": Family(
        mixer=lambda c, i: mha(
            c,
            "num_attention_heads",
            bias=QKVO,
            qk_norm="head" if c.flag("qk_layernorm") else "none",
            qk_norm_bias=True,
        ),
        ffn=plain,
        norm="layer",
        names=Names(
            packed={"query_key_value": PACKED_QKV},
            renamed={"o_proj": "dense", "up_proj": "dense_h_to_4h", "down_proj": "dense_4h_to_h"}
            | {"q_norm": "q_layernorm", "k_norm": "k_layernorm"},
            final_norm="model.final_layernorm",
        ),
    ),
    "phi": Family(
        mixer=lambda c, i: gqa(c, bias=QKVO, qk_norm="head" if c.flag("qk_layernorm") else "none", qk_norm_bias=True),
        ffn=plain,
        kernels=Kernels(activation="written_out"),
        norms=("input_layernorm",),
        norm="layer",
        names=Names(
            final_norm="model.final_layernorm",
            renamed={
                "o_proj": "dense",
                "up_proj": "fc1",
                "down_proj": "fc2",
                "q_norm": "q_layernorm",
                "k_norm": "k_layernorm",
            },
        ),
        head_bias=lambda c: True,
    ),
    "stablelm": Family(
        mixer=lambda c, i: gqa(
            c,
            bias=QKV if c.flag("use_qkv_bias") else NO_BIAS,
            qk_norm="heads" if c.flag("qk_layernorm") else "none",
        ),
        ffn=gated,
        norms=lambda c, i: ("input_layernorm",) if c.flag("use_parallel_residual") else TWO_NORMS,
        norm="layer",
        kernels=Kernels(joins_rotated=True, held_states=2),
        names=Names(renamed={"q_norm": "q_layernorm.norms.{expert}", "k_norm": "k_layernorm.norms.{expert}"}),
    ),
    "starcoder2": Family(
        mixer=lambda c, i: gqa(c, bias=attention_bias(c, "use_bias"), window=one_window(c, i)),
        ffn=lambda c, i: plain(c, bias=c.flag("use_bias")),
        norm="layer",
        names=Names(renamed={"up_proj": "c_fc", "down_proj": "c_proj"}),
    ),
    "nemotron": Family(
        mixer=plain_gqa,
        ffn=squared,
        norm="layer",
        kernels=Kernels(activation="squared"),
    ),
    "jais2": Family(mixer=plain_gqa, ffn=squared, norm="layer", kernels=Kernels(activation="squared")),
}
