"""GPT: OpenAI's families, those of open collaborations (BigScience, BigCode, EleutherAI), and those of their line."""

from dataclasses import replace

from calc.families.attention_rows import Attention, Either, Sliding, Window
from calc.families.family import GPT_NAMES, PACKED_QKV, STACKED_EXPERTS, Family, Weights, cross_attention, layer_norms
from calc.families.feedforward_rows import Dense, Experts, Times
from calc.families.fields import stated_or
from calc.families.rotary import WHOLE_HEAD, Rotary
from calc.model.conventions import Dropout, Kernels, Names

EVERYWHERE: frozenset[Dropout] = frozenset({"embedding", "scores", "residual"})
GPT2_NAMES = GPT_NAMES.but(
    positions="wpe",
    packed={"c_attn": PACKED_QKV},
    renamed={"o_proj": "c_proj", "up_proj": "c_fc", "down_proj": "c_proj"},
)
GPT2_CROSSING = {"crossattention.c_attn": 2, "crossattention.q_attn": 1, "crossattention.c_proj": 1}
GPT2 = Family(
    mixer=Attention(heads="n_head", kv=None, head_dim=None, hidden="n_embd", bias=True),
    ffn=Dense(stated_or("n_inner", Times(4, "n_embd")), True, gated=False),
    norms=("ln_1", "ln_2"),
    norm="layer",
    layer_extras=cross_attention("n_embd", "ln_cross_attn", GPT2_CROSSING, transposed=True),
    kernels=Kernels(dropout=EVERYWHERE, fp32_softmax=False, activation="written_out", holds_attended=True),
    names=GPT2_NAMES.but(transposed=True),
    rotary=None,
    layers="n_layer",
    hidden="n_embd",
    positions="n_positions",
    max_positions="n_positions",
)

TWO_MATRICES = {"o_proj": "dense", "up_proj": "dense_h_to_4h", "down_proj": "dense_4h_to_h"}
BLOOM_NAMES = Names(
    module="transformer",
    embedding="word_embeddings",
    layer="h.{layer}",
    attention="self_attention",
    final_norm="ln_f",
    packed={"query_key_value": PACKED_QKV},
    renamed=TWO_MATRICES,
)
BIGCODE = Attention(heads="n_head", kv=None, head_dim=None, hidden="n_embd", bias=True)


def neox_names(module: str) -> Names:
    return Names(
        module=module,
        embedding="embed_in",
        attention="attention",
        final_norm="final_layer_norm",
        lm_head="embed_out",
        packed={"query_key_value": PACKED_QKV},
        renamed=TWO_MATRICES,
    )


GPTJ_NAMES = GPT_NAMES.but(renamed={"o_proj": "out_proj", "up_proj": "fc_in", "down_proj": "fc_out"})
GPTJ = replace(
    GPT2,
    mixer=Attention(heads="n_head", kv=None, head_dim=None, hidden="n_embd"),
    kernels=Kernels(activation="written_out"),
    norms=("ln_1",),
    names=GPTJ_NAMES,
    layer_extras=(),
    head_bias=True,
    rotary=WHOLE_HEAD,
    positions=None,
)

GPT: dict[str, Family] = {
    "openai-gpt": replace(
        GPT2,
        ffn=Dense(Times(4, "n_embd"), True, gated=False),
        final_norm="none",
        layer_extras=(),
        kernels=Kernels(fp32_softmax=False),
        names=GPT2_NAMES.but(transposed=True, embedding="tokens_embed", positions="positions_embed"),
    ),
    "gpt2": GPT2,
    "gpt-sw3": GPT2,  # of AI Sweden
    "gpt_oss": Family(
        mixer=Attention(bias="attention_bias", sinks=True, window=Sliding(full_every=2)),
        ffn=Experts("num_local_experts", "intermediate_size", bias=True, router_bias=True, stacked="in_out"),
        kernels=Kernels(norm="rms32", activation="clamped", turn="halves", scores_chosen_only=True),
        names=STACKED_EXPERTS.but(router="mlp.router"),
    ),
    "bloom": Family(
        mixer=Attention(heads="n_head", kv=None, head_dim=None, bias=True),
        ffn=Dense(Times(4), True, gated=False),
        norm="layer",
        names=BLOOM_NAMES,
        rotary=None,
        layers="n_layer",
        extras=(
            Weights(
                "norms",
                layer_norms("hidden_size", "transformer.word_embeddings_layernorm"),
                before_layers=True,
            ),
        ),
    ),
    "gpt_bigcode": replace(
        GPT2,
        mixer=Either("multi_query", replace(BIGCODE, kv=1), BIGCODE),
        kernels=Kernels(dropout=EVERYWHERE, holds_attended=True),
        layer_extras=cross_attention("n_embd", "ln_cross_attn", GPT2_CROSSING),
        names=GPT2_NAMES,
    ),
    "starcoder2": Family(
        mixer=Attention(bias="use_bias", window=Window()),
        ffn=Dense("intermediate_size", "use_bias", gated=False),
        norm="layer",
        names=Names(renamed={"up_proj": "c_fc", "down_proj": "c_proj"}),
    ),
    "gpt_neo": Family(
        mixer=Attention(heads="num_heads", kv=None, head_dim=None, out_bias=True),
        ffn=Dense(stated_or("intermediate_size", Times(4)), True, gated=False),
        norms=("ln_1", "ln_2"),
        norm="layer",
        names=GPT2_NAMES.but(
            attention="attn.attention",
            packed={},
            renamed={"o_proj": "out_proj", "up_proj": "c_fc", "down_proj": "c_proj"},
        ),
        rotary=None,
        layers="num_layers",
        positions="max_position_embeddings",
    ),
    "gpt_neox": Family(
        mixer=Attention(kv=None, head_dim=None, bias="attention_bias"),
        ffn=Dense(gated=False, bias=True),
        norm="layer",
        names=neox_names("gpt_neox"),
        rotary=Rotary(share=0.25),
        kernels=lambda c: Kernels(parallel=c.stated.get("use_parallel_residual") is not False),
    ),
    "gpt_neox_japanese": Family(
        mixer=Attention(kv=None, head_dim=None),
        ffn=Dense(Times("intermediate_multiple_size"), False, gated=False),
        norm="layer",
        names=neox_names("gpt_neox_japanese"),
        layer_extras=(
            Weights(
                "attention",
                {"attention.dense_bias": ("hidden_size",)},
                layers=lambda c, layer: layer == c.size("num_hidden_layers") - 1,
            ),
        ),
    ),
    "gptj": GPTJ,
    "codegen": replace(GPTJ, names=GPTJ_NAMES.but(packed={"qkv_proj": PACKED_QKV})),
    "ctrl": replace(
        GPTJ,
        mixer=BIGCODE,
        ffn=Dense("dff", True, gated=False),
        kernels=Kernels(),
        norms=("layernorm1", "layernorm2"),
        names=Names(
            module="transformer",
            embedding="w",
            layer="h.{layer}",
            attention="multi_head_attention",
            mlp="ffn",
            final_norm="layernorm",
            renamed={"q_proj": "Wq", "k_proj": "Wk", "v_proj": "Wv", "o_proj": "dense"}
            | {"up_proj": "0", "down_proj": "2"},
        ),
        rotary=None,
    ),
}
