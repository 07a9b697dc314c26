"""Encoders for images that several models share: transformers' AutoModel builds them by a section's model_type."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from calc.families import timm_encoders as timm
from calc.families import tower_defaults as defaults
from calc.families.fields import Fields
from calc.families.tower_parts import count, patches, two
from calc.model.tensor import Shapes
from calc.model.towers.listed import GATED, Layer, biased
from calc.model.towers.named_shapes import NamedShape, placed, weights, with_biases

CLIP_LAYER = Layer()
SAM_LAYER = Layer(qkv=("attn.qkv",), out="attn.proj", mlp=("mlp.lin1", "mlp.lin2"))
QWEN_LAYER = Layer(qkv=("attn.qkv",), out="attn.proj", norms=("norm1", "norm2"))
PIXTRAL_LAYER = Layer(
    qkv=("attention.q_proj", "attention.k_proj", "attention.v_proj"),
    out="attention.o_proj",
    mlp=("feed_forward.gate_proj", "feed_forward.up_proj", "feed_forward.down_proj"),
    norms=("attention_norm", "ffn_norm"),
    qkv_bias=False,
    out_bias=False,
    mlp_bias=False,
    norm_bias=False,
)
SAM: Mapping[str, Any] = {
    "hidden_size": 768,
    "output_channels": 256,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "image_size": 1024,
    "patch_size": 16,
    "qkv_bias": True,
    "use_abs_pos": True,
    "use_rel_pos": True,
    "window_size": 14,
    "global_attn_indexes": [2, 5, 8, 11],
    "mlp_ratio": 4.0,
}


@dataclass(frozen=True)
class SamNames:
    """Names of SAM's modules."""

    patch: str
    layers: str
    norms: tuple[str, ...]
    neck: tuple[str, ...]  # a convolution and its norm, twice


SAM_NAMES = SamNames(
    patch="patch_embed.projection",
    layers="layers",
    norms=("layer_norm1", "layer_norm2"),
    neck=("conv1", "layer_norm1", "conv2", "layer_norm2"),
)
SAM_AS_RELEASED = SamNames(
    patch="patch_embed.proj", layers="blocks", norms=("norm1", "norm2"), neck=("0", "1", "2", "3")
)
"""Names in transformers, and in the paper's own code."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """Reader of the encoder of one model_type, from its section and under a path; and its class's defaults."""

    read: Callable[[Fields, str], Iterator[NamedShape]]
    defaults: Mapping[str, Any]
    level: str = ""  # module that published checkpoints have between a LLaVA's `vision_tower` and its parts
    statistics: Callable[[Fields, str], Iterable[NamedShape]] = lambda c, path: ()  # what it keeps besides parameters
    known: Callable[[Fields], bool] = lambda c: True  # whether all that decides its weights is


def clip(c: Fields, path: str) -> Iterator[NamedShape]:
    """CLIP, arXiv:2103.00020 (transformers `modeling_clip.py`)."""
    d, p = c.size("hidden_size"), c.size("patch_size")
    yield f"{path}.embeddings.class_embedding", (d,), 1
    yield f"{path}.embeddings.patch_embedding.weight", (d, c.size("num_channels"), p, p), 1
    yield f"{path}.embeddings.position_embedding.weight", (patches(c) + 1, d), 1
    yield from placed(path, with_biases({"pre_layrnorm": (d,), "post_layernorm": (d,)}))
    yield from layers(c, f"{path}.encoder.layers.{{layer}}", CLIP_LAYER)


def siglip(c: Fields, path: str) -> Iterator[NamedShape]:
    """SigLIP, arXiv:2303.15343; Idefics' too (transformers `modeling_siglip.py`)."""
    p = c.size("patch_size")
    yield from siglip_of(c, path, (c.size("num_channels"), p, p), patches(c))


def siglip2(c: Fields, path: str) -> Iterator[NamedShape]:
    """SigLIP 2, arXiv:2502.14786, which takes patches as rows (transformers `modeling_siglip2.py`)."""
    yield from siglip_of(c, path, (c.size("num_channels") * c.size("patch_size") ** 2,), c.size("num_patches"))


def siglip_of(c: Fields, path: str, patch: tuple[int, ...], positions: int) -> Iterator[NamedShape]:
    """The embeddings of patches, the layers, and a head that pools by attention where there is one."""
    d, f = c.size("hidden_size"), c.size("intermediate_size")
    yield from placed(f"{path}.embeddings", with_biases({"patch_embedding": (d, *patch)}))
    yield f"{path}.embeddings.position_embedding.weight", (positions, d), 1
    yield from layers(c, f"{path}.encoder.layers.{{layer}}", CLIP_LAYER)
    yield from placed(path, with_biases({"post_layernorm": (d,)}))
    if c.flag("vision_use_head"):
        mlp = with_biases({"mlp.fc1": (f, d), "mlp.fc2": (d, f), "layernorm": (d,), "attention.out_proj": (d, d)})
        yield from placed(f"{path}.head", {"probe": (1, 1, d), "attention.in_proj_weight": (3 * d, d)})
        yield from placed(f"{path}.head", {"attention.in_proj_bias": (3 * d,), **mlp})


