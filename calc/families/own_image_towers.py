"""Encoders for images that only one maker has, or one model.

Read off the classes of transformers 5.23, `modeling_*.py` of each model_type; names are the checkpoints'.
"""

from collections.abc import Iterator

from calc.families.encoder_towers import PROJECTOR, got_ocr2
from calc.families.encoders import SAM, SAM_AS_RELEASED, sam
from calc.families.family import Tower
from calc.families.fields import Fields
from calc.families.janus_tower import JANUS
from calc.families.tower_parts import numbers, patches, section, two
from calc.families.tower_shapes import each, images, norms, with_defaults
from calc.model.tensor import Shapes
from calc.model.towers.listed import TEXT, Layer, biased
from calc.model.towers.named_shapes import NamedShape, placed, weights, with_biases

OVIS = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 24,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 14,
    "qkv_bias": False,
    "mlp_bias": False,
    "vocab_size": 16384,
    "hidden_stride": 1,
    "num_visual_indicator_tokens": 5,
}


def ovis(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Ovis 2, arXiv:2405.20797: a patch is a mix of words of a visual vocabulary, which has a table of its own."""
    d, p, words, path = (
        c.size("hidden_size"),
        c.size("patch_size"),
        c.size("vocab_size"),
        "model.vision_tower.transformer",
    )
    layer = Layer(
        qkv=("attention.q_proj", "attention.k_proj", "attention.v_proj"),
        out="attention.out_proj",
        mlp=("ffn.gate_proj", "ffn.up_proj", "ffn.down_proj"),
        norms=("rms_norm1", "rms_norm2"),
        qkv_bias=c.flag("qkv_bias"),
        out_bias=c.flag("qkv_bias"),
        mlp_bias=c.flag("mlp_bias"),
        norm_bias=False,
    ).shapes(d, c.size("intermediate_size"))
    yield from placed(f"{path}.embeddings", with_biases({"patch_embedding": (d, c.size("num_channels"), p, p)}))
    yield from placed(f"{path}.embeddings", weights({"position_embedding": (patches(c), d), "rms_norm": (d,)}))
    yield from placed(f"{path}.encoder.layers.{{layer}}", layer, c.size("num_hidden_layers"))
    yield f"{path}.rms_norm.weight", (d,), 1
    seen = words - c.size("num_visual_indicator_tokens")
    head = weights({"head_linear": (seen, d * c.size("hidden_stride") ** 2)}) | with_biases({"head_norm": (seen,)})
    yield from placed("model.vision_tower", head)
    yield "model.visual_embeddings_table.weight", (words, whole.maybe("hidden_size") or 1536), 1


QIANFAN = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_channels": 3,
    "image_size": [448, 448],
    "patch_size": [14, 14],
    "attention_bias": True,
    "use_qk_norm": False,
    "norm_type": "layer_norm",
    "use_mask_token": False,
    "use_absolute_position_embeddings": True,
    "use_mean_pooling": True,
}
INTERN_6B = {
    "hidden_size": 3200,
    "intermediate_size": 12800,
    "num_hidden_layers": 48,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 14,
    "qkv_bias": False,
    "qk_normalization": True,
    "norm_type": "rms_norm",
    "use_absolute_position_embeddings": True,
    "use_mean_pooling": True,
}


def qianfan(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    yield from intern(c, whole, bias="attention_bias", qk_norm="use_qk_norm", attention="attention")


def internvl_chat(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """InternVL as it was first published, with code of its own next to the checkpoint (`modeling_intern_vit.py`)."""
    yield from intern(c, whole, bias="qkv_bias", qk_norm="qk_normalization", attention="attn")


def intern(c: Fields, whole: Fields, *, bias: str, qk_norm: str, attention: str) -> Iterator[NamedShape]:
    """InternViT, arXiv:2312.14238, under its first names; `attention` is the module that norms of heads lie in."""
    (height, width), (tall, wide) = two(c, "image_size"), two(c, "patch_size")
    d, layers, path = c.size("hidden_size"), c.size("num_hidden_layers"), "vision_model"
    layer = Layer(
        qkv=("attn.qkv",),
        out="attn.proj",
        norms=("norm1", "norm2"),
        scales=("ls1", "ls2"),
        qkv_bias=c.flag(bias),
        norm_bias=c.get("norm_type") == "layer_norm",
    ).shapes(d, c.size("intermediate_size"))
    yield from placed(f"{path}.embeddings", with_biases({"patch_embedding": (d, c.size("num_channels"), tall, wide)}))
    yield f"{path}.embeddings.class_embedding", (1, 1, d), 1
    if c.flag("use_mask_token"):
        yield f"{path}.embeddings.mask_token", (1, 1, d), 1
    if c.flag("use_absolute_position_embeddings"):
        yield f"{path}.embeddings.position_embedding", (1, (height // tall) * (width // wide) + 1, d), 1
    yield from placed(f"{path}.encoder.layers.{{layer}}", layer, layers)
    if c.flag(qk_norm):
        heads = weights(norms(d, f"{attention}.q_norm", f"{attention}.k_norm"))
        yield from placed(f"{path}.encoder.layers.{{layer}}", heads, layers)
    if not c.flag("use_mean_pooling"):
        yield from placed(path, with_biases({"layernorm": (d,)}))
    merged = d * int(1 / whole.real("downsample_ratio")) ** 2
    yield from placed("mlp1", with_biases({"0": (merged,), "1": (TEXT, merged), "3": (TEXT, TEXT)}))


STEP = {
    "hidden_size": 1536,
    "num_hidden_layers": 47,
    "num_channels": 3,
    "image_size": 728,
    "patch_size": 14,
    "mlp_ratio": 8960 / 1536,
}
STEP_LAYER = Layer(
    qkv=("attn.in_proj",),
    out="attn.out_proj",
    mlp=("mlp.c_fc", "mlp.c_proj"),
    norms=("ln_1", "ln_2"),
    scales=("ls_1.gamma", "ls_2.gamma"),
)


def step(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Step-3.7: a Perception Encoder, arXiv:2504.13181, whose patches two convolutions merge."""
    firsts = {"hidden_size": "width", "num_hidden_layers": "layers"}  # names that go before
    c = c.with_all_stated({name: c.get(first) for name, first in firsts.items() if c.states(first)})
    d, p, path = c.size("hidden_size"), c.size("patch_size"), "vision_model"
    yield f"{path}.conv1.weight", (d, c.size("num_channels"), p, p), 1
    yield f"{path}.positional_embedding", (patches(c), d), 1
    yield from placed(path, with_biases({"ln_pre": (d,)}))
    layer = STEP_LAYER.shapes(d, int(d * c.real("mlp_ratio")))
    layer = {name.replace("in_proj.", "in_proj_"): shape for name, shape in layer.items()}
    yield from placed(f"{path}.transformer.resblocks.{{layer}}", layer, c.size("num_hidden_layers"))
    merge: Shapes = {"vit_downsampler1": (2 * d, d, 3, 3), "vit_downsampler2": (4 * d, 2 * d, 3, 3)}
    yield from placed(path, with_biases(merge))
    projector = biased(whole.flag("projector_bias"), {"vit_large_projector": (TEXT, 4 * d)})
    yield from ((name, shape, 1) for name, shape in projector.items())


INKLING2 = {
    "hidden_size": 1024,
    "intermediate_size": None,
    "num_hidden_layers": 23,
    "num_channels": 3,
    "patch_size": 20,
    "mlp_ratio": 4.0,
    "spatial_merge_size": 2,
    "posemb_grid_size": 32,
    "projection_hidden_dim": 4096,
    "projector_bias": False,
}
INKLING2_LAYER = Layer(mlp=("mlp.c_fc", "mlp.c_proj"), norms=("ln_1", "ln_2"), scales=("ls_1.gamma", "ls_2.gamma"))


def inkling2(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    d, path = c.size("hidden_size"), "model.visual.backbone"
    f = c.maybe("intermediate_size") or int(d * c.real("mlp_ratio"))
    yield f"{path}.embeddings.class_embedding", (d,), 1
    yield f"{path}.embeddings.cls_position_embedding", (d,), 1
    yield f"{path}.embeddings.position_embedding", (c.size("posemb_grid_size") ** 2, d), 1
    yield f"{path}.embeddings.patch_embedding.weight", (d, c.size("num_channels") * c.size("patch_size") ** 2), 1
    yield from placed(path, with_biases({"ln_pre": (d,)}))
    yield from placed(f"{path}.layers.{{layer}}", INKLING2_LAYER.shapes(d, f), c.size("num_hidden_layers"))
    wide = c.size("projection_hidden_dim")
    matrices: Shapes = {"proj_in": (wide, d * c.size("spatial_merge_size") ** 2), "proj_out": (TEXT, wide)}
    yield from placed("model.visual", biased(c.flag("projector_bias"), matrices))


LFM3 = {
    "hidden_size": 1024,
    "intermediate_size": 2560,
    "in_channels": 3,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "num_hidden_layers": 14,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "layer_types": None,
    "conv_kernel_size": 3,
}


def lfm3(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """LFM3-VL: layers of convolutions over the patches, and some of attention."""
    d, f, n, path = (
        c.size("hidden_size"),
        c.size("intermediate_size"),
        c.size("num_hidden_layers"),
        "model.vision_tower",
    )
    d_head, kernel = d // c.size("num_attention_heads"), c.size("conv_kernel_size")
    q, kv = c.size("num_attention_heads") * d_head, c.size("num_key_value_heads") * d_head
    conv: Shapes = {"conv.in_proj": (3 * d, d), "conv.out_proj": (d, d), "conv.spatial_conv": (d, 1, kernel, kernel)}
    attention = each("self_attn.{}_proj", (kv, d), "kv") | {"self_attn.q_proj": (q, d), "self_attn.out_proj": (d, q)}
    attention |= norms(d_head, "self_attn.q_layernorm", "self_attn.k_layernorm")
    every: Shapes = {"feed_forward.w1": (f, d), "feed_forward.w2": (d, f), "feed_forward.w3": (f, d)}
    every |= norms(d, "ffn_norm", "operator_norm")
    kinds = c.per_layer("layer_types", n, ("conv", "full_attention"))
    for i in range(n):
        convolves = kinds[i] == "conv" if kinds else i < 2 or bool(i % 2)
        yield from placed(f"{path}.layers.{i}", weights(every | (conv if convolves else attention)))
    patch = c.size("in_channels") * c.size("temporal_patch_size") * c.size("patch_size") ** 2
    yield from placed(path, weights({"patchifier": (d, patch), "embedding_norm": (d,)}))
    outer = with_defaults(whole, {"projector_hidden_size": 4096, "projector_bias": True})
    wide = outer.size("projector_hidden_size")
    matrices: Shapes = {"linear_1": (wide, d * c.size("spatial_merge_size") ** 2), "linear_2": (TEXT, wide)}
    projector = biased(outer.flag("projector_bias"), matrices) | with_biases({"layer_norm": (d,)})
    yield from placed(f"model.{PROJECTOR}", projector)


MUSE = {
    "patch_size": 14,
    "pos_emb_height": 32,
    "pos_emb_width": 32,
    "num_hidden_layers": 50,
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "patch_temporal": 2,
}
MUSE_SOUND = {
    "patch_sizes": [16, 6, 5, 4],
    "hidden_sizes": [256, 512, 1024, 2048],
    "depths": [2, 2, 2, 2],
    "num_hidden_layers": 4,
    "mlp_ratio": 4.0,
    "conv_kernel_size": 7,
    "out_hidden_size": 8192,
}
MUSE_LAYER = Layer(qkv=("attn.q_proj", "attn.k_proj", "attn.v_proj"), out="attn.proj", norms=("norm1", "norm2"))


def muse(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Muse Glimmer: two frames in a patch, an adapter and a matrix."""
    d, path = c.size("hidden_size"), "model.vision_tower"
    tables: Shapes = {"patch_embedding": (d, c.size("patch_temporal") * 3 * c.size("patch_size") ** 2)}
    tables |= {"position_embedding_table": (c.size("pos_emb_height") * c.size("pos_emb_width"), d)}
    yield from placed(f"{path}.patch_embedder", weights(tables))
    yield from placed(path, with_biases(norms(d, "ln_pre", "ln_post")))
    layer = MUSE_LAYER.shapes(d, c.size("intermediate_size"))
    yield from placed(f"{path}.layers.{{layer}}", layer, c.size("num_hidden_layers"))
    outer = with_defaults(whole, {"out_hidden_size": 6144, "projector_hidden_size": 4096})
    merged, wide = outer.size("out_hidden_size"), outer.size("projector_hidden_size")
    matrices: Shapes = {"vision_adapter.fc1": (wide, merged), "vision_adapter.fc2": (wide, wide)}
    yield from placed("model", weights({**matrices, "vision_projection": (TEXT, wide)}))


def muse_spark(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Muse Spark: the same for images; for sound stages of convolutions, each over fewer and wider frames."""
    yield from muse(c, whole)
    a, path = section(whole, "audio_config", MUSE_SOUND), "model.audio_tower"
    frames, widths, depths = numbers(a, "patch_sizes"), numbers(a, "hidden_sizes"), numbers(a, "depths")
    kernel, out, seen = a.size("conv_kernel_size"), a.size("out_hidden_size"), 1
    stages = list(zip(frames, widths, depths, strict=False))[: a.size("num_hidden_layers")]
    for i, (patch, d, depth) in enumerate(stages):
        front: Shapes = {"proj": (d, seen * patch)}
        yield from placed(f"{path}.layers.{i}.patch_embedder", with_biases(front) | weights({"norm": (d,)}))
        wide = int(d * a.real("mlp_ratio"))
        block: Shapes = {"conv": (d, 1, kernel), "mlp.fc1": (wide, d), "mlp.fc2": (d, wide)}
        layer = with_biases(block) | weights({"norm": (d,)})
        yield from placed(f"{path}.layers.{i}.conv_blocks.{{layer}}", layer, depth)
        seen = d
    last = widths[-1]
    yield from placed(path, with_biases({"proj": (out, last)}) | weights({"norm": (last,), "post_proj_norm": (out,)}))


FUSED_LAYER = Layer(qkv=("self_attn.qkv_proj",))
CLIP_L = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "image_size": 224, "patch_size": 14}


def unlimited_ocr(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """DeepSeek-OCR's, arXiv:2510.18234: SAM's encoder, whose patches CLIP's layers take over."""
    fine = section(c, "sam_config", {**SAM, "mlp_dim": 3072, "downsample_channels": [512, 1024]})
    yield from sam(fine, "model.sam_model", SAM_AS_RELEASED)
    first, second = two(fine, "downsample_channels")
    merge: Shapes = {"net_2": (first, fine.size("output_channels"), 3, 3), "net_3": (second, first, 3, 3)}
    yield from placed("model.sam_model", weights(merge))
    e, path = section(c, "encoder_config", CLIP_L), "model.vision_model"
    d = e.size("hidden_size")
    yield f"{path}.embeddings.class_embedding", (d,), 1
    yield f"{path}.embeddings.position_embedding.weight", (patches(e) + 1, d), 1
    yield from placed(path, with_biases({"pre_layrnorm": (d,)}))
    layer = FUSED_LAYER.shapes(d, e.size("intermediate_size"))
    yield from placed(f"{path}.transformer.layers.{{layer}}", layer, e.size("num_hidden_layers"))
    yield from placed("model.projector", with_biases({"layers": (TEXT, d + second)}))
    yield "model.image_newline", (TEXT,), 1
    yield "model.view_seperator", (TEXT,), 1


OWN_IMAGES: dict[str, Tower] = {
    "inkling2": images(inkling2, INKLING2),
    "internvl_chat": images(internvl_chat, INTERN_6B),
    "janus": JANUS,
    "lfm3_vl": images(lfm3, LFM3),
    "muse_glimmer": images(muse, MUSE),
    "muse_spark": images(muse_spark, MUSE, "audio_config"),
    "ovis2": images(ovis, OVIS),
    "pp_chart2table": Tower(got_ocr2, {**SAM, "mlp_dim": 3072}),
    "qianfan_ocr": images(qianfan, QIANFAN),
    "step3p7": images(step, STEP),
    "unlimited_ocr": images(unlimited_ocr, {}),
}
"""model_type of a wrapper -> its tower."""
