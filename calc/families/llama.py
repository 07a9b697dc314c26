"""Meta's families."""

from dataclasses import replace

from calc.errors import ConfigError, Message, shown
from calc.families.attention_rows import Attention, Either, Sliding
from calc.families.family import (
    ENCODER_ATTENTION,
    FC12,
    GATE_UP,
    GEMMA_NORMS,
    STACKED_EXPERTS,
    TWO_NORMS,
    Family,
    Weights,
    cross_attention,
    extras_of,
    two_more_positions,
)
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields, If, stated_or
from calc.model.block import Extra
from calc.model.conventions import Kernels, Names
from calc.model.tensor import Component, Norm, Shape

# Llama 3.2 Vision: some layers attend to the image

MLLAMA_CROSS = frozenset(range(3, 40, 5))
"""The class's default."""


def mllama_crosses(c: Fields, layer: int) -> bool:
    """Whether a layer attends to the image."""
    listed = c.get("cross_attention_layers") is not None
    return layer in (c.indices("cross_attention_layers") if listed else MLLAMA_CROSS)


def llama4_sparse(c: Fields, layer: int) -> bool:
    """Experts in every `interleave_moe_layer_step`-th layer."""
    if c.get("moe_layers") is not None:
        return layer in c.indices("moe_layers")
    return (layer + 1) % c.size("interleave_moe_layer_step") == 0


# Decoders of fairseq

FAIRSEQ_NAMES = Names(mlp="", final_norm="layer_norm", renamed={"o_proj": "out_proj"} | FC12)
FAIRSEQ = Family(
    mixer=Attention(kv=None, head_dim=None, bias=True),
    ffn=Dense("ffn_dim", gated=False, bias=True),
    norms=("self_attn_layer_norm", "final_layer_norm"),
    norm="layer",
    names=FAIRSEQ_NAMES,
    rotary=None,
)

# OPT, whose smallest-but-one model embeds in fewer dimensions than its layers have


def embeds_narrower(c: Fields) -> bool:
    return c.maybe("word_embed_proj_dim") not in (None, c.size("hidden_size"))


OPT_PROJECTIONS = (
    Weights(
        "other",
        {"model.decoder.project_in.weight": ("hidden_size", "word_embed_proj_dim")},
        embeds_narrower,
        before_layers=True,
    ),
    Weights("other", {"model.decoder.project_out.weight": ("word_embed_proj_dim", "hidden_size")}, embeds_narrower),
)


def opt_kernels(c: Fields) -> Kernels:
    return Kernels(
        activation="relu",
        dropout=frozenset({"residual"}),
        positions_by_sequence=True,
        norms_sums=not c.flag("do_layer_norm_before"),
    )


OPT_NORM: If[Norm] = If("layer_norm_elementwise_affine", "layer", "none")


def opt_final_norm(c: Fields) -> Norm:
    return OPT_NORM(c) if c.flag("do_layer_norm_before") and not c.flag("_remove_final_layer_norm") else "none"


# Muse: gates of the residual stream, and norms round the experts

MUSE_ATTENTION = Attention(
    bias="attention_bias", gate="channels", window=Sliding(full_every=4, full_at=0, backwards=True)
)
MUSE_EXPERTS = Experts(
    "num_local_experts",
    latent="moe_hidden_size",
    correction="buffer",
    stacked="out_in",
    first_dense=0,
    dense=Dense(bias=False),
)
MUSE_GATES = ("post_attention_residual_gate.gate", "post_feedforward_residual_gate.gate")
MUSE_NORMS = ("mlp.pre_expert_norm.weight", "mlp.experts.post_expert_norm.weight")
MUSE_GLIMMER = Family(
    mixer=MUSE_ATTENTION,
    ffn=Dense(bias=False),
    norms=GEMMA_NORMS,
    names=Names(renamed={"g_proj": "gate_proj"}),
    kernels=Kernels(norm="rms32", capped_logits=True),
)

