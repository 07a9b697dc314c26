"""Google's families: Gemma and RecurrentGemma."""

from dataclasses import replace

from calc.errors import ConfigError, Message
from calc.families.attention_rows import Attention, Sliding, Window
from calc.families.family import GATE_UP, GEMMA_NORMS, Family, Weights, extras
from calc.families.feedforward_rows import Dense, Half, Times
from calc.families.fields import PER_LAYER_CONFIG, Fields
from calc.families.rotary import Rotary
from calc.model.attention import GQA
from calc.model.block import Extra
from calc.model.conventions import Kernels, Names
from calc.model.feedforward import MLP, FeedForward, MoE
from calc.model.mixers import Mixer
from calc.model.recurrent import GatedLRU
from calc.model.tensor import Shape

GEMMA_KERNELS = Kernels(norm="rms32")
VAULT = Family(
    mixer=Attention(bias="attention_bias", window=Sliding(full_every=2)),
    norms=("input_layernorm", "pre_feedforward_layernorm"),
    kernels=Kernels(norm="rms32", capped_logits=True, capped_scores=True),
)


def has_own_cache(c: Fields, layer: int) -> bool:
    """The last layers read the cache of earlier ones."""
    return layer < c.size("num_hidden_layers") - (c.maybe("num_kv_shared_layers", 0) or 0)


def gemma3n_mlp(c: Fields, layer: int) -> MLP:
    """Dense feed-forward, whose width Gemma 3n may list by layer. Raises ConfigError."""
    widths = c.get("intermediate_size")
    if isinstance(widths, list):
        if len(widths) != c.size("num_hidden_layers"):
            sentence = "intermediate_size lists {listed:,} layers, but the model has {layers:,}."
            message = Message(sentence, listed=len(widths), layers=c.size("num_hidden_layers"))
            raise ConfigError(message, "intermediate_size")
        c = c.with_stated("intermediate_size", widths[layer])
    return Dense()(c)


def all_layers_wide(c: Fields) -> int:
    """Width of the per-layer embeddings of all layers."""
    return c.size("num_hidden_layers") * c.size("hidden_size_per_layer_input")


def gemma3n_projections(c: Fields) -> tuple[Extra, ...]:
    """AltUp's matrices from and to each further input, arXiv:2301.13310."""
    shape, further = (c.size("hidden_size"), c.size("hidden_size")), range(c.size("altup_num_inputs") - 1)
    return (
        *extras("other", {f"model.altup_projections.{i}.weight": shape for i in further}, before_layers=True),
        *extras("embedding", {f"model.altup_unembed_projections.{i}.weight": shape for i in further}),
    )


def embeds_by_layer(c: Fields) -> bool:
    """Whether each layer mixes in an embedding of its own."""
    return bool(c.maybe("hidden_size_per_layer_input", 0))


PER_LAYER_TABLES = (
    Weights(
        "embedding",
        {"model.embed_tokens_per_layer.weight": ("vocab_size_per_layer_input", all_layers_wide)},
        embeds_by_layer,
    ),
    Weights(
        "other",
        {"model.per_layer_model_projection.weight": (all_layers_wide, "hidden_size")},
        embeds_by_layer,
        before_layers=True,
    ),
    Weights(
        "norms",
        {"model.per_layer_projection_norm.weight": ("hidden_size_per_layer_input",)},
        embeds_by_layer,
        before_layers=True,
    ),
)
PER_LAYER_INPUT = {
    "per_layer_input_gate.weight": ("hidden_size_per_layer_input", "hidden_size"),
    "per_layer_projection.weight": ("hidden_size", "hidden_size_per_layer_input"),
}
"""Weights of each layer for the embedding of its own that is mixed in."""
PER_LAYER_NORM = {"post_per_layer_input_norm.weight": ("hidden_size",)}
GEMMA3N_LAYER = (  # AltUp, arXiv:2301.13310, LAuReL, arXiv:2411.07501, and the per-layer embedding
    Weights(
        "other",
        {
            "altup.correction_coefs.weight": ("altup_num_inputs", "altup_num_inputs"),
            "altup.prediction_coefs.weight": (lambda c: c.size("altup_num_inputs") ** 2, "altup_num_inputs"),
            "altup.modality_router.weight": ("altup_num_inputs", "hidden_size"),
            "altup.router_norm.weight": ("hidden_size",),
            "laurel.linear_left.weight": ("laurel_rank", "hidden_size"),
            "laurel.linear_right.weight": ("hidden_size", "laurel_rank"),
            "laurel.post_laurel_norm.weight": ("hidden_size",),
            "altup.correct_output_scale": ("hidden_size",),
            **PER_LAYER_INPUT,
        },
    ),
    Weights("norms", PER_LAYER_NORM),
)


