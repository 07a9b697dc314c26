"""Meta's families."""

from calc.families.attention_rows import Attention, Sliding
from calc.families.family import (
    GATE_UP,
    GEMMA_NORMS,
    LLAMA_FILE,
    STACKED_EXPERTS,
    CrossAttention,
    Family,
    If,
    Wrapper,
    extras,
    made_by,
)
from calc.families.feedforward_rows import Dense, Experts
from calc.families.fields import Fields
from calc.model.attention import GQA
from calc.model.block import Extra
from calc.model.gguf_rules import GGUFRules
from calc.model.kernels import Kernels
from calc.model.names import Names
from calc.model.tensor import Norm

LLAMA_ATTENTION = Attention(bias="attention_bias")
LLAMA_LIKE = Family(mixer=LLAMA_ATTENTION, ffn=Dense(bias=False), defaults="llama")
"""Families whose remote code is Llama's with other words."""

MLLAMA_CROSS = frozenset(range(3, 40, 5))
"""The class's default."""
MLLAMA_ATTENTION = Attention(head_dim=None)
MLLAMA_IMAGE = Attention(head_dim=None, qk_norm="head")


def mllama_crosses(c: Fields, layer: int) -> bool:
    """Whether layer i of Llama 3.2 Vision attends to the image."""
    listed = c.get("cross_attention_layers") is not None
    return layer in (c.indices("cross_attention_layers") if listed else MLLAMA_CROSS)


def mllama_attention(c: Fields, layer: int) -> GQA:
    if not mllama_crosses(c, layer):
        return MLLAMA_ATTENTION(c, layer)
    return MLLAMA_IMAGE(c, layer).model_copy(update={"cross": True})


def mllama_gates(c: Fields, layer: int) -> tuple[Extra, ...]:
    if not mllama_crosses(c, layer):
        return ()
    return extras("attention", {"cross_attn_attn_gate": (1,)}) + extras("mlp", {"cross_attn_mlp_gate": (1,)})


def llama4_sparse(c: Fields, layer: int) -> bool:
    """Experts in every `interleave_moe_layer_step`-th layer."""
    if c.get("moe_layers") is not None:
        return layer in c.indices("moe_layers")
    return (layer + 1) % c.size("interleave_moe_layer_step") == 0


def opt_projections(c: Fields) -> tuple[Extra, ...]:
    """OPT-350m embeds in fewer dimensions than its layers have."""
    hidden, narrow = c.size("hidden_size"), c.maybe("word_embed_proj_dim")
    if narrow is None or narrow == hidden:
        return ()
    shapes = {"model.decoder.project_in.weight": (hidden, narrow), "model.decoder.project_out.weight": (narrow, hidden)}
    return extras("other", shapes)


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


def muse_spark_extras(c: Fields, layer: int) -> tuple[Extra, ...]:
    """Gates of the residual stream, and the norms round the experts."""
    gates = ("post_attention_residual_gate.gate", "post_feedforward_residual_gate.gate")
    tensors = extras("other", {name: (c.size("hidden_size"),) for name in gates})
    if MUSE_EXPERTS.is_sparse(c, layer):
        norms = ("mlp.pre_expert_norm.weight", "mlp.experts.post_expert_norm.weight")
        tensors += extras("norms", {name: (c.size("moe_hidden_size"),) for name in norms})
    return tensors


