"""OpenAI's families."""

from dataclasses import replace

from calc.families.attention_rows import Attention, Sliding
from calc.families.family import GATE_UP, GPT_NAMES, PACKED_QKV, Family, cross_attention
from calc.families.feedforward_rows import Dense, Experts, Times
from calc.model.gguf_rules import GGUFRules
from calc.model.kernels import Dropout, Kernels
from calc.model.names import Names

EVERYWHERE: frozenset[Dropout] = frozenset({"embedding", "scores", "residual"})
GPT2_NAMES = GPT_NAMES.but(
    positions="transformer.wpe",
    packed={"c_attn": PACKED_QKV},
    renamed={"o_proj": "c_proj", "up_proj": "c_fc", "down_proj": "c_proj"},
)
GPT2_CROSSING = {"crossattention.c_attn": 2, "crossattention.q_attn": 1, "crossattention.c_proj": 1}
GPT2 = Family(
    mixer=Attention(heads="n_head", kv=None, head_dim=None, hidden="n_embd", bias=True),
    ffn=Dense(Times(4, "n_embd", stated="n_inner"), True, gated=False),
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

OPENAI: dict[str, Family] = {
    "openai-gpt": replace(
        GPT2,
        ffn=Dense(Times(4, "n_embd"), True, gated=False),
        final_norm="none",
        layer_extras=(),
        kernels=Kernels(fp32_softmax=False),
        names=GPT2_NAMES.but(
            transposed=True, embedding="transformer.tokens_embed", positions="transformer.positions_embed"
        ),
    ),
    "gpt2": replace(GPT2, gguf=GGUFRules("gpt2")),
    "gpt-sw3": GPT2,  # of AI Sweden
    "gpt_oss": Family(
        mixer=Attention(bias="attention_bias", sinks=True, window=Sliding(full_every=2)),
        ffn=Experts("num_local_experts", "intermediate_size", bias=True, router_bias=True, stacked="in_out"),
        kernels=Kernels(norm="rms32", activation="clamped", turn="halves", scores_chosen_only=True),
        names=Names(router="mlp.router", expert="mlp.experts", expert_packed={"gate_up_proj": GATE_UP}),
        gguf_headers="gpt-oss",
        gguf=GGUFRules("gpt-oss", native_mxfp4=True),
    ),
}