# Byte Latent Transformer, arXiv:2412.09871: a wide stack reads patches of bytes, narrow ones the bytes. Its config has
# a section for each stack. What runs once for each patch is read as the decoder; the stacks that read bytes (encoder,
# decoder, and the one that cuts patches) and their tables are weights of their own.

BLT_ATTENTION = Attention(head_dim=None)
GROUPS = "encoder_hash_byte_group_size"


def byte_width(c: Fields) -> int:
    """Width of the state of a byte: what the encoder gives is what the decoder reads."""
    encoder, decoder = (c.section(f"{name}_config").size("hidden_size") for name in ("encoder", "decoder"))
    if encoder != decoder:
        sentence = (
            "hidden_size is {encoder:,} in encoder_config and {decoder:,} in decoder_config; both must be the same."
        )
        raise ConfigError(Message(sentence, encoder=encoder, decoder=decoder), "hidden_size")
    return encoder


BLT_FFN = Dense(stated_or("intermediate_size", lambda c: 8 * c.size("hidden_size") // 3), False)


def byte_stack(c: Fields, path: str) -> tuple[Extra, ...]:
    """The layers of one section; the encoder's and the decoder's also attend to patches, in all or in one of them."""
    hidden, layers = c.size("hidden_size"), c.size("num_hidden_layers")
    attention = BLT_ATTENTION(c).shapes(hidden)
    parts: dict[Component, dict[str, Shape]] = {
        "attention": {f"layers.{i}.self_attn.{name}": s for i in range(layers) for name, s in attention.items()},
        "mlp": {f"layers.{i}.mlp.{name}": s for i in range(layers) for name, s in BLT_FFN(c).shapes(hidden).items()},
        "norms": {f"layers.{i}.{norm}.weight": (hidden,) for i in range(layers) for norm in TWO_NORMS},
    }
    if c.maybe("cross_attn_k") is not None:
        crossing = range(layers if c.flag("cross_attn_all_layers") else 1)
        crossed = attention | {"q_norm.weight": (hidden,), "k_norm.weight": (hidden,)}
        parts["attention"] |= {f"cross_attn_layers.{i}.{name}": s for i in crossing for name, s in crossed.items()}
    return extras_of(
        (component, {f"model.{path}.{name}": shape for name, shape in shapes.items()})
        for component, shapes in parts.items()
    )


def byte_models(c: Fields) -> tuple[Extra, ...]:
    """Weights of the stacks that read bytes, their hashed tables and projections. Raises ConfigError."""
    encoder, decoder, patcher = (c.section(f"{name}_config") for name in ("encoder", "decoder", "patcher"))
    width, joined = byte_width(c), byte_width(c) * c.size("cross_attn_k")
    groups = c.get(GROUPS) or range(3, 9)
    if not isinstance(groups, list | range):
        sentence = "{name} is {value}; it must be a list of how many bytes each group has, such as [3, 4, 5]."
        raise ConfigError(Message(sentence, name=GROUPS, value=shown(groups)), GROUPS)
    hashes = len(groups) * c.size("encoder_hash_byte_group_nb_functions")
    hashed: Shape = (hashes * c.size("encoder_hash_byte_group_vocab"), width)
    tables: dict[str, Shape] = {"model.encoder_hash_tok_embedding.weight": hashed}
    hidden, seen = decoder.size("hidden_size"), decoder.size("hidden_size_global")
    projections: dict[str, Shape] = {
        "model.local_encoder.patch_embedding_projection.weight": (encoder.size("cross_attn_k") * width, width),
        "model.local_decoder.patch_embedding_projection.weight": (decoder.size("cross_attn_k") * hidden, seen),
    }
    if joined != c.size("hidden_size"):
        projections["model.global_transformer.token_embedding_projection.weight"] = (c.size("hidden_size"), joined)
    norms: dict[str, Shape] = {"model.local_decoder.norm.weight": (hidden,)}
    tensors = byte_stack(encoder, "local_encoder") + byte_stack(decoder, "local_decoder")
    if c.flag("patch_in_forward"):
        words: Shape = (patcher.size("vocab_size"), patcher.size("hidden_size"))
        tables |= {"model.patcher.embed_tokens.weight": words, "model.patcher.lm_head.weight": words}
        norms["model.patcher.norm.weight"] = (patcher.size("hidden_size"),)
        tensors += byte_stack(patcher, "patcher")
    return tensors + extras_of((("embedding", tables), ("other", projections), ("norms", norms)))


LLAMA: dict[str, Family] = {
    "llama": Family(mixture="mixtral"),
    "mllama_text_model": Family(
        mixer=Either(mllama_crosses, Attention(head_dim=None, qk_norm="head", cross=True), Attention(head_dim=None)),
        ffn=Dense(bias=False),
        extra_rows=8,
        ties=False,
        layer_extras=(
            Weights("attention", {"cross_attn_attn_gate": (1,)}, layers=mllama_crosses),
            Weights("mlp", {"cross_attn_mlp_gate": (1,)}, layers=mllama_crosses),
        ),
    ),
    "llama4_text": Family(
        mixer=Attention(
            bias="attention_bias",
            window=Sliding(full_every="no_rope_layer_interval", marks="no_rope_layers", size="attention_chunk_size"),
        ),
        ffn=Experts(
            "num_local_experts",
            "intermediate_size",
            shared_width="intermediate_size",
            stacked="in_out",
            sparse=llama4_sparse,
            dense=Dense("intermediate_size_mlp"),
        ),
        kernels=Kernels(turn="complex", fp32_softmax=False, passes_all=True, shared_first=True),
        names=Names(
            mlp="feed_forward",
            router="feed_forward.router",
            expert="feed_forward.experts",
            expert_packed={"gate_up_proj": GATE_UP},
            shared_expert="feed_forward.shared_expert",
        ),
    ),
    "cwm": Family(mixer=Attention(window=Sliding(full_every=4))),
    "opt": replace(
        FAIRSEQ,
        mixer=Attention(kv=None, head_dim=None, bias="enable_bias"),
        ffn=Dense("ffn_dim", gated=False, bias="enable_bias"),
        norm=OPT_NORM,
        names=FAIRSEQ_NAMES.but(module="model.decoder", final_norm="final_layer_norm"),
        positions=two_more_positions,
        d_embedding="word_embed_proj_dim",
        final_norm=opt_final_norm,
        kernels=opt_kernels,
        extras=OPT_PROJECTIONS,
    ),
    "xglm": replace(
        FAIRSEQ,
        mixer=Attention(heads="attention_heads", kv=None, head_dim=None, hidden="d_model", bias=True),
        layers="num_layers",
        hidden="d_model",
        layer_extras=cross_attention("d_model", "encoder_attn_layer_norm", ENCODER_ATTENTION),
    ),
    "chameleon": Family(mixer=Attention(head_dim=None, bias="attention_bias", qk_norm="heads", qk_norm_bias=True)),
    "muse_glimmer_text": MUSE_GLIMMER,
    "muse_spark_text": replace(
        MUSE_GLIMMER,
        ffn=MUSE_EXPERTS,
        norms=("input_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
        names=STACKED_EXPERTS.but(
            renamed={"g_proj": "gate_proj"}
            | {"fc1_latent_proj": "pre_expert_proj", "fc2_latent_proj": "post_expert_proj"}
        ),
        layer_extras=(
            Weights("other", dict.fromkeys(MUSE_GATES, ("hidden_size",))),
            Weights("norms", dict.fromkeys(MUSE_NORMS, ("moe_hidden_size",)), layers=MUSE_EXPERTS.is_sparse),
        ),
        ties=False,
    ),
    "blt": Family(
        section="global_config",
        mixer=BLT_ATTENTION,
        ffn=BLT_FFN,
        names=Names(embedding="local_encoder.embed_tokens", layer="global_transformer.layers.{layer}"),
        d_embedding=byte_width,
        extra_rows=lambda c: c.section("encoder_config").size("vocab_size") - c.size("vocab_size"),
        final_norm="none",
        extras=(byte_models,),
        assumption=Message(
            "Context and batch count patches of bytes, which the wide stack keeps; what the narrow stacks keep of "
            "the last bytes is not counted."
        ),
    ),
}
