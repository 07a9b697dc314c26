"""Encoders for images whose layers are a stack of one kind, and what leads from them into a language model.

Read off the classes of transformers 5.23, `modeling_*.py` of each model_type; names are the checkpoints'.
"""

from collections.abc import Iterator

from calc.families import tower_defaults as defaults
from calc.families.encoder_towers import PROJECTOR, encoded, gemma3, layers_seen, llava, llava_next_video
from calc.families.encoders import CLIP_LAYER, clip, encoder_of, pixtral, siglip
from calc.families.family import Tower
from calc.families.fields import Fields
from calc.families.image_encoders import eva
from calc.families.phi_towers import PHI4
from calc.families.qformer import QFORMER, qformer
from calc.families.tower_parts import listed, section, two
from calc.families.tower_readers import QWEN3
from calc.families.tower_shapes import each, images, norms, with_defaults
from calc.model.tensor import Shapes
from calc.model.towers.listed import TEXT, Layer, ListedTower, biased
from calc.model.towers.named_shapes import NamedShape, placed, weights, with_biases

# LLaVA's line


def vipllava(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """ViP-LLaVA, arXiv:2312.00784: what five layers of the encoder put out, behind a norm."""
    field = "vision_feature_layers" if whole.states("vision_feature_layers") else "vision_feature_layer"
    layers = with_defaults(whole, {field: [-2, -5, -8, -11, 6]}).get(field)
    seen = c.size("hidden_size") * (len(layers) if isinstance(layers, list) else 1)
    matrices: Shapes = {"linear_1": (TEXT, seen), "linear_2": (TEXT, TEXT), "projector_layernorm": (seen,)}
    yield from placed(PROJECTOR, with_biases(matrices))


def video_llava(c: Fields, whole: Fields) -> ListedTower | None:
    """Video-LLaVA, arXiv:2311.10122: one encoder for images, one for videos."""
    known = encoder_of(c, "clip_vision_model", alone=False)
    if known is None:
        return None
    c, encoder = known
    inner = f".{encoder.level}" if encoder.level else ""
    towers = (encoder.read(c, f"{kind}_tower{inner}") for kind in ("image", "video"))
    return listed(c, *towers, llava(c, whole))


# Pixtral


def lighton_ocr(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    d, merge = c.size("hidden_size"), whole.maybe("spatial_merge_size") or 2
    matrices: Shapes = {"norm": (d,), "patch_merger.merging_layer": (d, d * merge**2)}
    yield from pixtral(c, "model.vision_encoder")
    yield from placed("model.vision_projection", weights(matrices | {"linear_1": (TEXT, d), "linear_2": (TEXT, TEXT)}))


LARGE_LAYER = Layer(
    qkv=("attention.wq", "attention.wk", "attention.wv"),
    out="attention.wo",
    mlp=("feed_forward.w1", "feed_forward.w3", "feed_forward.w2"),
    norms=("attention_norm", "ffn_norm"),
    qkv_bias=False,
    out_bias=False,
    mlp_bias=False,
    norm_bias=False,
)


def mistral_large4(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Pixtral under Mistral's own names."""
    d, f, p, path = c.size("hidden_size"), c.size("intermediate_size"), c.size("patch_size"), "vision_encoder"
    merge = whole.maybe("spatial_merge_size") or 2
    yield from placed(path, weights({"patch_conv": (d, c.size("num_channels"), p, p), "ln_pre": (d,)}))
    yield from placed(f"{path}.transformer.layers.{{layer}}", LARGE_LAYER.shapes(d, f), c.size("num_hidden_layers"))
    yield "pre_mm_projector_norm.weight", (d,), 1
    yield "patch_merger.merging_layer.weight", (d, d * merge**2), 1
    matrices: Shapes = {"w_in": (TEXT, d * layers_seen(whole)), "w_out": (TEXT, TEXT)}
    yield from placed("vision_language_adapter", biased(whole.flag("multimodal_projector_bias"), matrices))


# SigLIP


MINICPM = defaults.IDEFICS2 | {"patch_size": 16, "window_kernel_size": [2, 2]}


def minicpm(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """MiniCPM-V: a merger of windows within the encoder, and one behind it."""
    d, f, path = c.size("hidden_size"), c.size("intermediate_size"), "model.vision_tower"
    height, width = two(c, "window_kernel_size")
    window = height * width
    yield from siglip(c, path)
    attention = each("self_attn.{}_proj", (d, d), "qkv") | {"self_attn.out_proj": (d, d)} | norms(d, "layer_norm1")
    merger: Shapes = {"pre_norm": (d * window,), "linear_1": (f * window, d * window), "linear_2": (d, f * window)}
    yield from placed(f"{path}.vit_merger", with_biases(attention | merger))
    times, wide = whole.maybe("merger_times") or 1, 4 * d
    for i in range(times):
        modules: Shapes = {"pre_norm": (wide,), "linear_1": (wide, wide)}
        modules |= {"linear_2": (TEXT if i == times - 1 else d, wide)}
        yield from placed(f"model.merger.mlp.{i}", with_biases(modules))


PADDLE = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_channels": 3,
    "image_size": 384,
    "patch_size": 14,
    "spatial_merge_size": 2,
}


def paddleocr(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """PaddleOCR-VL, arXiv:2510.14528."""
    d = c.size("hidden_size")
    merged = d * c.size("spatial_merge_size") ** 2
    yield from siglip(c, "visual.vision_model")
    matrices: Shapes = {"pre_norm": (d,), "linear_1": (merged, merged), "linear_2": (TEXT, merged)}
    yield from placed("mlp_AR", with_biases(matrices))


VIDEO_LLAMA = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_channels": 3,
    "patch_size": 16,
}


def video_llama(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """VideoLLaMA 3, arXiv:2501.13106: SigLIP with rotary positions."""
    d, p, path = c.size("hidden_size"), c.size("patch_size"), "model.vision_model"
    patch: Shapes = {"embeddings.patch_embedding": (d, c.size("num_channels"), p, p), "post_layernorm": (d,)}
    yield from placed(path, with_biases(patch))
    layer = CLIP_LAYER.shapes(d, c.size("intermediate_size"))
    yield from placed(f"{path}.encoder.layers.{{layer}}", layer, c.size("num_hidden_layers"))
    yield from placed("model.projector.readout", with_biases({"0": (TEXT, d), "2": (TEXT, TEXT)}))


MOLMO = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 25,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 72,
    "patch_size": 14,
    "num_position_embeddings": 729,
    "num_channels": 3,
    "attention_bias": True,
}
MOLMO_ADAPTER = {
    "vision_feature_layer": [24, 18],
    "hidden_size": 1152,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 72,
    "attention_bias": True,
    "intermediate_size": 18944,
    "text_hidden_size": 3584,
    "mlp_bias": False,
}


def molmo(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Molmo 2: attention pools what two layers of the encoder put out."""
    d, f, path = c.size("hidden_size"), c.size("intermediate_size"), "model.vision_backbone"
    vit = f"{path}.image_vit"
    yield f"{vit}.positional_embedding", (c.size("num_position_embeddings"), d), 1
    yield from placed(vit, with_biases({"patch_embedding": (d, c.size("patch_size") ** 2 * c.size("num_channels"))}))
    attention = {f"attention.{name}": shape for name, shape in molmo_attention(c, d).items()}
    rest: Shapes = {"feed_forward.w1": (f, d), "feed_forward.w2": (d, f)} | norms(d, "attention_norm", "ffn_norm")
    layer = biased(c.flag("attention_bias"), attention) | with_biases(rest)
    yield from placed(f"{vit}.transformer.resblocks.{{layer}}", layer, c.size("num_hidden_layers"))
    a = section(whole, "adapter_config", MOLMO_ADAPTER)
    h, wide, layers = a.size("hidden_size"), a.size("intermediate_size"), a.get("vision_feature_layer")
    pooled = molmo_attention(a, h * (len(layers) if isinstance(layers, list) else 1))
    yield from placed(f"{path}.image_pooling_2d", biased(a.flag("attention_bias"), pooled))
    inner = biased(a.flag("mlp_bias"), {"w1": (wide, h), "w3": (wide, h)})
    yield from placed(f"{path}.image_projector", inner | weights({"w2": (a.size("text_hidden_size"), wide)}))


def molmo_attention(c: Fields, seen: int) -> Shapes:
    d_head = c.size("head_dim")
    q, kv = c.size("num_attention_heads") * d_head, c.size("num_key_value_heads") * d_head
    return {"wq": (q, seen), "wk": (kv, seen), "wv": (kv, seen), "wo": (c.size("hidden_size"), q)}


# CLIP's and BLIP's


KOSMOS = defaults.CLIP | {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "patch_size": 14}


def kosmos(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Kosmos-2, arXiv:2306.14824."""
    yield from clip(c, "vision_model.model")
    yield from latent_queries(c.size("hidden_size"), whole.maybe("latent_query_num") or 64)


KOSMOS_2_5 = {
    "hidden_size": 1536,
    "patch_embed_hidden_size": 768,
    "intermediate_size": 3968,
    "head_dim": 64,
    "num_hidden_layers": 18,
    "num_attention_heads": 24,
    "max_num_patches": 4096,
}
PIX2STRUCT_LAYER = Layer(
    qkv=("attention.query", "attention.key", "attention.value"),
    out="attention.output",
    mlp=("mlp.wi_0", "mlp.wi_1", "mlp.wo"),
    norms=("pre_mlp_layer_norm", "pre_attention_layer_norm"),
    qkv_bias=False,
    out_bias=False,
    mlp_bias=False,
    norm_bias=False,
)


def kosmos_2_5(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Kosmos-2.5, arXiv:2309.11419: Pix2Struct's encoder, arXiv:2210.03347, with positions by row and column."""
    d, rows, path = c.size("hidden_size"), c.size("max_num_patches"), "vision_model"
    front: Shapes = {"patch_projection": (d, c.size("patch_embed_hidden_size"))}
    yield from placed(f"{path}.embeddings", with_biases(front))
    yield from placed(f"{path}.embeddings", weights({"row_embedder": (rows, d), "column_embedder": (rows, d)}))
    inner = c.size("num_attention_heads") * c.size("head_dim")
    layer = PIX2STRUCT_LAYER.shapes(d, c.size("intermediate_size"), q=inner)
    yield from placed(f"{path}.encoder.layer.{{layer}}", layer, c.size("num_hidden_layers"))
    yield f"{path}.layernorm.weight", (d,), 1
    yield from latent_queries(d, whole.maybe("latent_query_num") or 2048)


def latent_queries(hidden: int, queries: int) -> Iterator[NamedShape]:
    """Learned queries that attend to the patches."""
    path = "image_to_text_projection"
    attention = each("x_attn.{}_proj", (TEXT, TEXT), "qkv") | {"x_attn.out_proj": (TEXT, TEXT)}
    yield f"{path}.latent_query", (queries, TEXT), 1
    yield from placed(path, with_biases({"dense": (TEXT, hidden), **attention}))


INSTRUCT_BLIP = {
    "hidden_size": 1408,
    "intermediate_size": 6144,
    "num_hidden_layers": 39,
    "image_size": 224,
    "patch_size": 14,
    "qkv_bias": True,
}
READING = QFORMER | {"vocab_size": 30522, "max_position_embeddings": 512}


def instruct_blip(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """InstructBLIP, arXiv:2305.06500: a Q-Former that reads the instruction too, with tables of its own."""
    yield from eva(c, "vision_model")
    q = section(whole, "qformer_config", READING).with_all_stated(
        {"use_qformer_text_input": True, "encoder_hidden_size": c.size("hidden_size")}  # which the class sets
    )
    h = q.size("hidden_size")
    tables: Shapes = {"word_embeddings": (q.size("vocab_size"), h)}
    tables |= {"position_embeddings": (q.size("max_position_embeddings"), h)}
    yield from placed("qformer.embeddings", weights(tables) | with_biases({"layernorm": (h,)}))
    yield from (row for row in qformer(q, "qformer") if not row[0].startswith("qformer.layernorm."))
    yield "query_tokens", (1, whole.maybe("num_query_tokens") or 32, h), 1
    yield from placed("language_projection", {"weight": (TEXT, h), "bias": (TEXT,)})


IDEFICS = defaults.CLIP | {"hidden_size": 768, "intermediate_size": 5120, "num_hidden_layers": 32, "patch_size": 14}
RESAMPLER = {
    "resampler_n_latents": 64,
    "resampler_depth": 6,
    "resampler_n_heads": 16,
    "resampler_head_dim": 96,
    "qk_layer_norms_perceiver": False,
}


def idefics(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """IDEFICS, arXiv:2306.16527: CLIP, and where `use_resampler` says so learned latents that attend to the patches."""
    c = Fields(c.stated, IDEFICS, {"embed_dim": "hidden_size"})
    yield from clip(c, "model.vision_model")
    if not whole.flag("use_resampler"):
        return
    r, d, path = section(whole, "perceiver_config", RESAMPLER), c.size("hidden_size"), "model.perceiver_resampler"
    d_head = r.size("resampler_head_dim")
    inner = r.size("resampler_n_heads") * d_head
    attention = weights(each("0.{}_proj", (inner, d)) | {"0.output_proj": (d, inner)})
    attention |= with_biases(norms(d, "0.context_layer_norm", "0.latents_layer_norm", "1.ln"))
    if r.flag("qk_layer_norms_perceiver"):
        attention |= with_biases(norms(d_head, "0.q_layer_norm", "0.k_layer_norm"))
    layer = attention | weights({"1.fc": (4 * d, d), "1.c_proj": (d, 4 * d)})
    yield f"{path}.latents", (r.size("resampler_n_latents"), d), 1
    yield from placed(path, with_biases({"layer_norm": (d,)}))
    yield from placed(f"{path}.blocks.{{layer}}", layer, r.size("resampler_depth"))


def shieldgemma(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """ShieldGemma 2, arXiv:2504.01081: a Gemma 3 within."""
    inner = (*siglip(c, "vision_tower.vision_model"), *gemma3(c, whole))
    yield from ((f"model.{name}", shape, copies) for name, shape, copies in inner)


IMAGES = {
    "idefics": images(idefics, IDEFICS),
    "instructblip": images(instruct_blip, INSTRUCT_BLIP),
    "instructblipvideo": images(instruct_blip, INSTRUCT_BLIP),
    "kosmos-2": images(kosmos, KOSMOS),
    "kosmos-2.5": images(kosmos_2_5, KOSMOS_2_5),
    "lighton_ocr": images(lighton_ocr, defaults.PIXTRAL | {"patch_size": 16}),
    "llava_next_video": Tower(encoded("clip_vision_model", llava_next_video)),
    "minicpm_ocr": images(minicpm, MINICPM),
    "minicpmv4_6": images(minicpm, MINICPM),
    "minicpmv4_7": images(minicpm, MINICPM),
    "mistral_large4": images(mistral_large4, defaults.PIXTRAL),
    "molmo2": images(molmo, MOLMO),
    "paddleocr_vl": images(paddleocr, PADDLE),
    "phi4_multimodal": PHI4,
    "qwen4_exp": QWEN3,
    "shieldgemma2": images(shieldgemma, defaults.SIGLIP),
    "video_llama_3": images(video_llama, VIDEO_LLAMA),
    "video_llava": Tower(video_llava),
    "vipllava": Tower(encoded("clip_vision_model", vipllava)),
}
"""model_type -> its tower."""
