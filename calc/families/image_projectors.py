"""Wrappers that put an encoder which others use as well before a language model: each with a projector of its own.

Read off the classes of transformers 5.23, `modeling_*.py` of each model_type; names are the checkpoints'.
"""

from collections.abc import Iterator, Mapping
from functools import partial

from calc.errors import ConfigError, Message, shown
from calc.families.encoders import Encoder, encoder_of, qformer, sam, sam_neck
from calc.families.fields import Fields
from calc.families.tower_parts import PROJECTOR, Lister, Tower, listed, section
from calc.model.tensor import Shapes
from calc.model.towers.listed import TEXT, ListedTower, NamedShape, biased, placed, weights, with_biases


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
            for name, shape, copies in encoder.read(c, at):
                yield name.removeprefix("."), shape, copies
            yield from projector(c, whole)

        return listed(c, modules(), encoder.statistics(c, at))

    return Tower(read)


def published(path: str, encoder: Encoder) -> str:
    """Path of an encoder in checkpoints: in `vision_tower` a level deeper than transformers 5.23 saves some."""
    return f"{path}.{encoder.level}" if encoder.level and path == "vision_tower" else path


def layers_seen(whole: Fields) -> int:
    """Layers of the encoder whose output the projector takes, side by side."""
    seen = whole.get("vision_feature_layer")
    return len(seen) if isinstance(seen, list) and seen else 1


def two_matrices(seen: int, wide: int = TEXT) -> Shapes:
    """LLaVA's projector, from what it sees through a width to the language model's."""
    return {"linear_1": (wide, seen), "linear_2": (TEXT, wide)}


def llava(c: Fields, whole: Fields, path: str = PROJECTOR) -> Iterator[NamedShape]:
    """LLaVA-1.5, arXiv:2310.03744: two matrices."""
    matrices = two_matrices(layers_seen(whole) * c.size("hidden_size"))
    yield from placed(path, biased(whole.get("multimodal_projector_bias") is not False, matrices))


def perception_lm(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """PerceptionLM, arXiv:2504.13180, whose width is an argument of timm."""
    wide = c.within(c.get("model_args")).size("embed_dim")
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
ENCODED: dict[str, Tower] = {
    "aria": encoded("idefics3_vision", aria),
    "aya_vision": encoded("siglip_vision_model", aya_vision),
    "cohere2_vision": encoded("siglip_vision_model", cohere2_vision, "model.vision_tower"),
    "cohere_compass": QWEN3_VL,
    "cosmos3_omni": encoded("qwen3_vl_vision", no_projector, ""),
    "deepseek_vl": encoded("siglip_vision_model", deepseek_vl, "model.vision_model"),
    "deepseek_vl_hybrid": encoded("siglip_vision_model", deepseek_vl_hybrid, "model.vision_model"),
    "fast_vlm": encoded("timm_wrapper", partial(llava, path=f"model.{PROJECTOR}"), "model.vision_tower"),
    "gemma3": encoded("siglip_vision_model", gemma3),
    "glm46v": GLM4V,
    "glm4v": GLM4V,
    "glm4v_moe": GLM4V,
    "glmga": encoded("glm4v_vision", no_projector, "model.visual"),
    "granite4_vision": encoded("clip_vision_model", granite4_vision, "model.vision_tower"),
    "hyperclovax_vision_v2": encoded("qwen2_5_vl_vision", hyperclovax, "model.vision_model"),
    "internvl": encoded("internvl_vision", internvl, alone=True),
    "lfm2_vl": encoded("siglip2_vision_model", lfm2_vl, "model.vision_tower.vision_model"),
    "llava": encoded("clip_vision_model", llava),
    "llava_next": encoded("clip_vision_model", llava_next),
    "llava_next_video": encoded("clip_vision_model", llava_next_video),
    "llava_onevision": encoded("siglip_vision_model", llava_next),
    "mistral3": encoded("pixtral", mistral3),
    "paligemma": encoded("siglip_vision_model", paligemma),
    "perception_lm": encoded("timm_wrapper", perception_lm, "model.vision_tower"),
    "qwen2_5_vl": encoded("qwen2_5_vl_vision", no_projector, "visual", alone=True),
    "qwen2_vl": encoded("qwen2_vl_vision", no_projector, "visual", alone=True),
    "qwen3_5": QWEN3,
    "qwen3_5_moe": QWEN3,
    "qwen3_vl": QWEN3_VL,
    "qwen3_vl_moe": QWEN3_VL,
    "qwen4_exp": QWEN3,
    "vipllava": encoded("clip_vision_model", vipllava),
}
"""model_type of a wrapper -> its encoder and projector."""
