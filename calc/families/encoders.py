"""Encoders that several models share: transformers' AutoModel builds those for images by a section's model_type."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from calc.families import timm_encoders as timm
from calc.families.fields import Fields
from calc.families.tower_parts import (
    DEFAULTS,
    FUSED,
    GATED,
    Layer,
    count,
    flat_patch,
    height_and_width,
    layers,
    merged_width,
    norms,
    patch,
    patches,
    placed,
)
from calc.model.tensor import Shape, Shapes, biased, weights, with_biases
from calc.model.vision import NamedShape

CLIP_LAYER = Layer()
INTERN_LAYER = Layer(
    qkv="attention.{}_proj",
    out="attention.projection_layer",
    norms=("layernorm_before", "layernorm_after"),
    scales=("lambda_1", "lambda_2"),
)
GATED_FUSED = replace(FUSED, mlp=GATED, norm_bias=False)
PIXTRAL_LAYER = Layer(
    qkv="attention.{}_proj",
    out="attention.o_proj",
    mlp=("feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"),
    norms=("attention_norm", "ffn_norm"),
    bias=False,
)


SAM_AS_RELEASED = {"neck.conv1": "neck.0", "neck.layer_norm1": "neck.1", "neck.conv2": "neck.2"}
SAM_AS_RELEASED |= {"neck.layer_norm2": "neck.3", ".layers.": ".blocks.", "layer_norm": "norm", ".projection": ".proj"}
"""Words of transformers -> those of the paper's own code."""


INTERN_AS_RELEASED = {"position_embeddings": "position_embedding", "patch_embeddings.projection": "patch_embedding"}
INTERN_AS_RELEASED |= {"cls_token": "class_embedding", "encoder.layer.": "encoder.layers."}
"""Words of transformers -> those of InternVL's first releases."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """Reader of the encoder of one model_type, from its section and under a path."""

    read: Callable[[Fields, str], Iterator[NamedShape]]
    level: str = ""  # module that published checkpoints have between a LLaVA's `vision_tower` and its parts
    known: Callable[[Fields], bool] = lambda c: True  # whether all that decides its weights is


def clip(c: Fields, path: str) -> Iterator[NamedShape]:
    """CLIP, arXiv:2103.00020 (transformers `modeling_clip.py`)."""
    d = c.size("hidden_size")
    yield f"{path}.embeddings.class_embedding", (d,), 1
    yield f"{path}.embeddings.patch_embedding.weight", patch(c), 1
    yield f"{path}.embeddings.position_embedding.weight", (patches(c) + 1, d), 1
    yield from placed(path, with_biases({"pre_layrnorm": (d,), "post_layernorm": (d,)}))
    yield from layers(c, f"{path}.encoder.layers", CLIP_LAYER)


def siglip(c: Fields, path: str) -> Iterator[NamedShape]:
    """SigLIP, arXiv:2303.15343; Idefics' too (transformers `modeling_siglip.py`)."""
    yield from siglip_of(c, path, patch(c), patches(c))


def siglip2(c: Fields, path: str) -> Iterator[NamedShape]:
    """SigLIP 2, arXiv:2502.14786, which takes patches as rows (transformers `modeling_siglip2.py`)."""
    yield from siglip_of(c, path, flat_patch(c), c.size("num_patches"))


def siglip_layers(
    c: Fields, path: str, patch: Shape, positions: int, layer: Layer = CLIP_LAYER, f: int | None = None
) -> Iterator[NamedShape]:
    """The embeddings of patches, the layers, and a norm behind them."""
    d = c.size("hidden_size")
    yield from placed(path, with_biases({"embeddings.patch_embedding": patch, "post_layernorm": (d,)}))
    yield f"{path}.embeddings.position_embedding.weight", (positions, d), 1
    yield from layers(c, f"{path}.encoder.layers", layer, f)


def siglip_of(c: Fields, path: str, patch: Shape, positions: int) -> Iterator[NamedShape]:
    """SigLIP's layers, and a head that pools by attention where there is one."""
    yield from siglip_layers(c, path, patch, positions)
    if c.flag("vision_use_head"):
        d, f = c.sizes("hidden_size", "intermediate_size")
        mlp = with_biases({"mlp.fc1": (f, d), "mlp.fc2": (d, f), "layernorm": (d,), "attention.out_proj": (d, d)})
        yield from placed(f"{path}.head", {"probe": (1, 1, d), "attention.in_proj_weight": (3 * d, d)})
        yield from placed(f"{path}.head", {"attention.in_proj_bias": (3 * d,), **mlp})