def layers(c: Fields, path: str, layer: Layer) -> Iterator[NamedShape]:
    """`num_hidden_layers` of one kind."""
    shapes = layer.shapes(c.size("hidden_size"), c.size("intermediate_size"))
    yield from placed(path, shapes, c.size("num_hidden_layers"))


def pixtral(c: Fields, path: str) -> Iterator[NamedShape]:
    """Pixtral, arXiv:2410.07073 (transformers `modeling_pixtral.py`)."""
    d, p = c.size("hidden_size"), c.size("patch_size")
    yield from placed(path, weights({"patch_conv": (d, c.size("num_channels"), p, p), "ln_pre": (d,)}))
    yield from layers(c, f"{path}.transformer.layers.{{layer}}", PIXTRAL_LAYER)


def intern(c: Fields, path: str) -> Iterator[NamedShape]:
    """InternViT, arXiv:2312.14238 (transformers `modeling_internvl.py`)."""
    (height, width), (tall, wide) = two(c, "image_size"), two(c, "patch_size")
    d = c.size("hidden_size")
    layer = Layer(
        qkv=("attention.q_proj", "attention.k_proj", "attention.v_proj"),
        out="attention.projection_layer",
        norms=("layernorm_before", "layernorm_after"),
        scales=("lambda_1", "lambda_2"),
        qkv_bias=c.flag("attention_bias"),
        norm_bias=c.get("norm_type") == "layer_norm",
    )
    yield f"{path}.embeddings.cls_token", (1, 1, d), 1
    if c.flag("use_mask_token"):
        yield f"{path}.embeddings.mask_token", (1, 1, d), 1
    if c.flag("use_absolute_position_embeddings"):
        yield f"{path}.embeddings.position_embeddings", (1, (height // tall) * (width // wide) + 1, d), 1
    patch = with_biases({"projection": (d, c.size("num_channels"), tall, wide)})
    yield from placed(f"{path}.embeddings.patch_embeddings", patch)
    yield from layers(c, f"{path}.encoder.layer.{{layer}}", layer)
    if c.flag("use_qk_norm"):
        norms = weights({"attention.q_norm": (d,), "attention.k_norm": (d,)})
        yield from placed(f"{path}.encoder.layer.{{layer}}", norms, c.size("num_hidden_layers"))
    if not c.flag("use_mean_pooling"):
        yield from placed(path, with_biases({"layernorm": (d,)}))


def sam(c: Fields, path: str, names: SamNames = SAM_NAMES) -> Iterator[NamedShape]:
    """SAM's, arXiv:2304.02643: positions relative within windows, over all patches in some layers (transformers
    `modeling_sam.py`)."""
    d, p, n, out = c.size("hidden_size"), c.size("patch_size"), c.size("num_hidden_layers"), c.size("output_channels")
    side, stack = c.size("image_size") // p, f"{path}.{names.layers}"
    f = c.maybe("mlp_dim") or int(d * c.real("mlp_ratio"))
    if c.flag("use_abs_pos"):
        yield f"{path}.pos_embed", (1, side, side, d), 1
    yield from placed(path, with_biases({names.patch: (d, c.size("num_channels"), p, p)}))
    layer = replace(SAM_LAYER, norms=names.norms, qkv_bias=c.flag("qkv_bias"))
    yield from placed(f"{stack}.{{layer}}", layer.shapes(d, f), n)
    if c.flag("use_rel_pos"):
        d_head, whole = d // c.size("num_attention_heads"), c.indices("global_attn_indexes")
        for i in range(n):
            rows = 2 * (side if i in whole or not c.get("window_size") else c.size("window_size")) - 1
            yield from placed(f"{stack}.{i}.attn", dict.fromkeys(("rel_pos_h", "rel_pos_w"), (rows, d_head)))
    yield from sam_neck(d, out, f"{path}.neck", names.neck)


def sam_neck(d: int, out: int, path: str, names: tuple[str, ...] = SAM_NAMES.neck) -> Iterator[NamedShape]:
    """Two convolutions to a smaller width, each with a norm."""
    first, first_norm, second, second_norm = names
    yield from placed(path, weights({first: (out, d, 1, 1), second: (out, out, 3, 3)}))
    yield from placed(path, with_biases({first_norm: (out,), second_norm: (out,)}))


def qwen2(c: Fields, path: str) -> Iterator[NamedShape]:
    """Qwen2-VL's, arXiv:2409.12191, whose `hidden_size` is the width of what it puts out (transformers
    `modeling_qwen2_vl.py`)."""
    d, p, merged = c.size("embed_dim"), c.size("patch_size"), merged_width(c, "embed_dim")
    patch = (d, c.size("in_channels"), c.size("temporal_patch_size"), p, p)
    yield f"{path}.patch_embed.proj.weight", patch, 1
    yield from placed(f"{path}.blocks.{{layer}}", QWEN_LAYER.shapes(d, c.size("mlp_ratio") * d), c.size("depth"))
    merger: Shapes = {"ln_q": (d,), "mlp.0": (merged, merged), "mlp.2": (c.size("hidden_size"), merged)}
    yield from placed(f"{path}.merger", with_biases(merger))


def merged_width(c: Fields, field: str) -> int:
    """Width of the patches that one token stands for, joined."""
    return c.size(field) * c.size("spatial_merge_size") ** 2


def qwen2_5(c: Fields, path: str) -> Iterator[NamedShape]:
    """Qwen2.5-VL's, arXiv:2502.13923; with fewer heads of keys and values in EXAONE 4.5 (transformers
    `modeling_qwen2_5_vl.py`, `modeling_exaone4_5.py`)."""
    d, p, n, merged = c.size("hidden_size"), c.size("patch_size"), c.size("depth"), merged_width(c, "hidden_size")
    heads, fewer = c.size("num_heads"), c.maybe("num_key_value_heads")
    patch = (d, c.size("in_channels"), c.size("temporal_patch_size"), p, p)
    layer = Layer(qkv=("attn.qkv",), out="attn.proj", mlp=GATED, norms=("norm1", "norm2"), norm_bias=False)
    shapes = layer.shapes(d, c.size("intermediate_size"))
    if fewer is not None:
        shapes |= with_biases({"attn.qkv": ((heads + 2 * fewer) * (d // heads), d)})
    yield f"{path}.patch_embed.proj.weight", patch, 1
    yield from placed(f"{path}.blocks.{{layer}}", shapes, n)
    yield f"{path}.merger.ln_q.weight", (d,), 1
    mlp = with_biases({"mlp.0": (merged, merged), "mlp.2": (c.size("out_hidden_size"), merged)})
    yield from placed(f"{path}.merger", mlp)


def glm4(c: Fields, path: str) -> Iterator[NamedShape]:
    """GLM-4.1V's, arXiv:2507.01006, with learned positions, whose layers are as wide inside as its output (transformers
    `modeling_glm4v.py`)."""
    d, out = c.size("hidden_size"), c.size("out_hidden_size")
    yield from placed(path, weights({"embeddings.position_embedding": (patches(c), d), "post_conv_layernorm": (d,)}))
    layer = Layer(
        qkv=("attn.qkv",),
        out="attn.proj",
        mlp=GATED,
        norms=("norm1", "norm2"),
        qkv_bias=c.flag("attention_bias"),
        out_bias=False,
        mlp_bias=False,
        norm_bias=False,
    )
    yield from glm(c, path, layer, out, c.size("intermediate_size"))


def glm(c: Fields, path: str, layer: Layer, f: int, projected: int) -> Iterator[NamedShape]:
    """Layers whose feed-forward is f wide, a convolution that merges patches, and a gated merger."""
    d, p, merge, out = (c.size(x) for x in ("hidden_size", "patch_size", "spatial_merge_size", "out_hidden_size"))
    patch = (d, c.size("in_channels"), c.size("temporal_patch_size"), p, p)
    outer = {"patch_embed.proj": patch, "downsample": (out, d, merge, merge), "merger.post_projection_norm": (out,)}
    gated = {"gate_proj": (projected, out), "up_proj": (projected, out), "down_proj": (out, projected)}
    yield from placed(path, with_biases(outer) | weights({"post_layernorm": (d,)}))
    yield from placed(f"{path}.merger", weights({"proj": (out, out), **gated}))
    d_head = d // c.size("num_heads")
    yield from placed(f"{path}.blocks.{{layer}}", layer.shapes(d, f, d_head=d_head), c.size("depth"))


def glm_normed(c: Fields) -> Layer:
    """A layer of GLM-OCR and GLM-5-Next, which norms queries and keys."""
    bias = c.flag("attention_bias")
    return Layer(
        qkv=("attn.qkv",),
        out="attn.proj",
        mlp=GATED,
        norms=("norm1", "norm2"),
        head_norms=("attn.q_norm", "attn.k_norm"),
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=bias,
        norm_bias=False,
    )


def qwen3(c: Fields, path: str) -> Iterator[NamedShape]:
    """Qwen3-VL's, arXiv:2511.21631 (transformers `modeling_qwen3_vl.py`): some layers have a merger of their own."""
    d, p, out = c.size("hidden_size"), c.size("patch_size"), c.size("out_hidden_size")
    merged = d * c.size("spatial_merge_size") ** 2
    patch: Shapes = {"patch_embed.proj": (d, c.size("in_channels"), c.size("temporal_patch_size"), p, p)}
    layer = Layer(
        qkv=("attn.qkv",), out="attn.proj", mlp=("mlp.linear_fc1", "mlp.linear_fc2"), norms=("norm1", "norm2")
    )
    yield from placed(path, with_biases(patch) | weights({"pos_embed": (c.size("num_position_embeddings"), d)}))
    yield from placed(f"{path}.blocks.{{layer}}", layer.shapes(d, c.size("intermediate_size")), c.size("depth"))
    matrices = {"linear_fc1": (merged, merged), "linear_fc2": (out, merged)}
    yield from placed(f"{path}.merger", with_biases({**matrices, "norm": (d,)}))
    deep = with_biases({**matrices, "norm": (merged,)})
    yield from placed(f"{path}.deepstack_merger_list.{{layer}}", deep, count(c, "deepstack_visual_indexes"))


def moonvit(c: Fields, *, bias: bool) -> Iterator[NamedShape]:
    """MoonViT, arXiv:2504.07491: positions of a grid, layers, and a norm behind them."""
    d, p, path = c.size("hidden_size"), c.size("patch_size"), "vision_tower"
    layer = Layer(
        qkv=("wqkv",),
        out="wo",
        mlp=("mlp.fc0", "mlp.fc1"),
        norms=("norm0", "norm1"),
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=bias,
        norm_bias=bias,
    ).shapes(d, c.size("intermediate_size"), q=c.maybe("qkv_hidden_size"))
    yield from placed(f"{path}.patch_embed", biased(bias, {"proj": (d, 3, p, p)}))
    yield f"{path}.patch_embed.pos_emb.weight", (c.size("pos_emb_height"), c.size("pos_emb_width"), d), 1
    yield from placed(f"{path}.encoder.blocks.{{layer}}", layer, c.size("num_hidden_layers"))
    yield from placed(f"{path}.encoder", biased(bias, {"final_layernorm": (d,)}))


CLIP = Encoder(clip, defaults.CLIP, level="vision_model")
SIGLIP = Encoder(siglip, defaults.SIGLIP, level="vision_model")
ENCODERS: dict[str, Encoder] = {
    "clip_vision_model": CLIP,
    "glm4v_vision": Encoder(glm4, defaults.GLM4),
    "idefics3_vision": Encoder(siglip, defaults.IDEFICS3),
    "internvl_vision": Encoder(intern, defaults.INTERN),
    "pixtral": Encoder(pixtral, defaults.PIXTRAL),
    "qwen2_5_vl_vision": Encoder(qwen2_5, defaults.QWEN2_5),
    "qwen2_vl_vision": Encoder(qwen2, defaults.QWEN2),
    "qwen3_5_vision": Encoder(qwen3, defaults.QWEN3),
    "qwen3_vl_vision": Encoder(qwen3, defaults.QWEN3_VL),
    "sam_vision_model": Encoder(sam, SAM),
    "siglip2_vision_model": Encoder(siglip2, defaults.SIGLIP2, level="vision_model"),
    "siglip_vision_model": SIGLIP,
}
"""model_type of an encoder's section -> how it is read."""
TIMM: dict[str, Encoder] = {
    "fastvit_mci3": Encoder(
        lambda c, path: timm.fastvit(f"{path}.timm_model"),
        {},
        statistics=lambda c, path: timm.fastvit_statistics(f"{path}.timm_model"),
        known=lambda c: timm.arguments(c).flag("inference_mode"),  # its branches are merged
    ),
    "mobilenetv5_300m_enc": Encoder(lambda c, path: timm.mobilenet(f"{path}.timm_model"), {}),
    **dict.fromkeys(
        timm.PERCEPTION,
        Encoder(lambda c, path: timm.perception(c, f"{path}.timm_model"), {}, known=timm.is_known_perception),
    ),
}
"""Architecture of timm -> how it is read."""


def encoder_of(c: Fields, usual: str, *, alone: bool) -> tuple[Fields, Encoder] | None:
    """The encoder that a section describes, and the section with its class's defaults; None where it is not known."""
    kind = usual if alone else c.stated.get("model_type", usual)
    encoder = timm_of(c) if kind == "timm_wrapper" else ENCODERS.get(kind) if isinstance(kind, str) else None
    return None if encoder is None else (Fields(c.stated, encoder.defaults, {}), encoder)


def timm_of(c: Fields) -> Encoder | None:
    """The encoder of timm that a section names, where all that decides its weights is known."""
    name = c.get("architecture")
    encoder = TIMM.get(name) if isinstance(name, str) else None
    return encoder if encoder is not None and encoder.known(c) else None
