"""Encoders for images that one model has, with its way into the language model."""

from collections.abc import Iterator
from typing import Any

from calc.families.encoders import CLIP_LAYER, SAM, SAM_AS_RELEASED, glm, glm_normed, layers, moonvit, sam, siglip
from calc.families.fields import Fields
from calc.families.qformer import QFORMER, qformer
from calc.families.tower_parts import count, listed, not_counted, patches, section, two
from calc.model.tensor import Shapes
from calc.model.towers.listed import TEXT, Layer, ListedTower
from calc.model.towers.named_shapes import NamedShape, placed, weights, with_biases

FUSED_LAYER = Layer(qkv=("attn.qkv",), out="attn.proj", norms=("norm1", "norm2"))
QWEN2_LAYER = Layer(
    qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    out="self_attn.o_proj",
    mlp=("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    norms=("input_layernorm", "post_attention_layernorm"),
    out_bias=False,
    mlp_bias=False,
    norm_bias=False,
)
BLIP2 = {"hidden_size": 1408, "intermediate_size": 6144, "num_hidden_layers": 39, "image_size": 224, "patch_size": 14}
BLIP2 |= {"qkv_bias": True}
COSMOS3_EDGE = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_channels": 3}
COSMOS3_EDGE |= {"patch_size": 16, "num_patches": 256, "spatial_merge_size": 2}
ERNIE = {"depth": 32, "hidden_size": 1280, "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2}
ERNIE |= {"intermediate_size": 5120, "temporal_merge_size": 2}
FUYU = {"patch_size": 30, "num_channels": 3}
GLM_OCR = {"depth": 24, "hidden_size": 1024, "attention_bias": True, "num_heads": 16, "in_channels": 3}
GLM_OCR |= {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 1536}
GLM_OCR |= {"intermediate_size": 4096}
GLM5 = GLM_OCR | {"projection_intermediate_size": 10240}
GRANITE_DOCLING: dict[str, Any] = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_channels": 3,
}
GRANITE_DOCLING |= {"image_size": 512, "patch_size": 16, "out_hidden_size": 1024, "scale_factor": 4}
GRANITE_DOCLING |= {"deepstack_visual_indexes": [3, 7, 10], "use_fine_route": True}
HUNYUAN = {"hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16, "num_channels": 3}
HUNYUAN |= {"num_hidden_layers": 27, "patch_size": 16, "spatial_merge_size": 2, "max_image_size": 2048}
OCR2_ENCODER = {"hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32}
OCR2_SAM = {**SAM, "downsample_channels": [512, 896]}
"""Defaults of fields that a config leaves out (transformers 5.23 `configuration_*.py`)."""


def blip2(c: Fields, whole: Fields) -> ListedTower:
    """BLIP-2, arXiv:2301.12597: an EVA-CLIP encoder and a Q-Former (transformers `modeling_blip_2.py`)."""
    former = section(whole, "qformer_config", QFORMER).with_stated("encoder_hidden_size", c.size("hidden_size"))
    d = former.size("hidden_size")
    return listed(
        c,
        eva(c, "vision_model"),
        [("query_tokens", (1, whole.maybe("num_query_tokens") or 32, d), 1)],
        qformer(former, "qformer"),
        placed("language_projection", {"weight": (TEXT, d), "bias": (TEXT,)}),
    )


def eva(c: Fields, path: str) -> Iterator[NamedShape]:
    """EVA-CLIP, arXiv:2303.15389, of the BLIP models."""
    d, p = c.size("hidden_size"), c.size("patch_size")
    layer = Layer(qkv=("self_attn.qkv",), out="self_attn.projection", qkv_bias=c.flag("qkv_bias"))
    yield f"{path}.embeddings.class_embedding", (1, 1, d), 1
    yield f"{path}.embeddings.position_embedding", (1, patches(c) + 1, d), 1
    yield from placed(f"{path}.embeddings", with_biases({"patch_embedding": (d, 3, p, p)}))
    yield from layers(c, f"{path}.encoder.layers.{{layer}}", layer)
    yield from placed(path, with_biases({"post_layernorm": (d,)}))


def cosmos3_edge(c: Fields, whole: Fields) -> ListedTower:
    """SigLIP 2 with Qwen3-VL's merger (transformers `modeling_cosmos3_edge.py`; names as checkpoints have them)."""
    d, middle = c.size("hidden_size"), whole.maybe("projector_hidden_size") or 11520
    merged, n = d * c.size("spatial_merge_size") ** 2, c.size("num_hidden_layers")
    layer = Layer(
        qkv=("self_attn.to_q", "self_attn.to_k", "self_attn.to_v"), mlp=("mlp.up_proj", "mlp.down_proj")
    ).shapes(d, c.size("intermediate_size"))
    patch: Shapes = {"embeddings.patch_embedding": (d, c.size("num_channels") * c.size("patch_size") ** 2)}
    merger: Shapes = {"norm": (d,), "linear_fc1": (middle, merged), "linear_fc2": (TEXT, middle)}
    return listed(
        c,
        placed("model.visual", with_biases({**patch, "post_layernorm": (d,)})),
        [("model.visual.embeddings.position_embedding.weight", (c.size("num_patches"), d), 1)],
        placed("model.visual.encoder.layers.{layer}", layer, n),
        placed("model.projector", with_biases(merger)),
    )


def ernie(c: Fields, whole: Fields) -> ListedTower:
    """ERNIE 4.5 VL: a resampler over space, then over time (transformers `modeling_ernie4_5_vl_moe.py`)."""
    d, n = c.size("hidden_size"), c.size("depth")
    merged = d * c.size("spatial_merge_size") ** 2
    patch = ("model.vision_model.patch_embed.proj.weight", (d, c.size("in_channels") * c.size("patch_size") ** 2), 1)
    resampler = "model.resampler_model"
    steps = (("spatial_linear", merged), ("temporal_linear", merged * c.size("temporal_merge_size")))
    mlps = {
        f"{name}.{part}": shape
        for name, wide in steps
        for part, shape in (("0", (merged, wide)), ("2", (merged, merged)), ("3", (merged,)))
    }
    return listed(
        c,
        [patch],
        placed("model.vision_model.blocks.{layer}", FUSED_LAYER.shapes(d, c.size("intermediate_size")), n),
        placed("model.vision_model", with_biases({"ln": (d,)})),
        placed(resampler, with_biases({**mlps, "mlp": (TEXT, merged)}) | weights({"after_norm": (TEXT,)})),
    )


def fuyu(c: Fields, whole: Fields) -> ListedTower:
    """Patches of an image as tokens, by one matrix (transformers `modeling_fuyu.py`)."""
    shape = (TEXT, c.size("num_channels") * c.size("patch_size") ** 2)
    return not_counted(placed("vision_embed_tokens", {"weight": shape, "bias": shape[:1]}))


def glm_ocr(c: Fields, whole: Fields) -> ListedTower:
    """GLM-OCR: a merger as wide as its output times the channels of an image (transformers `modeling_glm_ocr.py`)."""
    projected = c.size("out_hidden_size") * c.size("in_channels")
    return listed(c, glm(c, "model.visual", glm_normed(c), c.size("intermediate_size"), projected))


def glm5(c: Fields, whole: Fields) -> ListedTower:
    """GLM-OCR with a merger of its own width (transformers `modeling_glm5_next.py`)."""
    projected = c.size("projection_intermediate_size")
    return listed(c, glm(c, "model.visual", glm_normed(c), c.size("intermediate_size"), projected))


def granite_docling(c: Fields, whole: Fields) -> ListedTower:
    """SigLIP with a coarse and a fine connector, and mergers of single layers (transformers
    `modeling_granite_docling.py`)."""
    d, out, path = c.size("hidden_size"), c.size("out_hidden_size"), "model.vision_model"
    scale, indexes = c.size("scale_factor"), "deepstack_visual_indexes"
    deep = len(GRANITE_DOCLING[indexes]) if c.get(indexes) is None else count(c, indexes)
    outer = with_biases({"ln_in": (d,), "ln_mid": (out,), "ln_out": (out,)}) | weights({"mlp_fc2": (out, out)})
    routes = [("coarse", scale)] + ([("fine", scale // 2)] if c.flag("use_fine_route") else [])
    parts = [siglip(c, path), placed(f"{path}.connector", outer)]
    for route, side in routes:
        merged, at = d * side**2, f"{path}.connector.{route}"
        merger: Shapes = {"layer_norm": (merged,), "linear_1": (out, merged), "linear_2": (out, out)}
        parts.append(placed(at, weights({"projection": (out, merged)})))
        parts.append(placed(f"{at}.deepstack_mergers.{{layer}}", with_biases(merger), deep))
    if (f := whole.maybe("density_router_hidden_size")) is not None:
        router: Shapes = {"att": (1, d), "norm": (d,), "fc1": (f, d), "fc2": (1, f)}
        parts.append(placed("model.density_router", with_biases(router)))
    return listed(c, *parts)


def hunyuan(c: Fields, whole: Fields) -> ListedTower:
    """HunyuanOCR: positions of the largest image, convolutions that merge (transformers `modeling_hunyuan_vl.py`)."""
    d, p, merge = (c.size(x) for x in ("hidden_size", "patch_size", "spatial_merge_size"))
    q, path = (c.maybe("head_dim") or d // c.size("num_attention_heads")) * c.size("num_attention_heads"), "vit"
    layer = Layer(
        qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        out="self_attn.o_proj",
        mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        norms=("input_layernorm", "post_attention_layernorm"),
    ).shapes(d, c.size("intermediate_size"), q=q)
    patch: Shapes = {"embeddings.patch_embedding": (d, c.size("num_channels"), p, p)}
    merger: Shapes = {"proj.0": (2 * d, d, merge, merge), "proj.2": (4 * d, 2 * d, 1, 1), "mlp": (TEXT, 4 * d)}
    alone: Shapes = {"image_newline": (4 * d,), "image_begin": (TEXT,), "image_end": (TEXT,), "image_sep": (TEXT,)}
    return listed(
        c,
        placed(path, with_biases(patch)),
        [(f"{path}.embeddings.position_embedding.weight", ((c.size("max_image_size") // p) ** 2 + 1, d), 1)],
        placed(f"{path}.layers.{{layer}}", layer, c.size("num_hidden_layers")),
        placed(f"{path}.perceive", with_biases(merger) | alone),
        placed(f"{path}.perceive", weights({"before_rms": (d,), "after_rms": (TEXT,)})),
    )


def deepseek_ocr2(c: Fields, whole: Fields) -> ListedTower:
    """DeepSeek-OCR 2: SAM's encoder, and a Qwen2 that reads its output with learned queries (transformers
    `modeling_deepseek_ocr2.py`; names as checkpoints have them)."""
    fine, e = section(c, "sam_config", OCR2_SAM), section(c, "encoder_config", OCR2_ENCODER)
    d, heads, out = e.size("hidden_size"), e.size("num_attention_heads"), fine.size("output_channels")
    kv = (e.maybe("num_key_value_heads") or heads) * (d // heads)
    first, second = two(fine, "downsample_channels")
    convolutions: Shapes = {"net_2": (first, out, 3, 3), "net_3": (second, first, 3, 3)}
    inner, layer = "model.qwen2_model", QWEN2_LAYER.shapes(d, e.size("intermediate_size"), kv=kv)
    return listed(
        c,
        sam(fine, "model.sam_model", SAM_AS_RELEASED),
        placed("model.sam_model", weights(convolutions)),
        placed(f"{inner}.model.model.layers.{{layer}}", layer, e.size("num_hidden_layers")),
        placed(inner, weights({"model.model.norm": (d,), "query_768": (144, d), "query_1024": (256, d)})),
        placed("model.projector.layers", {"weight": (TEXT, d), "bias": (TEXT,)}),
        [("model.view_seperator", (TEXT,), 1)],
    )


def minimax(c: Fields, whole: Fields) -> ListedTower:
    """MiniMax-M3: CLIP's layers over patches of several frames, and two projectors (transformers
    `modeling_minimax_m3_vl.py`)."""
    merging, path = c.within(c.get("img_token_compression_config")), "vision_tower.vision_model"
    d, p = c.size("hidden_size"), c.size("patch_size")
    frames = merging.maybe("temporal_patch_size") or c.size("temporal_patch_size")
    merge = merging.maybe("spatial_merge_size") or c.size("spatial_merge_size")
    wide = whole.maybe("projector_hidden_size") or 6144
    projectors = (("multi_modal_projector", d), ("patch_merge_mlp", TEXT * merge**2))
    return listed(
        c,
        [(f"{path}.embeddings.patch_embedding.weight", (d, c.size("num_channels"), frames, p, p), 1)],
        placed(path, with_biases({"pre_layrnorm": (d,)})),
        layers(c, f"{path}.encoder.layers.{{layer}}", CLIP_LAYER),
        *(placed(at, with_biases({"linear_1": (wide, given), "linear_2": (TEXT, wide)})) for at, given in projectors),
    )


def kimi_k25(c: Fields, whole: Fields) -> ListedTower:
    """Kimi K2.5: MoonViT and two matrices (transformers `modeling_kimi_k25.py`)."""
    height, width = two(c, "merge_kernel_size")
    merged = c.size("hidden_size") * height * width
    normed = whole.maybe("projection_hidden_size") or c.maybe("mm_hidden_size") or 1152
    projector: Shapes = {"pre_norm": (normed,), "proj.0": (merged, merged), "proj.2": (TEXT, merged)}
    return listed(c, moonvit(c, bias=True), placed("mm_projector", with_biases(projector)))
