"""Encoders for images, by the model_type of their wrapper, and what leads from them into a language model.

Read off the classes of transformers 5.23, `modeling_*.py` of each model_type; names are the checkpoints'.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from calc.errors import ConfigError, Message, shown
from calc.families.encoders import (
    CLIP_LAYER,
    INTERN_AS_RELEASED,
    SAM_AS_RELEASED,
    Encoder,
    clip,
    encoder_of,
    eva,
    glm_normed,
    intern,
    moonvit,
    pixtral,
    qformer,
    qwen2_5,
    sam,
    sam_neck,
    siglip,
    siglip_layers,
)
from calc.families.fields import Fields
from calc.families.tower_parts import (
    FUSED,
    GATED,
    PROJECTOR,
    Layer,
    Lister,
    Tower,
    by_sections,
    count,
    each,
    flat_patch,
    head_widths,
    height_and_width,
    images,
    layers,
    listed,
    merged_width,
    norms,
    numbers,
    patch,
    patches,
    placed,
    renamed,
    section,
    two_matrices,
)
from calc.model.tensor import Shapes, biased, weights, with_biases
from calc.model.vision import TEXT, ListedTower, NamedShape


def encoded(usual: str, projector: Lister, path: str = "vision_tower", *, alone: bool = False) -> Tower:
    """A wrapper whose encoder is one of ENCODERS, by the model_type that its section states, else `usual`; always that
    where the class takes no other (`alone`)."""

    def read(c: Fields, whole: Fields) -> ListedTower | None:
        known = encoder_of(c, usual, alone=alone)
        if known is None:
            return None
        c, encoder = known
        at = published(path, encoder)

        def modules() -> Iterator[NamedShape]:
            rows = encoder.read(c, at)
            yield from rows if at else ((name.removeprefix("."), shape, copies) for name, shape, copies in rows)
            yield from projector(c, whole)

        return listed(c, modules())

    return Tower(read)


def published(path: str, encoder: Encoder) -> str:
    """Path of an encoder in checkpoints: in `vision_tower` a level deeper than transformers 5.23 saves some."""
    return f"{path}.{encoder.level}" if encoder.level and path == "vision_tower" else path


def layers_seen(whole: Fields) -> int:
    """Layers of the encoder whose output the projector takes, side by side."""
    seen = whole.get("vision_feature_layer")
    return len(seen) if isinstance(seen, list) and seen else 1


def llava(c: Fields, whole: Fields, path: str = PROJECTOR) -> Iterator[NamedShape]:
    """LLaVA-1.5, arXiv:2310.03744: two matrices."""
    matrices = two_matrices(layers_seen(whole) * c.size("hidden_size"))
    yield from placed(path, biased(whole.get("multimodal_projector_bias") is not False, matrices))


def perception_lm(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """PerceptionLM, arXiv:2504.13180, whose width is an argument of timm."""
    wide = c.section("model_args").size("embed_dim")
    yield from placed(f"model.{PROJECTOR}", with_biases(two_matrices(wide)))


def llava_next(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """LLaVA with an embedding that ends each row of an image."""
    yield from llava(c, whole)
    yield "image_newline", (TEXT,), 1


def llava_next_video(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """LLaVA-NeXT, and a convolution that pools frames where configured."""
    yield from llava_next(c, whole)
    if whole.get("spatial_pool_mode") == "conv":
        d, stride = c.size("hidden_size"), whole.maybe("spatial_pool_stride") or 2
        pool: Shapes = {"pool": (whole.maybe("spatial_pool_out_channels") or d, d, stride, stride)}
        yield from placed("vision_resampler", with_biases(pool))


def vipllava(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """ViP-LLaVA, arXiv:2312.00784: what five layers of the encoder put out, behind a norm."""
    field = "vision_feature_layers" if whole.states("vision_feature_layers") else "vision_feature_layer"
    taken = whole.get(field) if whole.states(field) else [-2, -5, -8, -11, 6]
    seen = c.size("hidden_size") * (len(taken) if isinstance(taken, list) else 1)
    yield from placed(PROJECTOR, with_biases(two_matrices(seen) | {"projector_layernorm": (seen,)}))


def gemma3(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """One matrix, laid [in, out], behind an average over patches and a norm."""
    d = c.size("hidden_size")
    yield from placed(PROJECTOR, {"mm_input_projection_weight": (d, TEXT), "mm_soft_emb_norm.weight": (d,)})


def paligemma(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    out = whole.maybe("projection_dim") or 2048
    yield from placed(PROJECTOR, with_biases({"linear": (out, c.size("hidden_size"))}))


def mistral3(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """A matrix that merges patches, then LLaVA's two."""
    yield from placed(PROJECTOR, weights(patch_merger(c, whole)))
    matrices = two_matrices(layers_seen(whole) * c.size("hidden_size"))
    yield from placed(PROJECTOR, biased(whole.flag("multimodal_projector_bias"), matrices))


def patch_merger(c: Fields, whole: Fields) -> Shapes:
    """Pixtral's, with a norm before it."""
    d, merge = c.size("hidden_size"), whole.maybe("spatial_merge_size") or 2
    return {"norm": (d,), "patch_merger.merging_layer": (d, d * merge**2)}