LLAMA: dict[str, Family] = made_by(
    "Meta",
    {
        "llama": Family(
            mixer=LLAMA_ATTENTION,
            ffn=Dense(),
            mixture="mixtral",
            gguf_headers="llama",
            wrappers=(
                Wrapper("deepseek_vl"),
                Wrapper("deepseek_vl_hybrid"),
                Wrapper("glmasr"),
                Wrapper("idefics3"),
                Wrapper("janus"),
                Wrapper("llava"),
                Wrapper("llava_next"),
                Wrapper("llava_next_video"),
                Wrapper("perception_lm"),
                Wrapper("smolvlm"),
                Wrapper("video_llava"),
                Wrapper("vipllava"),
                Wrapper("voxtral"),
            ),
            gguf=LLAMA_FILE,
        ),
        "mllama_text_model": Family(
            mixer=mllama_attention,
            ffn=Dense(bias=False),
            extra_rows=8,
            ties=False,
            layer_extras=mllama_gates,
            wrappers=(Wrapper("mllama"),),
        ),
        "llama4_text": Family(
            mixer=Attention(
                bias="attention_bias",
                window=Sliding(
                    full_every="no_rope_layer_interval", marks="no_rope_layers", size="attention_chunk_size"
                ),
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
            wrappers=(Wrapper("llama4"),),
            gguf=GGUFRules("llama4"),
        ),
        "cwm": Family(mixer=Attention(window=Sliding(full_every=4)), ffn=Dense()),
        "opt": Family(
            mixer=Attention(kv=None, head_dim=None, bias="enable_bias"),
            ffn=Dense("ffn_dim", gated=False, bias="enable_bias"),
            norms=("self_attn_layer_norm", "final_layer_norm"),
            norm=OPT_NORM,
            names=Names(
                embedding="model.decoder.embed_tokens",
                positions="model.decoder.embed_positions",
                layer="model.decoder.layers.{layer}",
                mlp="",
                final_norm="model.decoder.final_layer_norm",
                renamed={"o_proj": "out_proj", "up_proj": "fc1", "down_proj": "fc2"},
            ),
            rotary=None,
            positions="max_position_embeddings",
            more_positions=2,
            d_embedding="word_embed_proj_dim",
            final_norm=opt_final_norm,
            kernels=opt_kernels,
            extras=opt_projections,
            wrappers=(Wrapper("blip-2"), Wrapper("instructblip"), Wrapper("instructblipvideo")),
        ),
        "xglm": Family(
            mixer=Attention(heads="attention_heads", kv=None, head_dim=None, hidden="d_model", bias=True),
            ffn=Dense("ffn_dim", gated=False, bias=True),
            norms=("self_attn_layer_norm", "final_layer_norm"),
            norm="layer",
            names=Names(
                mlp="",
                final_norm="model.layer_norm",
                renamed={"o_proj": "out_proj", "up_proj": "fc1", "down_proj": "fc2"},
            ),
            rotary=None,
            layers="num_layers",
            hidden="d_model",
            layer_extras=CrossAttention(
                matrices={f"encoder_attn.{name}": 1 for name in ("q_proj", "k_proj", "v_proj", "out_proj")},
                norm="encoder_attn_layer_norm",
                hidden="d_model",
            ),
        ),
        "chameleon": Family(
            mixer=Attention(head_dim=None, bias="attention_bias", qk_norm="heads", qk_norm_bias=True),
            ffn=Dense(),
        ),
        "muse_glimmer_text": Family(
            mixer=MUSE_ATTENTION,
            ffn=Dense(bias=False),
            norms=GEMMA_NORMS,
            names=Names(renamed={"g_proj": "gate_proj"}),
            kernels=Kernels(norm="rms32", capped_logits=True),
            wrappers=(Wrapper("muse_glimmer"),),
        ),
        "muse_spark_text": Family(
            mixer=MUSE_ATTENTION,
            ffn=MUSE_EXPERTS,
            norms=("input_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
            names=STACKED_EXPERTS.model_copy(
                update={
                    "renamed": {
                        "g_proj": "gate_proj",
                        "fc1_latent_proj": "pre_expert_proj",
                        "fc2_latent_proj": "post_expert_proj",
                    }
                }
            ),
            layer_extras=muse_spark_extras,
            ties=False,
            kernels=Kernels(norm="rms32", capped_logits=True),
            wrappers=(Wrapper("muse_spark"),),
        ),
    },
)