def pixtral(c: Fields, path: str) -> Iterator[NamedShape]:
    """Pixtral, arXiv:2410.07073 (transformers `modeling_pixtral.py`)."""
    yield from placed(path, weights({"patch_conv": patch(c), "ln_pre": (c.size("hidden_size"),)}))
    yield from layers(c, f"{path}.transformer.layers", PIXTRAL_LAYER)


def intern(c: Fields, path: str, layer: Layer = INTERN_LAYER, normed: str = "attention") -> Iterator[NamedShape]:
    """InternViT, arXiv:2312.14238, `normed`: the module with norms of queries and keys (transformers
    `modeling_internvl.py`)."""
    (height, width), (tall, wide) = height_and_width(c, "image_size"), height_and_width(c, "patch_size")
    d, inner, stack = c.size("hidden_size"), f"{path}.embeddings", f"{path}.encoder.layer"
    yield f"{inner}.cls_token", (1, 1, d), 1
    if c.flag("use_mask_token"):
        yield f"{inner}.mask_token", (1, 1, d), 1
    if c.flag("use_absolute_position_embeddings"):
        yield f"{inner}.position_embeddings", (1, (height // tall) * (width // wide) + 1, d), 1
    yield from placed(inner, with_biases({"patch_embeddings.projection": (d, c.size("num_channels"), tall, wide)}))
    layer = replace(layer, qkv_bias=c.flag("attention_bias"), norm_bias=c.get("norm_type") == "layer_norm")
    yield from layers(c, stack, layer)
    if c.flag("use_qk_norm"):
        shapes = weights(norms(d, f"{normed}.q_norm", f"{normed}.k_norm"))
        yield from placed(f"{stack}.{{layer}}", shapes, c.size("num_hidden_layers"))
    if not c.flag("use_mean_pooling"):
        yield from placed(path, with_biases({"layernorm": (d,)}))


def sam(c: Fields, path: str) -> Iterator[NamedShape]:
    """SAM's, arXiv:2304.02643: positions relative within windows, over all patches in some layers (transformers
    `modeling_sam.py`)."""
    d, n, out = c.sizes("hidden_size", "num_hidden_layers", "output_channels")
    side, stack = c.size("image_size") // c.size("patch_size"), f"{path}.layers"
    if c.flag("use_abs_pos"):
        yield f"{path}.pos_embed", (1, side, side, d), 1
    yield from placed(path, with_biases({"patch_embed.projection": patch(c)}))
    layer = replace(FUSED, mlp=("mlp.lin1", "mlp.lin2"), norms=Layer.norms, qkv_bias=c.flag("qkv_bias"))
    yield from layers(c, stack, layer, c.maybe("mlp_dim") or int(d * c.real("mlp_ratio")))
    if c.flag("use_rel_pos"):
        d_head, whole = d // c.size("num_attention_heads"), c.indices("global_attn_indexes")
        for i in range(n):
            rows = 2 * (side if i in whole or not c.get("window_size") else c.size("window_size")) - 1
            yield from placed(f"{stack}.{i}.attn", dict.fromkeys(("rel_pos_h", "rel_pos_w"), (rows, d_head)))
    yield from sam_neck(d, out, f"{path}.neck")


def sam_neck(d: int, out: int, path: str) -> Iterator[NamedShape]:
    """Two convolutions to a smaller width, each with a norm."""
    yield from placed(path, weights({"conv1": (out, d, 1, 1), "conv2": (out, out, 3, 3)}))
    yield from placed(path, with_biases(norms(out, "layer_norm1", "layer_norm2")))


def qwen2(c: Fields, path: str) -> Iterator[NamedShape]:
    """Qwen2-VL's, arXiv:2409.12191, whose `hidden_size` is the width of what it puts out (transformers
    `modeling_qwen2_vl.py`)."""
    out, d, merged = c.size("hidden_size"), c.size("embed_dim"), merged_width(c, "embed_dim")
    c = c.with_stated("hidden_size", d)
    yield f"{path}.patch_embed.proj.weight", patch(c, "in_channels", frames=True), 1
    yield from layers(c, f"{path}.blocks", FUSED, c.size("mlp_ratio") * d, "depth")
    merger: Shapes = {"ln_q": (d,), "mlp.0": (merged, merged), "mlp.2": (out, merged)}
    yield from placed(f"{path}.merger", with_biases(merger))


def qwen2_5(c: Fields, path: str) -> Iterator[NamedShape]:
    """Qwen2.5-VL's, arXiv:2502.13923; with fewer heads of keys and values in EXAONE 4.5 (transformers
    `modeling_qwen2_5_vl.py`, `modeling_exaone4_5.py`)."""
    (d, heads), fewer, merged = c.sizes("hidden_size", "num_heads"), c.maybe("num_key_value_heads"), merged_width(c)
    shapes = GATED_FUSED.shapes(d, c.size("intermediate_size"))
    if fewer is not None:
        shapes |= with_biases({"attn.qkv": ((heads + 2 * fewer) * (d // heads), d)})
    yield f"{path}.patch_embed.proj.weight", patch(c, "in_channels", frames=True), 1
    yield from placed(f"{path}.blocks.{{layer}}", shapes, c.size("depth"))
    yield f"{path}.merger.ln_q.weight", (d,), 1
    mlp = with_biases({"mlp.0": (merged, merged), "mlp.2": (c.size("out_hidden_size"), merged)})
    yield from placed(f"{path}.merger", mlp)


def qwen3(c: Fields, path: str) -> Iterator[NamedShape]:
    """Qwen3-VL's, arXiv:2511.21631 (transformers `modeling_qwen3_vl.py`): some layers have a merger of their own."""
    d, out, merged = c.size("hidden_size"), c.size("out_hidden_size"), merged_width(c)
    yield from placed(path, with_biases({"patch_embed.proj": patch(c, "in_channels", frames=True)}))
    yield f"{path}.pos_embed.weight", (c.size("num_position_embeddings"), d), 1
    layer = replace(FUSED, mlp=("mlp.linear_fc1", "mlp.linear_fc2"))
    yield from layers(c, f"{path}.blocks", layer, copies="depth")
    matrices = {"linear_fc1": (merged, merged), "linear_fc2": (out, merged)}
    yield from placed(f"{path}.merger", with_biases({**matrices, "norm": (d,)}))
    deep = with_biases({**matrices, "norm": (merged,)})
    yield from placed(f"{path}.deepstack_merger_list.{{layer}}", deep, count(c, "deepstack_visual_indexes"))


def glm4(c: Fields, path: str) -> Iterator[NamedShape]:
    """GLM-4.1V's, arXiv:2507.01006, with learned positions, whose layers are as wide inside as its output (transformers
    `modeling_glm4v.py`)."""
    d = c.size("hidden_size")
    yield from placed(path, weights({"embeddings.position_embedding": (patches(c), d), "post_conv_layernorm": (d,)}))
    layer = replace(GATED_FUSED, bias=False, qkv_bias=c.flag("attention_bias"))
    yield from glm(c, path, layer, c.size("out_hidden_size"), c.size("intermediate_size"))


def glm_normed(c: Fields, path: str, projected: int) -> Iterator[NamedShape]:
    """GLM-OCR's and GLM-5-Next's, which norms queries and keys."""
    layer = replace(GATED_FUSED, head_norms=("attn.q_norm", "attn.k_norm"), bias=c.flag("attention_bias"))
    yield from glm(c, path, layer, c.size("intermediate_size"), projected)


def glm(c: Fields, path: str, layer: Layer, f: int, projected: int) -> Iterator[NamedShape]:
    """Layers whose feed-forward is f wide, a convolution that merges patches, and a gated merger."""
    d, merge, out = c.sizes("hidden_size", "spatial_merge_size", "out_hidden_size")
    outer = {"patch_embed.proj": patch(c, "in_channels", frames=True), "downsample": (out, d, merge, merge)}
    gated = {"gate_proj": (projected, out), "up_proj": (projected, out), "down_proj": (out, projected)}
    yield from placed(path, with_biases({**outer, "merger.post_projection_norm": (out,)}))
    yield f"{path}.post_layernorm.weight", (d,), 1
    yield from placed(f"{path}.merger", weights({"proj": (out, out), **gated}))
    yield from layers(c, f"{path}.blocks", layer, f, "depth", d_head=d // c.size("num_heads"))


def eva(c: Fields, path: str) -> Iterator[NamedShape]:
    """EVA-CLIP, arXiv:2303.15389, of the BLIP models."""
    d, p = c.sizes("hidden_size", "patch_size")
    yield f"{path}.embeddings.class_embedding", (1, 1, d), 1
    yield f"{path}.embeddings.position_embedding", (1, patches(c) + 1, d), 1
    yield from placed(f"{path}.embeddings", with_biases({"patch_embedding": (d, 3, p, p)}))
    layer = Layer(qkv="self_attn.qkv", out="self_attn.projection", qkv_bias=c.flag("qkv_bias"))
    yield from layers(c, f"{path}.encoder.layers", layer)
    yield from placed(path, with_biases({"post_layernorm": (d,)}))


def moonvit(c: Fields, *, bias: bool) -> Iterator[NamedShape]:
    """MoonViT, arXiv:2504.07491: positions of a grid, layers, and a norm behind them."""
    d, p, path = c.size("hidden_size"), c.size("patch_size"), "vision_tower"
    layer = Layer(qkv="wqkv", out="wo", mlp=("mlp.fc0", "mlp.fc1"), norms=("norm0", "norm1"), bias=bias)
    yield from placed(f"{path}.patch_embed", biased(bias, {"proj": (d, 3, p, p)}))
    yield f"{path}.patch_embed.pos_emb.weight", (c.size("pos_emb_height"), c.size("pos_emb_width"), d), 1
    yield from layers(c, f"{path}.encoder.blocks", layer, q=c.maybe("qkv_hidden_size"))
    yield from placed(f"{path}.encoder", biased(bias, {"final_layernorm": (d,)}))


def qformer(c: Fields, path: str) -> Iterator[NamedShape]:
    """Q-Former, BLIP-2, arXiv:2301.12597: learned queries that attend to what an encoder puts out, in every so many
    layers (transformers `modeling_blip_2.py`)."""
    d, f, n = c.sizes("hidden_size", "intermediate_size", "num_hidden_layers")
    yield from placed(path, with_biases({"layernorm": (d,)}))
    parts = bert_attention("attention", d, d) | bert_mlp("intermediate_query", "output_query", d, f)
    if c.flag("use_qformer_text_input"):
        parts |= bert_mlp("intermediate", "output", d, f)
    yield from placed(f"{path}.encoder.layer.{{layer}}", with_biases(parts), n)
    for i in range(0, n, c.size("cross_attention_frequency")):
        cross = bert_attention("crossattention", d, c.size("encoder_hidden_size"))
        yield from placed(f"{path}.encoder.layer.{i}", with_biases(cross))


def bert_attention(name: str, d: int, seen: int) -> Shapes:
    """Queries d wide and what they see, as BERT names them."""
    inner: Shapes = {"attention.query": (d, d), "attention.key": (d, seen), "attention.value": (d, seen)}
    inner |= {"output.dense": (d, d), "output.LayerNorm": (d,)}
    return {f"{name}.{part}": shape for part, shape in inner.items()}


def bert_mlp(wide: str, out: str, d: int, f: int) -> Shapes:
    """Two matrices and a norm."""
    return {f"{wide}.dense": (f, d), f"{out}.dense": (d, f), f"{out}.LayerNorm": (d,)}


ENCODERS: dict[str, Encoder] = {
    "clip_vision_model": Encoder(clip, level="vision_model"),
    "glm4v_vision": Encoder(glm4),
    "idefics3_vision": Encoder(siglip),
    "internvl_vision": Encoder(intern),
    "pixtral": Encoder(pixtral),
    "qwen2_5_vl_vision": Encoder(qwen2_5),
    "qwen2_vl_vision": Encoder(qwen2),
    "qwen3_5_vision": Encoder(qwen3),
    "qwen3_vl_vision": Encoder(qwen3),
    "sam_vision_model": Encoder(sam),
    "siglip2_vision_model": Encoder(siglip2, level="vision_model"),
    "siglip_vision_model": Encoder(siglip, level="vision_model"),
}
"""model_type of an encoder's section -> how it is read."""
TIMM: dict[str, Encoder] = {
    "fastvit_mci3": Encoder(
        lambda c, path: timm.fastvit(f"{path}.timm_model"),
        known=lambda c: timm.arguments(c).flag("inference_mode"),  # its branches are merged
    ),
    "mobilenetv5_300m_enc": Encoder(lambda c, path: timm.mobilenet(f"{path}.timm_model")),
    **dict.fromkeys(
        timm.PERCEPTION,
        Encoder(lambda c, path: timm.perception(c, f"{path}.timm_model"), known=timm.is_known_perception),
    ),
}
"""Architecture of timm -> how it is read."""


def encoder_of(c: Fields, usual: str, *, alone: bool) -> tuple[Fields, Encoder] | None:
    """The encoder that a section describes, and the section with its class's defaults; None where it is not known."""
    kind = usual if alone else c.stated.get("model_type", usual)
    encoder = timm_of(c) if kind == "timm_wrapper" else ENCODERS.get(kind) if isinstance(kind, str) else None
    return None if encoder is None else (Fields(c.stated, DEFAULTS["encoders"].get(kind, {}), {}), encoder)


def timm_of(c: Fields) -> Encoder | None:
    """The encoder of timm that a section names, where all that decides its weights is known."""
    name = c.get("architecture")
    encoder = TIMM.get(name) if isinstance(name, str) else None
    return encoder if encoder is not None and encoder.known(c) else None