def internvl(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    ratio = whole.get("downsample_ratio")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        message = Message("downsample_ratio is {ratio}; it must be a number such as 0.5.", ratio=shown(ratio))
        raise ConfigError(message, "downsample_ratio")
    merged = c.size("hidden_size") * int(1 / ratio) ** 2
    yield from placed(PROJECTOR, with_biases({"layer_norm": (merged,)} | two_matrices(merged)))


def lfm2_vl(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Two matrices with a width of their own, and a norm before them."""
    wide = c.size("hidden_size") * whole.size("downsample_factor") ** 2
    if whole.flag("projector_use_layernorm"):
        yield from placed(f"model.{PROJECTOR}", with_biases({"layer_norm": (wide,)}))
    matrices = two_matrices(wide, whole.size("projector_hidden_size"))
    yield from placed(f"model.{PROJECTOR}", biased(whole.flag("projector_bias"), matrices))


def aria(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Aria, arXiv:2410.05993: learned queries that attend to the patches."""
    d, field = c.size("hidden_size"), "projector_patch_to_query_dict"
    queries = {"4900": 256} if whole.get(field) is None else whole.get(field)
    if not isinstance(queries, Mapping) or not queries:
        message = Message("{field} is {value}; it must be an object of fields.", field=field, value=shown(queries))
        raise ConfigError(message, field)
    numbers = whole.within(queries)
    cross, attention = f"{PROJECTOR}.cross_attn", "multihead_attn"
    most = whole.maybe(f"max_value_{field}") or max(numbers.size(name) for name in numbers.stated)
    yield f"{PROJECTOR}.query", (most, d), 1
    yield from placed(cross, weights({f"{x}_proj": (d, d) for x in "qkv"}))
    yield from placed(cross, {f"{attention}.in_proj_weight": (3 * d, d), f"{attention}.in_proj_bias": (3 * d,)})
    yield from placed(cross, with_biases({f"{attention}.out_proj": (d, d), "linear": (d, d)}))
    yield from placed(cross, with_biases({"layer_norm": (d,), "layer_norm_kv": (d,)}))
    yield from placed(PROJECTOR, with_biases({"layer_norm": (d,)}))
    yield from placed(f"{PROJECTOR}.feed_forward", weights({"linear_in": (TEXT, d), "linear_out": (TEXT, TEXT)}))


def aya_vision(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """A gated projector over several patches, behind a norm."""
    wide = whole.maybe("alignment_intermediate_size") or section(whole, "text_config").size("hidden_size")
    gated = gated_projector(c, whole, wide)
    yield from placed(PROJECTOR, with_biases({"layernorm": gated["linear_1"][1:], **gated}))


def cohere2_vision(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Aya Vision without the norm."""
    wide = whole.maybe("alignment_intermediate_size") or 36864
    yield from placed(f"model.{PROJECTOR}", with_biases(gated_projector(c, whole, wide)))


def gated_projector(c: Fields, whole: Fields, wide: int) -> Shapes:
    merged = c.size("hidden_size") * (whole.maybe("downsample_factor") or 2) ** 2
    return {"linear_1": (wide, merged), "linear_2": (TEXT, wide // 2)}


def deepseek_vl(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """DeepSeek-VL, arXiv:2403.05525: two matrices."""
    yield from placed("model.aligner", with_biases({"linear1": (TEXT, c.size("hidden_size")), "linear2": (TEXT, TEXT)}))


def deepseek_vl_hybrid(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """DeepSeek-VL-7B: SAM's encoder for a larger image next to SigLIP's."""
    fine, path = section(whole, "high_res_vision_config"), "model.high_res_vision"
    d, out = fine.sizes("hidden_size", "output_channels")
    half = section(whole, "text_config").size("hidden_size") // 2
    yield f"{path}_alpha", (1,), 1
    yield from sam(fine, f"{path}_model.vision_encoder")
    yield from sam_neck(d, out, f"{path}_neck")
    yield from placed(f"{path}_proj", weights({"conv1": (2 * out, out, 3, 3), "conv2": (4 * out, 2 * out, 3, 3)}))
    matrices: Shapes = {"vision_proj": (half, c.size("hidden_size")), "high_res_vision_proj": (half, 4 * out)}
    yield from placed("model.aligner", with_biases({**matrices, "proj": (TEXT, TEXT)}))


def granite4_vision(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """A Q-Former over windows of each layer that the language model sees, and four of the last."""
    d, former = c.size("hidden_size"), section(whole, "qformer_config")
    own: dict[str, int] = {"hidden_size": d, "encoder_hidden_size": d}  # which the class overwrites
    if not former.stated:  # without a section it takes a Q-Former of one layer
        own |= {"num_hidden_layers": 1, "cross_attention_frequency": 1}
    former = former.with_all_stated(own)
    queries, window = rate(whole)
    deep = whole.get("deepstack_layer_map")
    yield "model.image_newline", (TEXT,), 1
    projectors = [f"model.layerwise_projectors.{i}" for i in range(len(deep) if isinstance(deep, list) else 0)]
    for path in (*projectors, *(f"model.spatial_projectors.{i}" for i in range(4))):
        yield f"{path}.query", (1, queries**2, d), 1
        yield f"{path}.image_positions", (1, window**2, d), 1
        yield from qformer(former, f"{path}.qformer")
        yield from placed(path, with_biases({"norm": (d,), "out_linear": (TEXT, d)}))


def rate(whole: Fields) -> tuple[int, int]:
    """Sides of the queries and of the window that they stand for."""
    stated = whole.get("downsample_rate")
    sides = stated.split("/") if isinstance(stated, str) else []
    if len(sides) != 2 or not all(side.isdecimal() and len(side) < 5 and int(side) for side in sides):
        sentence = "downsample_rate is {value}; it must be two whole numbers such as 4/8."
        raise ConfigError(Message(sentence, value=shown(stated)), "downsample_rate")
    return int(sides[0]), int(sides[1])


def hyperclovax(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    yield from placed("model", with_biases({"vision_projector": (TEXT, c.size("out_hidden_size"))}))


def no_projector(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """None: the encoder itself ends in the language model's width."""
    yield from ()


GLM4V = encoded("glm4v_vision", no_projector, "model.visual", alone=True)
QWEN3 = encoded("qwen3_5_vision", no_projector, "model.visual", alone=True)
QWEN3_VL = encoded("qwen3_vl_vision", no_projector, "model.visual", alone=True)


# LLaVA's line


def video_llava(c: Fields, whole: Fields) -> ListedTower | None:
    """Video-LLaVA, arXiv:2311.10122: one encoder for images, one for videos."""
    known = encoder_of(c, "clip_vision_model", alone=False)
    if known is None:
        return None
    section, encoder = known
    inner = f".{encoder.level}" if encoder.level else ""

    def modules() -> Iterator[NamedShape]:
        for kind in ("image", "video"):
            yield from encoder.read(section, f"{kind}_tower{inner}")
        yield from llava(section, whole)

    return listed(section, modules())


# Pixtral


def lighton_ocr(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    yield from pixtral(c, "model.vision_encoder")
    projector = patch_merger(c, whole) | two_matrices(c.size("hidden_size"))
    yield from placed("model.vision_projection", weights(projector))


LARGE_WORDS = {f"attention.{letter}_proj": f"attention.w{letter}" for letter in "qkvo"}
LARGE_WORDS |= {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}


def mistral_large4(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Pixtral under Mistral's own names."""
    d, merge = c.size("hidden_size"), whole.maybe("spatial_merge_size") or 2
    yield from renamed(pixtral(c, "vision_encoder"), LARGE_WORDS)
    yield "pre_mm_projector_norm.weight", (d,), 1
    yield "patch_merger.merging_layer.weight", (d, d * merge**2), 1
    matrices: Shapes = {"w_in": (TEXT, d * layers_seen(whole)), "w_out": (TEXT, TEXT)}
    yield from placed("vision_language_adapter", biased(whole.flag("multimodal_projector_bias"), matrices))


# SigLIP


def idefics2(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Idefics2, arXiv:2405.02246: a gated feed-forward, then learned latents that attend to the patches."""
    p, d, path = section(whole, "perceiver_config"), c.size("hidden_size"), "model.connector"
    f = section(whole, "text_config").size("intermediate_size")
    gated: Shapes = {"gate_proj": (f, d), "up_proj": (f, d), "down_proj": (TEXT, f)}
    d_head, kv_heads = p.sizes("resampler_head_dim", "num_key_value_heads")
    q, kv = p.size("resampler_n_heads") * d_head, kv_heads * d_head
    layer_norms = ("input_latents_norm", "input_context_norm", "post_attention_layernorm")
    layer = Layer(out="self_attn.o_proj", mlp=GATED, norms=layer_norms, bias=False).shapes(TEXT, 4 * TEXT, q=q, kv=kv)
    yield from siglip(c, "model.vision_model")
    yield from placed(f"{path}.modality_projection", weights(gated))
    yield f"{path}.perceiver_resampler.latents", (p.size("resampler_n_latents"), TEXT), 1
    yield from placed(f"{path}.perceiver_resampler.layers.{{layer}}", layer, p.size("resampler_depth"))
    yield f"{path}.perceiver_resampler.norm.weight", (TEXT,), 1


def idefics3(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """One matrix over several patches: SmolVLM, arXiv:2504.05299, too."""
    merged = c.size("hidden_size") * (whole.maybe("scale_factor") or 2) ** 2
    yield from siglip(c, "model.vision_model")
    yield "model.connector.modality_projection.proj.weight", (TEXT, merged), 1


def minicpm(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """MiniCPM-V: a merger of windows within the encoder, and one behind it."""
    d, f, path = c.size("hidden_size"), c.size("intermediate_size"), "model.vision_tower"
    height, width = height_and_width(c, "window_kernel_size")
    window = height * width
    yield from siglip(c, path)
    attention = each("self_attn.{}_proj", (d, d), ("q", "k", "v", "out")) | norms(d, "layer_norm1")
    merger = norms(d * window, "pre_norm") | two_matrices(d * window, f * window, d)
    yield from placed(f"{path}.vit_merger", with_biases(attention | merger))
    times, wide = whole.maybe("merger_times") or 1, 4 * d
    for i in range(times):
        matrices = two_matrices(wide, wide, TEXT if i == times - 1 else d)
        yield from placed(f"model.merger.mlp.{i}", with_biases(norms(wide, "pre_norm") | matrices))


def paddleocr(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """PaddleOCR-VL, arXiv:2510.14528."""
    merged = merged_width(c)
    yield from siglip(c, "visual.vision_model")
    merger = norms(c.size("hidden_size"), "pre_norm") | two_matrices(merged, merged)
    yield from placed("mlp_AR", with_biases(merger))


def video_llama(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """VideoLLaMA 3, arXiv:2501.13106: SigLIP with rotary positions."""
    d, path = c.size("hidden_size"), "model.vision_model"
    yield from placed(path, with_biases({"embeddings.patch_embedding": patch(c), "post_layernorm": (d,)}))
    yield from layers(c, f"{path}.encoder.layers", CLIP_LAYER)
    yield from placed("model.projector.readout", with_biases({"0": (TEXT, d), "2": (TEXT, TEXT)}))


def shieldgemma(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """ShieldGemma 2, arXiv:2504.01081: a Gemma 3 within."""
    inner = (*siglip(c, "vision_tower.vision_model"), *gemma3(c, whole))
    yield from ((f"model.{name}", shape, copies) for name, shape, copies in inner)


def granite_docling(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """SigLIP with a coarse and a fine connector, and mergers of single layers."""
    d, out, scale, path = *c.sizes("hidden_size", "out_hidden_size", "scale_factor"), "model.vision_model"
    deep = 3 if c.get("deepstack_visual_indexes") is None else count(c, "deepstack_visual_indexes")
    outer = with_biases({"ln_in": (d,), "ln_mid": (out,), "ln_out": (out,)}) | weights({"mlp_fc2": (out, out)})
    yield from siglip(c, path)
    yield from placed(f"{path}.connector", outer)
    for route, side in [("coarse", scale)] + ([("fine", scale // 2)] if c.flag("use_fine_route") else []):
        merged, at = d * side**2, f"{path}.connector.{route}"
        merger = norms(merged, "layer_norm") | two_matrices(merged, out, out)
        yield f"{at}.projection.weight", (out, merged), 1
        yield from placed(f"{at}.deepstack_mergers.{{layer}}", with_biases(merger), deep)
    if (f := whole.maybe("density_router_hidden_size")) is not None:
        router: Shapes = {"att": (1, d), "norm": (d,), "fc1": (f, d), "fc2": (1, f)}
        yield from placed("model.density_router", with_biases(router))


def cosmos3_edge(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """SigLIP 2 with Qwen3-VL's merger."""
    d, middle, merged = c.size("hidden_size"), whole.maybe("projector_hidden_size") or 11520, merged_width(c)
    layer = Layer(qkv="self_attn.to_{}", mlp=("mlp.up_proj", "mlp.down_proj"))
    yield from siglip_layers(c, "model.visual", flat_patch(c), c.size("num_patches"), layer)
    merger: Shapes = {"norm": (d,), "linear_fc1": (middle, merged), "linear_fc2": (TEXT, middle)}
    yield from placed("model.projector", with_biases(merger))


# CLIP's and BLIP's


def kosmos(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Kosmos-2, arXiv:2306.14824."""
    yield from clip(c, "vision_model.model")
    yield from latent_queries(c.size("hidden_size"), whole.maybe("latent_query_num") or 64)


PIX2STRUCT_LAYER = Layer(
    qkv="attention.{}",
    letters=("query", "key", "value"),
    out="attention.output",
    mlp=("mlp.wi_0", "mlp.wi_1", "mlp.wo"),
    norms=("pre_mlp_layer_norm", "pre_attention_layer_norm"),
    bias=False,
)


def kosmos_2_5(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Kosmos-2.5, arXiv:2309.11419: Pix2Struct's encoder, arXiv:2210.03347, with positions by row and column."""
    d, rows, path = c.size("hidden_size"), c.size("max_num_patches"), "vision_model"
    front: Shapes = {"patch_projection": (d, c.size("patch_embed_hidden_size"))}
    yield from placed(f"{path}.embeddings", with_biases(front))
    yield from placed(f"{path}.embeddings", weights({"row_embedder": (rows, d), "column_embedder": (rows, d)}))
    inner = c.size("num_attention_heads") * c.size("head_dim")
    yield from layers(c, f"{path}.encoder.layer", PIX2STRUCT_LAYER, q=inner)
    yield f"{path}.layernorm.weight", (d,), 1
    yield from latent_queries(d, whole.maybe("latent_query_num") or 2048)


def latent_queries(hidden: int, queries: int) -> Iterator[NamedShape]:
    """Learned queries that attend to the patches."""
    path, attention = "image_to_text_projection", each("x_attn.{}_proj", (TEXT, TEXT), ("q", "k", "v", "out"))
    yield f"{path}.latent_query", (queries, TEXT), 1
    yield from placed(path, with_biases({"dense": (TEXT, hidden), **attention}))


def blip2(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """BLIP-2, arXiv:2301.12597: an EVA-CLIP encoder and a Q-Former."""
    former = section(whole, "qformer_config").with_stated("encoder_hidden_size", c.size("hidden_size"))
    d = former.size("hidden_size")
    yield from eva(c, "vision_model")
    yield "query_tokens", (1, whole.maybe("num_query_tokens") or 32, d), 1
    yield from qformer(former, "qformer")
    yield from placed("language_projection", {"weight": (TEXT, d), "bias": (TEXT,)})


def instruct_blip(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """InstructBLIP, arXiv:2305.06500: a Q-Former that reads the instruction too, with tables of its own."""
    yield from eva(c, "vision_model")
    q = section(whole, "qformer_config").with_all_stated(
        {"use_qformer_text_input": True, "encoder_hidden_size": c.size("hidden_size")}  # which the class sets
    )
    h, words, positions = q.sizes("hidden_size", "vocab_size", "max_position_embeddings")
    tables: Shapes = {"word_embeddings": (words, h), "position_embeddings": (positions, h)}
    yield from placed("qformer.embeddings", weights(tables) | with_biases({"layernorm": (h,)}))
    yield from (row for row in qformer(q, "qformer") if not row[0].startswith("qformer.layernorm."))
    yield "query_tokens", (1, whole.maybe("num_query_tokens") or 32, h), 1
    yield from placed("language_projection", {"weight": (TEXT, h), "bias": (TEXT,)})


def idefics(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """IDEFICS, arXiv:2306.16527: CLIP, and where `use_resampler` says so learned latents that attend to the patches."""
    c = Fields(c.stated, c.defaults, {"embed_dim": "hidden_size"})
    yield from clip(c, "model.vision_model")
    if not whole.flag("use_resampler"):
        return
    r, d, path = section(whole, "perceiver_config"), c.size("hidden_size"), "model.perceiver_resampler"
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


def minimax(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """MiniMax-M3: CLIP's layers over patches of several frames, and two projectors."""
    merging, path = c.section("img_token_compression_config"), "vision_tower.vision_model"
    d, channels, p = c.sizes("hidden_size", "num_channels", "patch_size")
    frames = merging.maybe("temporal_patch_size") or c.size("temporal_patch_size")
    merge = merging.maybe("spatial_merge_size") or c.size("spatial_merge_size")
    wide = whole.maybe("projector_hidden_size") or 6144
    yield f"{path}.embeddings.patch_embedding.weight", (d, channels, frames, p, p), 1
    yield from placed(path, with_biases({"pre_layrnorm": (d,)}))
    yield from layers(c, f"{path}.encoder.layers", CLIP_LAYER)
    for at, given in ((PROJECTOR, d), ("patch_merge_mlp", TEXT * merge**2)):
        yield from placed(at, with_biases(two_matrices(given, wide)))


# SAM's


def got_ocr2(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """GOT, arXiv:2409.01704: SAM's encoder, convolutions and a matrix."""
    out = c.size("output_channels")
    convolutions: Shapes = {"conv_upsampler1": (2 * out, out, 3, 3), "conv_upsampler2": (TEXT, 2 * out, 3, 3)}
    yield from sam(c, "vision_tower")
    projector = weights(convolutions) | with_biases({"multimodal_projector": (TEXT, TEXT)})
    yield from placed(PROJECTOR, projector)


def sam_merged(fine: Fields) -> Iterator[NamedShape]:
    """SAM's encoder, and two convolutions that merge its patches, in DeepSeek-OCR's line."""
    first, second = height_and_width(fine, "downsample_channels")
    merge: Shapes = {"net_2": (first, fine.size("output_channels"), 3, 3), "net_3": (second, first, 3, 3)}
    yield from renamed(sam(fine, "model.sam_model"), SAM_AS_RELEASED)
    yield from placed("model.sam_model", weights(merge))


QWEN2_LAYER = Layer(
    out="self_attn.o_proj", mlp=GATED, norms=("input_layernorm", "post_attention_layernorm"), bias=False, qkv_bias=True
)


def deepseek_ocr2(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """DeepSeek-OCR 2: SAM's encoder, and a Qwen2 that reads its output with learned queries."""
    e, inner = section(whole, "vision_config.encoder_config"), "model.qwen2_model"
    d = e.size("hidden_size")
    yield from sam_merged(section(whole, "vision_config.sam_config"))
    yield from layers(e, f"{inner}.model.model.layers", QWEN2_LAYER, kv=head_widths(e)[1])
    yield from placed(inner, weights({"model.model.norm": (d,), "query_768": (144, d), "query_1024": (256, d)}))
    yield from placed("model.projector.layers", {"weight": (TEXT, d), "bias": (TEXT,)})
    yield "model.view_seperator", (TEXT,), 1


def unlimited_ocr(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """DeepSeek-OCR's, arXiv:2510.18234: SAM's encoder, whose patches CLIP's layers take over."""
    fine, e = (section(whole, f"vision_config.{name}_config") for name in ("sam", "encoder"))
    d, path, seen = e.size("hidden_size"), "model.vision_model", height_and_width(fine, "downsample_channels")[1]
    yield from sam_merged(fine)
    yield f"{path}.embeddings.class_embedding", (d,), 1
    yield f"{path}.embeddings.position_embedding.weight", (patches(e) + 1, d), 1
    yield from placed(path, with_biases({"pre_layrnorm": (d,)}))
    yield from layers(e, f"{path}.transformer.layers", Layer(qkv="self_attn.qkv_proj"))
    yield from placed("model.projector", with_biases({"layers": (TEXT, d + seen)}))
    yield "model.image_newline", (TEXT,), 1
    yield "model.view_seperator", (TEXT,), 1


# InternViT, arXiv:2312.14238, under its first names


INTERN_FUSED = replace(FUSED, scales=("ls1", "ls2"))


def qianfan(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    yield from renamed(intern(c, "vision_model", INTERN_FUSED), INTERN_AS_RELEASED)
    yield from intern_projector(c, whole)


def internvl_chat(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """InternVL as it was first published, with code of its own next to the checkpoint (`modeling_intern_vit.py`)."""
    c = Fields(c.stated, c.defaults, {"attention_bias": "qkv_bias", "use_qk_norm": "qk_normalization"})
    yield from renamed(intern(c, "vision_model", INTERN_FUSED, "attn"), INTERN_AS_RELEASED)
    yield from intern_projector(c, whole)


def intern_projector(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    merged = c.size("hidden_size") * int(1 / whole.real("downsample_ratio")) ** 2
    yield from placed("mlp1", with_biases({"0": (merged,), "1": (TEXT, merged), "3": (TEXT, TEXT)}))


# MoonViT, arXiv:2504.07491


def moon_merged(c: Fields) -> int:
    """Width of the patches that one token stands for, joined."""
    height, width = height_and_width(c, "merge_kernel_size")
    return c.size("hidden_size") * height * width


def kimi_vl(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Kimi-VL: Kimi K2.5's encoder and projector (vLLM `kimi_vl.py`)."""
    merged = moon_merged(c)
    yield from moonvit(c, bias=True)
    yield from placed(PROJECTOR, with_biases(norms(c.size("hidden_size"), "pre_norm") | two_matrices(merged, merged)))


def kimi_k25(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    merged = moon_merged(c)
    normed = whole.maybe("projection_hidden_size") or c.maybe("mm_hidden_size") or 1152
    yield from moonvit(c, bias=True)
    projector: Shapes = {"pre_norm": (normed,), "proj.0": (merged, merged), "proj.2": (TEXT, merged)}
    yield from placed("mm_projector", with_biases(projector))


def kimi_k3(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Kimi K3: attention wider than the layers, no biases, and a norm behind the projector (the index of its files)."""
    merged = moon_merged(c)
    yield from moonvit(c, bias=False)
    matrices: Shapes = {"proj.0": (merged, merged), "proj.2": (TEXT, merged), "post_norm": (TEXT,)}
    yield from placed("mm_projector", weights(matrices))


# Llama's


def llama4(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Llama 4: an adapter that shuffles patches."""
    d, f, path = c.size("hidden_size"), c.size("intermediate_size"), "vision_model"
    given, out = c.sizes("projector_input_dim", "projector_output_dim")
    alone: Shapes = {"class_embedding": (d,), "positional_embedding_vlm": (patches(c) + 1, d)}
    alone |= {"patch_embedding.linear.weight": flat_patch(c)}
    yield from placed(path, alone | with_biases(norms(d, "layernorm_pre", "layernorm_post")))
    layer = Layer(out="self_attn.o_proj", norms=("input_layernorm", "post_attention_layernorm"))
    yield from layers(c, f"{path}.model.layers", layer)
    yield from placed(f"{path}.vision_adapter", weights({"mlp.fc1": (given, f), "mlp.fc2": (out, out)}))
    yield f"{PROJECTOR}.linear_1.weight", (TEXT, c.size("vision_output_dim")), 1


def mllama(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Llama 3.2 Vision: an encoder of tiles, and layers over all of them. Patches and tiles have positions for each
    shape that an image may be cut into."""
    d, tiles, rows, path = c.size("hidden_size"), c.size("max_num_tiles"), patches(c) + 1, "vision_model"
    stated = c.get("supported_aspect_ratios")
    ratios = 1 + (len(stated) if isinstance(stated, list) else 8)
    yield f"{path}.class_embedding", (d,), 1
    yield f"{path}.patch_embedding.weight", patch(c), 1
    gated: Shapes = {"embedding": (rows, d), "gate": (1,), "tile_embedding.weight": (ratios, tiles * rows * d)}
    yield from placed(f"{path}.gated_positional_embedding", gated)
    for when in ("pre", "post"):
        positions: Shapes = {"embedding.weight": (ratios, tiles * d), "gate": (1,)}
        yield from placed(f"{path}.{when}_tile_positional_embedding", positions)
    yield from placed(path, with_biases(norms(d, "layernorm_pre", "layernorm_post")))
    layer = Layer(
        out="self_attn.o_proj", norms=("input_layernorm", "post_attention_layernorm"), qkv_bias=False, out_bias=False
    )
    yield from layers(c, f"{path}.transformer.layers", layer)
    deep = layer.shapes(d, c.size("intermediate_size")) | {"gate_attn": (1,), "gate_ffn": (1,)}
    yield from placed(f"{path}.global_transformer.layers.{{layer}}", deep, c.size("num_global_layers"))
    yield from placed(PROJECTOR, {"weight": (TEXT, c.size("vision_output_dim")), "bias": (TEXT,)})


def muse(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Muse Glimmer: two frames in a patch, an adapter and a matrix."""
    d, path = c.size("hidden_size"), "model.vision_tower"
    tables: Shapes = {"patch_embedding": (d, c.size("patch_temporal") * 3 * c.size("patch_size") ** 2)}
    tables |= {"position_embedding_table": (c.size("pos_emb_height") * c.size("pos_emb_width"), d)}
    yield from placed(f"{path}.patch_embedder", weights(tables))
    yield from placed(path, with_biases(norms(d, "ln_pre", "ln_post")))
    yield from layers(c, f"{path}.layers", replace(FUSED, qkv="attn.{}_proj"))
    merged, wide = whole.sizes("out_hidden_size", "projector_hidden_size")
    matrices: Shapes = {"vision_adapter.fc1": (wide, merged), "vision_adapter.fc2": (wide, wide)}
    yield from placed("model", weights({**matrices, "vision_projection": (TEXT, wide)}))


def muse_spark(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Muse Spark: the same for images; for sound stages of convolutions, each over fewer and wider frames."""
    yield from muse(c, whole)
    a, path = section(whole, "audio_config"), "model.audio_tower"
    frames, widths, depths = numbers(a, "patch_sizes"), numbers(a, "hidden_sizes"), numbers(a, "depths")
    kernel, out, seen = a.size("conv_kernel_size"), a.size("out_hidden_size"), 1
    stages = list(zip(frames, widths, depths, strict=False))[: a.size("num_hidden_layers")]
    for i, (length, d, depth) in enumerate(stages):
        front: Shapes = {"proj": (d, seen * length)}
        yield from placed(f"{path}.layers.{i}.patch_embedder", with_biases(front) | weights({"norm": (d,)}))
        wide = int(d * a.real("mlp_ratio"))
        block: Shapes = {"conv": (d, 1, kernel), "mlp.fc1": (wide, d), "mlp.fc2": (d, wide)}
        layer = with_biases(block) | weights({"norm": (d,)})
        yield from placed(f"{path}.layers.{i}.conv_blocks.{{layer}}", layer, depth)
        seen = d
    last = widths[-1]
    yield from placed(path, with_biases({"proj": (out, last)}) | weights({"norm": (last,), "post_proj_norm": (out,)}))


# Others


def fuyu(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Patches of an image as tokens, by one matrix."""
    shape = (TEXT, whole.size("num_channels") * whole.size("patch_size") ** 2)
    yield from placed("vision_embed_tokens", {"weight": shape, "bias": shape[:1]})


def ernie(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """ERNIE 4.5 VL: a resampler over space, then over time."""
    path, resampler, merged = "model.vision_model", "model.resampler_model", merged_width(c)
    steps = (("spatial_linear", merged), ("temporal_linear", merged * c.size("temporal_merge_size")))
    mlps = {
        f"{name}.{part}": shape
        for name, wide in steps
        for part, shape in (("0", (merged, wide)), ("2", (merged, merged)), ("3", (merged,)))
    }
    yield f"{path}.patch_embed.proj.weight", flat_patch(c, "in_channels"), 1
    yield from layers(c, f"{path}.blocks", FUSED, copies="depth")
    yield from placed(path, with_biases({"ln": (c.size("hidden_size"),)}))
    yield from placed(resampler, with_biases({**mlps, "mlp": (TEXT, merged)}) | weights({"after_norm": (TEXT,)}))


def hunyuan_encoder(c: Fields) -> Iterator[NamedShape]:
    """Positions of the largest image, and layers."""
    d, path = c.size("hidden_size"), "vit"
    layer = Layer(
        out="self_attn.o_proj",
        mlp=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        norms=("input_layernorm", "post_attention_layernorm"),
    )
    rows = (c.size("max_image_size") // c.size("patch_size")) ** 2 + 1
    yield from placed(path, with_biases({"embeddings.patch_embedding": patch(c)}))
    yield f"{path}.embeddings.position_embedding.weight", (rows, d), 1
    yield from layers(c, f"{path}.layers", layer, q=head_widths(c)[0])


def hunyuan(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """HunyuanOCR, whose convolutions merge patches."""
    d, merge = c.sizes("hidden_size", "spatial_merge_size")
    merger: Shapes = {"proj.0": (2 * d, d, merge, merge), "proj.2": (4 * d, 2 * d, 1, 1), "mlp": (TEXT, 4 * d)}
    alone: Shapes = {"image_newline": (4 * d,), "image_begin": (TEXT,), "image_end": (TEXT,), "image_sep": (TEXT,)}
    yield from hunyuan_encoder(c)
    yield from placed("vit.perceive", with_biases(merger) | alone)
    yield from placed("vit.perceive", weights({"before_rms": (d,), "after_rms": (TEXT,)}))


def hunyuan4(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Hunyuan 4, whose convolutions lead into the language model."""
    d, merge, out = c.sizes("hidden_size", "spatial_merge_size", "out_hidden_size")
    wide = d * merge**2
    merger: Shapes = {"proj.0": (wide, d, merge, merge), "proj.2": (out, wide, 1, 1)}
    yield from hunyuan_encoder(c)
    yield from placed("vit.perceive", with_biases(merger) | weights({"before_rms": (d,)}) | {"image_newline": (out,)})


def ovis(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Ovis 2, arXiv:2405.20797: a patch is a mix of words of a visual vocabulary, which has a table of its own."""
    d, words, path = c.size("hidden_size"), c.size("vocab_size"), "model.vision_tower.transformer"
    layer = Layer(
        qkv="attention.{}_proj",
        out="attention.out_proj",
        mlp=("ffn.gate_proj", "ffn.up_proj", "ffn.down_proj"),
        norms=("rms_norm1", "rms_norm2"),
        bias=c.flag("qkv_bias"),
        mlp_bias=c.flag("mlp_bias"),
        norm_bias=False,
    )
    yield from placed(f"{path}.embeddings", with_biases({"patch_embedding": patch(c)}))
    yield from placed(f"{path}.embeddings", weights({"position_embedding": (patches(c), d), "rms_norm": (d,)}))
    yield from layers(c, f"{path}.encoder.layers", layer)
    yield f"{path}.rms_norm.weight", (d,), 1
    seen = words - c.size("num_visual_indicator_tokens")
    head = weights({"head_linear": (seen, d * c.size("hidden_stride") ** 2)}) | with_biases({"head_norm": (seen,)})
    yield from placed("model.vision_tower", head)
    yield "model.visual_embeddings_table.weight", (words, whole.maybe("hidden_size") or 1536), 1


def molmo(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Molmo 2: attention pools what two layers of the encoder put out."""
    d, f, path = c.size("hidden_size"), c.size("intermediate_size"), "model.vision_backbone"
    vit = f"{path}.image_vit"
    yield f"{vit}.positional_embedding", (c.size("num_position_embeddings"), d), 1
    yield from placed(vit, with_biases({"patch_embedding": flat_patch(c)}))
    attention = {f"attention.{name}": shape for name, shape in molmo_attention(c, d).items()}
    rest: Shapes = {"feed_forward.w1": (f, d), "feed_forward.w2": (d, f)} | norms(d, "attention_norm", "ffn_norm")
    layer = biased(c.flag("attention_bias"), attention) | with_biases(rest)
    yield from placed(f"{vit}.transformer.resblocks.{{layer}}", layer, c.size("num_hidden_layers"))
    a = section(whole, "adapter_config")
    h, wide, taken = a.size("hidden_size"), a.size("intermediate_size"), a.get("vision_feature_layer")
    pooled = molmo_attention(a, h * (len(taken) if isinstance(taken, list) else 1))
    yield from placed(f"{path}.image_pooling_2d", biased(a.flag("attention_bias"), pooled))
    inner = biased(a.flag("mlp_bias"), {"w1": (wide, h), "w3": (wide, h)})
    yield from placed(f"{path}.image_projector", inner | weights({"w2": (a.size("text_hidden_size"), wide)}))


def molmo_attention(c: Fields, seen: int) -> Shapes:
    heads, kv_heads, d_head = c.sizes("num_attention_heads", "num_key_value_heads", "head_dim")
    q, kv = heads * d_head, kv_heads * d_head
    return {"wq": (q, seen), "wk": (kv, seen), "wv": (kv, seen), "wo": (c.size("hidden_size"), q)}


GAMMAS = Layer(mlp=("mlp.c_fc", "mlp.c_proj"), norms=("ln_1", "ln_2"), scales=("ls_1.gamma", "ls_2.gamma"))


def step(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Step-3.7: a Perception Encoder, arXiv:2504.13181, whose patches two convolutions merge."""
    firsts = {"hidden_size": "width", "num_hidden_layers": "layers"}  # names that go before
    c = c.with_all_stated({name: c.get(first) for name, first in firsts.items() if c.states(first)})
    d, path = c.size("hidden_size"), "vision_model"
    yield f"{path}.conv1.weight", patch(c), 1
    yield f"{path}.positional_embedding", (patches(c), d), 1
    yield from placed(path, with_biases({"ln_pre": (d,)}))
    layer = replace(GAMMAS, qkv="attn.in_proj", out="attn.out_proj")
    inner = layers(c, f"{path}.transformer.resblocks", layer, int(d * c.real("mlp_ratio")))
    yield from renamed(inner, {"in_proj.": "in_proj_"})
    merge: Shapes = {"vit_downsampler1": (2 * d, d, 3, 3), "vit_downsampler2": (4 * d, 2 * d, 3, 3)}
    yield from placed(path, with_biases(merge))
    yield from placed("", biased(whole.flag("projector_bias"), {"vit_large_projector": (TEXT, 4 * d)}))


def inkling2(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    d, path = c.size("hidden_size"), "model.visual.backbone"
    yield f"{path}.embeddings.class_embedding", (d,), 1
    yield f"{path}.embeddings.cls_position_embedding", (d,), 1
    yield f"{path}.embeddings.position_embedding", (c.size("posemb_grid_size") ** 2, d), 1
    yield f"{path}.embeddings.patch_embedding.weight", flat_patch(c), 1
    yield from placed(path, with_biases({"ln_pre": (d,)}))
    yield from layers(c, f"{path}.layers", GAMMAS, c.maybe("intermediate_size") or int(d * c.real("mlp_ratio")))
    wide = c.size("projection_hidden_dim")
    matrices: Shapes = {"proj_in": (wide, merged_width(c)), "proj_out": (TEXT, wide)}
    yield from placed("model.visual", biased(c.flag("projector_bias"), matrices))


def lfm3(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """LFM3-VL: layers of convolutions over the patches, and some of attention."""
    d, f, n, kernel = c.sizes("hidden_size", "intermediate_size", "num_hidden_layers", "conv_kernel_size")
    q, kv, d_head = head_widths(c)
    conv: Shapes = {"conv.in_proj": (3 * d, d), "conv.out_proj": (d, d), "conv.spatial_conv": (d, 1, kernel, kernel)}
    attention = each("self_attn.{}_proj", (kv, d), "kv") | {"self_attn.q_proj": (q, d), "self_attn.out_proj": (d, q)}
    attention |= norms(d_head, "self_attn.q_layernorm", "self_attn.k_layernorm")
    every: Shapes = {"feed_forward.w1": (f, d), "feed_forward.w2": (d, f), "feed_forward.w3": (f, d)}
    every |= norms(d, "ffn_norm", "operator_norm")
    path, kinds = "model.vision_tower", c.per_layer("layer_types", n, ("conv", "full_attention"))
    for i in range(n):
        convolves = kinds[i] == "conv" if kinds else i < 2 or bool(i % 2)
        yield from placed(f"{path}.layers.{i}", weights(every | (conv if convolves else attention)))
    front = c.size("in_channels") * c.size("temporal_patch_size") * c.size("patch_size") ** 2
    yield from placed(path, weights({"patchifier": (d, front), "embedding_norm": (d,)}))
    wide = whole.size("projector_hidden_size")
    projector = biased(whole.flag("projector_bias"), two_matrices(merged_width(c), wide))
    yield from placed(f"model.{PROJECTOR}", projector | with_biases({"layer_norm": (d,)}))


IMAGES: dict[str, Tower] = {
    "aria": encoded("idefics3_vision", aria),
    "aya_vision": encoded("siglip_vision_model", aya_vision),
    "blip-2": images(blip2),
    "cohere2_vision": encoded("siglip_vision_model", cohere2_vision, "model.vision_tower"),
    "cohere_compass": QWEN3_VL,
    "cosmos3_edge": images(cosmos3_edge),
    "cosmos3_omni": encoded("qwen3_vl_vision", no_projector, ""),
    "deepseek_ocr2": images(deepseek_ocr2),
    "deepseek_vl": encoded("siglip_vision_model", deepseek_vl, "model.vision_model"),
    "deepseek_vl_hybrid": encoded("siglip_vision_model", deepseek_vl_hybrid, "model.vision_model"),
    "ernie4_5_vl_moe": images(ernie),
    "exaone4_5": images(lambda c, whole: qwen2_5(c, "model.visual")),
    "fast_vlm": encoded("timm_wrapper", partial(llava, path=f"model.{PROJECTOR}"), "model.vision_tower"),
    "fuyu": by_sections(fuyu),
    "gemma3": encoded("siglip_vision_model", gemma3),
    "glm46v": GLM4V,
    "glm4v": GLM4V,
    "glm4v_moe": GLM4V,
    "glm5_next": images(lambda c, whole: glm_normed(c, "model.visual", c.size("projection_intermediate_size"))),
    "glm_ocr": images(  # a merger as wide as its output times the channels of an image
        lambda c, whole: glm_normed(c, "model.visual", c.size("out_hidden_size") * c.size("in_channels"))
    ),
    "glmga": encoded("glm4v_vision", no_projector, "model.visual"),
    "got_ocr2": images(got_ocr2),
    "granite4_vision": encoded("clip_vision_model", granite4_vision, "model.vision_tower"),
    "granite_docling": images(granite_docling),
    "hunyuan_vl": images(hunyuan),
    "hy_v4_vl": images(hunyuan4),
    "hyperclovax_vision_v2": encoded("qwen2_5_vl_vision", hyperclovax, "model.vision_model"),
    "idefics": images(idefics),
    "idefics2": images(idefics2),
    "idefics3": images(idefics3),
    "inkling2": images(inkling2),
    "inkling2_loop": images(inkling2),
    "instructblip": images(instruct_blip),
    "instructblipvideo": images(instruct_blip),
    "internvl": encoded("internvl_vision", internvl, alone=True),
    "internvl_chat": images(internvl_chat),
    "kimi_k25": images(kimi_k25),
    "kimi_k3": images(kimi_k3),
    "kimi_vl": images(kimi_vl),
    "kosmos-2": images(kosmos),
    "kosmos-2.5": images(kosmos_2_5),
    "lfm2_vl": encoded("siglip2_vision_model", lfm2_vl, "model.vision_tower.vision_model"),
    "lfm3_vl": images(lfm3),
    "lighton_ocr": images(lighton_ocr),
    "llama4": images(llama4),
    "llava": encoded("clip_vision_model", llava),
    "llava_next": encoded("clip_vision_model", llava_next),
    "llava_next_video": encoded("clip_vision_model", llava_next_video),
    "llava_onevision": encoded("siglip_vision_model", llava_next),
    "minicpm_ocr": images(minicpm),
    "minicpmv4_6": images(minicpm),
    "minicpmv4_7": images(minicpm),
    "minimax_m3_vl": images(minimax),
    "mistral3": encoded("pixtral", mistral3),
    "mistral_large4": images(mistral_large4),
    "mllama": images(mllama),
    "molmo2": images(molmo),
    "muse_glimmer": images(muse),
    "muse_spark": images(muse_spark, "audio_config"),
    "ovis2": images(ovis),
    "paddleocr_vl": images(paddleocr),
    "paligemma": encoded("siglip_vision_model", paligemma),
    "perception_lm": encoded("timm_wrapper", perception_lm, "model.vision_tower"),
    "pp_chart2table": images(got_ocr2),
    "qianfan_ocr": images(qianfan),
    "qwen2_5_vl": encoded("qwen2_5_vl_vision", no_projector, "visual", alone=True),
    "qwen2_vl": encoded("qwen2_vl_vision", no_projector, "visual", alone=True),
    "qwen3_5": QWEN3,
    "qwen3_5_moe": QWEN3,
    "qwen3_vl": QWEN3_VL,
    "qwen3_vl_moe": QWEN3_VL,
    "qwen4_exp": QWEN3,
    "shieldgemma2": images(shieldgemma),
    "smolvlm": images(idefics3),
    "step3p7": images(step),
    "unlimited_ocr": images(unlimited_ocr),
    "video_llama_3": images(video_llama),
    "video_llava": Tower(video_llava),
    "vipllava": encoded("clip_vision_model", vipllava),
}
"""model_type of a wrapper -> its encoders."""