GEMMA4_WINDOW = Sliding(full_every=6, bidirectional=lambda c: c.get("use_bidirectional_attention") == "all")
GEMMA4_SLIDING = Attention(bias="attention_bias", qk_norm="head", own_keys=has_own_cache, window=GEMMA4_WINDOW)
GEMMA4_FULL = replace(GEMMA4_SLIDING, window=None, head_dim="global_head_dim", keys_are_values="attention_k_eq_v")
GEMMA4_FULL_FEWER = replace(GEMMA4_FULL, kv="num_global_key_value_heads")
GEMMA4_FULL_SAVED = replace(GEMMA4_FULL, head_dim="head_dim")


def gemma4_attention(c: Fields, layer: int) -> GQA:
    """Full layers have wider heads, fewer of them for keys, and may use keys as values; the last one is always full."""
    last = layer == c.size("num_hidden_layers") - 1
    if not last and GEMMA4_WINDOW(c, layer) is not None:
        return GEMMA4_SLIDING(c, layer)
    if c.states(PER_LAYER_CONFIG):
        return GEMMA4_FULL_SAVED(c, layer)
    fewer = c.flag("attention_k_eq_v") and c.maybe("num_global_key_value_heads")
    return (GEMMA4_FULL_FEWER if fewer else GEMMA4_FULL)(c, layer)


def gemma4_mlp(c: Fields, layer: int) -> MLP:
    """The last layers may be twice as wide."""
    wide = 2 if c.flag("use_double_wide_mlp") and not has_own_cache(c, layer) else 1
    return MLP(intermediate=wide * c.size("intermediate_size"))


def gemma4_ffn(c: Fields, layer: int) -> FeedForward:
    """A dense feed-forward, and experts where `enable_moe_block` says so."""
    dense = gemma4_mlp(c, layer)
    if not c.flag("enable_moe_block"):
        return dense
    return MoE(
        n_experts=c.size("num_experts"),
        top_k=c.size("top_k_experts"),
        expert=MLP(intermediate=c.size("moe_intermediate_size")),
        parallel_mlp=dense,
        stacked="out_in",
    )


LAYER_SCALAR = Weights("other", {"layer_scalar": (1,)}, excluded_as="persistent_buffers")
EXPERT_SCALES = {"router.scale": ("hidden_size",), "router.per_expert_scale": ("num_experts",)}
EXPERT_NORMS = {
    f"{name}.weight": ("hidden_size",)
    for name in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")
}
GEMMA4_NAMES = Names(router="router.proj", expert="experts", expert_packed={"gate_up_proj": GATE_UP})
GEMMA4_LAYER = (
    LAYER_SCALAR,
    Weights("router", EXPERT_SCALES, "enable_moe_block"),
    Weights("norms", EXPERT_NORMS, "enable_moe_block"),
    Weights("other", PER_LAYER_INPUT, embeds_by_layer),
    Weights("norms", PER_LAYER_NORM, embeds_by_layer),
)


RECURRENT_GEMMA_ATTENTION = Attention(qkv_bias="attention_bias", out_bias=True, window=Window("attention_window_size"))


