"""Mistral AI's families."""

from dataclasses import replace

from calc.families.attention_rows import MLA, Attention, Either, Every, Sliding, Window
from calc.families.deepseek import DEEPSEEK_V1_EXPERTS, owns_indexer
from calc.families.family import STACKED_EXPERTS, W123, Family, Weights, layer_norms
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields
from calc.model.conventions import Kernels, Names

WINDOWED = Attention(window=Window())
MIXTRAL_NAMES = Names(
    router="block_sparse_moe.gate",
    correction="block_sparse_moe.e_score_correction_bias",
    expert="block_sparse_moe.experts.{expert}",
    expert_renamed=W123,
)

# Mistral Large 4: latents and choices of tokens may be shared by layers; every fourth layer has no positions


def owns_latent(c: Fields, layer: int) -> bool:
    """Whether a layer makes the latent that it reads."""
    sources = c.get("kv_source_layers")
    return not isinstance(sources, list) or layer >= len(sources) or sources[layer] == layer


def rotates(c: Fields, layer: int) -> bool:
    """Whether a layer has rotary positions."""
    mark = c.mark("no_rope_layers", layer)
    return not Every("no_rope_layer_interval")(c, layer) if mark is None else mark


LARGE4_MLA = MLA(q_rank=None, indexer=True, indexes_hidden=True, owns_indexer=owns_indexer, own_latent=owns_latent)
LARGE4_PLAIN = replace(LARGE4_MLA, d_nope=lambda c: c.size("qk_nope_head_dim") + c.size("qk_rope_head_dim"), d_rope=0)
LARGE4_LAYER = (  # scales of the softmax, and further ones of the indexer
    Weights("attention", {f"attention.ssmax_scaling.{leaf}": ("num_attention_heads",) for leaf in ("s", "b")}),
    Weights("attention", layer_norms("hidden_size", "attention.indexer.q_input_norm"), layers=owns_indexer),
    Weights(
        "attention",
        {f"attention.indexer.ssmax_scaling.{leaf}": ("index_n_heads",) for leaf in ("s", "b")},
        layers=owns_indexer,
    ),
)


MISTRAL: dict[str, Family] = {
    "mistral": Family(mixer=WINDOWED, mixture="mixtral"),
    "ministral": Family(mixer=Attention(window=Sliding())),
    "ministral3": Family(mixer=WINDOWED),
    "mixtral": Family(
        mixer=WINDOWED,
        ffn=Experts("num_local_experts", "intermediate_size"),
        names=MIXTRAL_NAMES,
        kernels=Kernels(fp32_weights=True),
    ),
    "mistral4": Family(mixer=MLA(), ffn=replace(DEEPSEEK_V1_EXPERTS, stacked="out_in"), names=STACKED_EXPERTS),
    "mistral_large4_text": Family(
        mixer=Either(rotates, LARGE4_MLA, LARGE4_PLAIN),
        ffn=DEEPSEEK_V1_EXPERTS,
        norms=("attention_norm", "ffn_norm"),
        kernels=Kernels(capped_logits=True),
        names=Names(
            module="",
            embedding="tok_embeddings",
            attention="attention",
            mlp="feed_forward",
            router="gate",
            expert="experts.{expert}",
            shared_expert="shared_experts",
            lm_head="output",
            renamed={
                "q_proj": "wq",
                "kv_a_proj_with_mqa": "wkv_a_with_mqa",
                "kv_a_layernorm": "kv_a_norm",
                "kv_b_proj": "wkv_b",
                "o_proj": "wo",
            }
            | W123,
            expert_renamed=W123,
        ),
        layer_extras=LARGE4_LAYER,
        extras=(
            Weights(
                "other",
                {"lerope.alpha": (lambda c: c.size("qk_rope_head_dim") // 2,)},
                excluded_as="persistent_buffers",
            ),
        ),
    ),
    "voxtral_realtime_text": Family(  # scales the feed-forward's input by how far the text lags behind the sound
        mixer=WINDOWED,
        ffn=Dense(bias=False),
        layer_extras=(
            Weights("norms", {"ada_rms_norm.linear1.weight": (32, "hidden_size")}),
            Weights("norms", {"ada_rms_norm.linear2.weight": ("hidden_size", 32)}),
        ),
    ),
}