def recurrent_gemma_mixer(c: Fields, layer: int) -> Mixer:
    """Attention or RG-LRU, by the pattern of `block_types`. Raises ConfigError."""
    kinds = c.get("block_types")
    if not isinstance(kinds, list) or not kinds or not all(word in ("recurrent", "attention") for word in kinds):
        message = Message("block_types must list “recurrent” and “attention”, which then repeat.")
        raise ConfigError(message, "block_types")
    if kinds[layer % len(kinds)] == "attention":
        return RECURRENT_GEMMA_ATTENTION(c, layer)
    heads, width = c.size("num_attention_heads"), c.maybe("lru_width") or c.size("hidden_size")
    return GatedLRU(n_blocks=heads, d_block=width // heads, d_conv=c.size("conv1d_width"))


OWN_WITHIN_WINDOWS = Rotary(own_within_windows=True)


def diffusion_extras(c: Fields) -> tuple[Extra, ...]:
    """The decoder shares the encoder's weights but for scalars and biases, and sees its own last guess."""
    if not c.flag("tie_word_embeddings"):
        sentence = (
            "Without tie_word_embeddings the decoder would be a second model beside the encoder; none is published."
        )
        raise ConfigError(Message(sentence), "tie_word_embeddings", [True])
    path, hidden, layers = "model.decoder", c.size("hidden_size"), range(c.size("num_hidden_layers"))
    scalars: dict[str, Shape] = {f"{path}.layers.{i}.layer_scalar": (1,) for i in layers}
    biases: dict[str, Shape] = {
        f"{path}.layers.{i}.self_attn.{name}": shape
        for i in layers
        for name, shape in gemma4_attention(c.of_layer(i), i).shapes(hidden).items()
        if name.endswith(".bias")
    }
    own: dict[str, Shape] = {f"{path}.self_conditioning.pre_norm.weight": (hidden,)}
    own |= {f"{path}.self_conditioning.{name}": shape for name, shape in Dense(bias=False)(c).shapes(hidden).items()}
    return (
        extras("other", own) + extras("attention", biases) + extras("other", scalars, excluded_as="persistent_buffers")
    )


# The assistants of Gemma 4 draft for it: they read its state and its cache, and have neither keys nor values

CLUSTERS = "use_ordered_embeddings"


def reads_all(c: Fields) -> Fields:
    """Every layer reads the cache of another model."""
    stated = c.maybe("num_kv_shared_layers", 0) or c.size("num_hidden_layers")
    return c.once("reads all", lambda: c.with_stated("num_kv_shared_layers", stated))


ASSISTANT_EXTRAS = (  # matrices from the large model's state and back; and the centres of clusters that it scores first
    Weights("other", {"pre_projection.weight": ("hidden_size", Times(2, "backbone_hidden_size"))}),
    Weights("other", {"post_projection.weight": ("backbone_hidden_size", "hidden_size")}),
    Weights("lm_head", {"masked_embedding.centroids.weight": ("num_centroids", "hidden_size")}, CLUSTERS),
    Weights("other", {"masked_embedding.token_ordering": ("vocab_size",)}, CLUSTERS, excluded_as="persistent_buffers"),
)
ASSISTANT = Family(
    mixer=lambda c, layer: gemma4_attention(reads_all(c), layer),
    ffn=lambda c, layer: gemma4_mlp(reads_all(c), layer),
    norms=GEMMA_NORMS,
    section="text_config",
    rotary=OWN_WITHIN_WINDOWS,
    layer_extras=(LAYER_SCALAR,),
    extras=ASSISTANT_EXTRAS,
    kernels=GEMMA_KERNELS,
    assumption=Message("It drafts for a larger Gemma 4 and reads that model's cache, which is not counted here."),
)

GEMMA4 = Family(
    mixer=gemma4_attention, ffn=gemma4_mlp, norms=GEMMA_NORMS, layer_extras=(LAYER_SCALAR,), kernels=GEMMA_KERNELS
)

GEMMA: dict[str, Family] = {
    "gemma": Family(kernels=GEMMA_KERNELS),
    "gemma2": replace(VAULT, norms=GEMMA_NORMS),
    "vaultgemma": VAULT,
    "gemma3_text": Family(
        mixer=Attention(
            bias="attention_bias",
            qk_norm="head",
            window=Sliding(full_every="sliding_window_pattern", bidirectional="use_bidirectional_attention"),
        ),
        norms=GEMMA_NORMS,
        rotary=OWN_WITHIN_WINDOWS,
        kernels=GEMMA_KERNELS,
    ),
    "gemma3n_text": Family(
        mixer=Attention(bias="attention_bias", qk_norm="head", own_keys=has_own_cache, window=Sliding(full_every=5)),
        ffn=gemma3n_mlp,
        norms=GEMMA_NORMS,
        rotary=OWN_WITHIN_WINDOWS,
        extras=(*PER_LAYER_TABLES, gemma3n_projections),
        layer_extras=GEMMA3N_LAYER,
        kernels=Kernels(norm="rms32", capped_logits=True),
    ),
    "gemma4_text": replace(
        GEMMA4,
        ffn=gemma4_ffn,
        names=GEMMA4_NAMES,
        rotary=OWN_WITHIN_WINDOWS,
        extras=PER_LAYER_TABLES,
        layer_extras=GEMMA4_LAYER,
        kernels=Kernels(
            norm="rms32", fp32_weights=True, norms_unweighted=frozenset({"values", "router"}), scaled_layers=True
        ),
    ),
    "diffusion_gemma_text": Family(
        mixer=gemma4_attention,
        ffn=lambda c, layer: gemma4_ffn(c.once("with experts", lambda: c.with_stated("enable_moe_block", True)), layer),
        norms=GEMMA_NORMS,
        names=GEMMA4_NAMES.but(module="model.encoder.language_model"),
        rotary=OWN_WITHIN_WINDOWS,
        layer_extras=(LAYER_SCALAR, Weights("router", EXPERT_SCALES), Weights("norms", EXPERT_NORMS)),
        extras=(diffusion_extras,),
        kernels=Kernels(norm="rms32", fp32_weights=True),
    ),
    "gemma4_unified_text": GEMMA4,
    "gemma4_assistant": ASSISTANT,
    "gemma4_unified_assistant": ASSISTANT,
    "recurrent_gemma": Family(
        mixer=recurrent_gemma_mixer,
        ffn=Dense(Half(), True),
        norms=("temporal_pre_norm", "channel_pre_norm"),
        names=Names(attention="temporal_block", recurrent="temporal_block", mlp="mlp_block", final_norm="final_norm"),
        kernels=Kernels(norm="rms32", capped_logits=True),
    ),
}
