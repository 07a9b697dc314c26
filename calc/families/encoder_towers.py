"""Wrappers that put an encoder which others use as well before a language model: each with a projector of its own."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from calc.errors import ConfigError, Message, shown
from calc.families.encoders import SAM, Encoder, encoder_of, qwen2_5, sam, sam_neck, siglip
from calc.families.fields import Fields
from calc.families.qformer import QFORMER, qformer
from calc.families.tower_defaults import LFM2_VL, PERCEIVER
from calc.families.tower_parts import listed, section
from calc.model.tensor import Shapes
from calc.model.towers.listed import TEXT, ListedTower, biased
from calc.model.towers.named_shapes import NamedShape, placed, weights, with_biases

PROJECTOR = "multi_modal_projector"
Projector = Callable[[Fields, Fields], Iterable[NamedShape]]
"""Weights of what joins encoder and model, made from the encoder's section and the whole config."""


def encoded(
    usual: str, projector: Projector, path: str = "vision_tower", *, alone: bool = False
) -> Callable[[Fields, Fields], ListedTower | None]:
    """The reader of a wrapper whose encoder is one of ENCODERS, by the model_type that its section states, else
    `usual`; always that where the class takes no other (`alone`)."""

    def read(c: Fields, whole: Fields) -> ListedTower | None:
        known = encoder_of(c, usual, alone=alone)
        if known is None:
            return None
        c, encoder = known
        at = published(path, encoder)
        parts = encoder.read(c, at)
        named = ((name.removeprefix("."), shape, copies) for name, shape, copies in parts)
        return listed(c, named, projector(c, whole), statistics=[encoder.statistics(c, at)])

    return read


def published(path: str, encoder: Encoder) -> str:
    """Path of an encoder in checkpoints: in `vision_tower` a level deeper than transformers 5.23 saves some."""
    return f"{path}.{encoder.level}" if encoder.level and path == "vision_tower" else path


def layers_seen(whole: Fields) -> int:
    """Layers of the encoder whose output the projector takes, side by side."""
    seen = whole.get("vision_feature_layer")
    return len(seen) if isinstance(seen, list) and seen else 1


def llava(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """LLaVA-1.5, arXiv:2310.03744: two matrices (transformers `modeling_llava.py`)."""
    matrices: Shapes = {"linear_1": (TEXT, layers_seen(whole) * c.size("hidden_size")), "linear_2": (TEXT, TEXT)}
    yield from placed(PROJECTOR, biased(whole.get("multimodal_projector_bias") is not False, matrices))


def fast_vlm(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """LLaVA (transformers `modeling_fast_vlm.py`)."""
    for name, shape, copies in llava(c, whole):
        yield f"model.{name}", shape, copies


def perception_lm(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """PerceptionLM, arXiv:2504.13180, whose width is an argument of timm (transformers `modeling_perception_lm.py`)."""
    wide = c.within(c.get("model_args")).size("embed_dim")
    yield from placed(f"model.{PROJECTOR}", with_biases({"linear_1": (TEXT, wide), "linear_2": (TEXT, TEXT)}))


def llava_next(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """LLaVA with an embedding that ends each row of an image (transformers `modeling_llava_next.py`)."""
    yield from llava(c, whole)
    yield "image_newline", (TEXT,), 1


def llava_next_video(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """LLaVA-NeXT, and a convolution that pools frames where configured (`modeling_llava_next_video.py`)."""
    yield from llava_next(c, whole)
    if whole.get("spatial_pool_mode") == "conv":
        d, stride = c.size("hidden_size"), whole.maybe("spatial_pool_stride") or 2
        pool: Shapes = {"pool": (whole.maybe("spatial_pool_out_channels") or d, d, stride, stride)}
        yield from placed("vision_resampler", with_biases(pool))


def gemma3(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """One matrix, laid [in, out], behind an average over patches and a norm (transformers `modeling_gemma3.py`)."""
    d = c.size("hidden_size")
    yield from placed(PROJECTOR, {"mm_input_projection_weight": (d, TEXT), "mm_soft_emb_norm.weight": (d,)})


def paligemma(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """One matrix, whose width is stated apart (transformers `modeling_paligemma.py`)."""
    out = whole.maybe("projection_dim") or 2048
    yield from placed(PROJECTOR, with_biases({"linear": (out, c.size("hidden_size"))}))


def mistral3(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """A matrix that merges patches, then LLaVA's two (transformers `modeling_mistral3.py`)."""
    d, merge = c.size("hidden_size"), whole.maybe("spatial_merge_size") or 2
    yield from placed(PROJECTOR, weights({"norm": (d,), "patch_merger.merging_layer": (d, d * merge**2)}))
    matrices: Shapes = {"linear_1": (TEXT, layers_seen(whole) * d), "linear_2": (TEXT, TEXT)}
    yield from placed(PROJECTOR, biased(whole.flag("multimodal_projector_bias"), matrices))


def internvl(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Several patches at once (transformers `modeling_internvl.py`)."""
    ratio = whole.get("downsample_ratio")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        message = Message("downsample_ratio is {ratio}; it must be a number such as 0.5.", ratio=shown(ratio))
        raise ConfigError(message, "downsample_ratio")
    merged = c.size("hidden_size") * int(1 / ratio) ** 2
    matrices: Shapes = {"layer_norm": (merged,), "linear_1": (TEXT, merged), "linear_2": (TEXT, TEXT)}
    yield from placed(PROJECTOR, with_biases(matrices))


def lfm2_vl(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Two matrices with a width of their own, and a norm before them (transformers `modeling_lfm2_vl.py`)."""
    whole = Fields(whole.stated, LFM2_VL, {})
    wide, middle = c.size("hidden_size") * whole.size("downsample_factor") ** 2, whole.size("projector_hidden_size")
    if whole.flag("projector_use_layernorm"):
        yield from placed(f"model.{PROJECTOR}", with_biases({"layer_norm": (wide,)}))
    matrices: Shapes = {"linear_1": (middle, wide), "linear_2": (TEXT, middle)}
    yield from placed(f"model.{PROJECTOR}", biased(whole.flag("projector_bias"), matrices))


def idefics2(c: Fields, whole: Fields) -> ListedTower:
    """Idefics2, arXiv:2405.02246: a gated feed-forward, then learned latents that attend to the patches."""
    p, d, path = section(whole, "perceiver_config", PERCEIVER), c.size("hidden_size"), "model.connector"
    f = section(whole, "text_config", {"intermediate_size": 14336}).size("intermediate_size")
    gated: Shapes = {"gate_proj": (f, d), "up_proj": (f, d), "down_proj": (TEXT, f)}
    d_head, kv_heads = p.size("resampler_head_dim"), p.size("num_key_value_heads")
    q, kv = p.size("resampler_n_heads") * d_head, kv_heads * d_head
    layer: Shapes = {f"self_attn.{x}_proj": (wide, TEXT) for x, wide in (("q", q), ("k", kv), ("v", kv))}
    layer |= {"self_attn.o_proj": (TEXT, q), "mlp.gate_proj": (4 * TEXT, TEXT), "mlp.up_proj": (4 * TEXT, TEXT)}
    layer |= {"mlp.down_proj": (TEXT, 4 * TEXT)}
    layer |= dict.fromkeys(("input_latents_norm", "input_context_norm", "post_attention_layernorm"), (TEXT,))
    return listed(
        c,
        siglip(c, "model.vision_model"),
        placed(f"{path}.modality_projection", weights(gated)),
        [(f"{path}.perceiver_resampler.latents", (p.size("resampler_n_latents"), TEXT), 1)],
        placed(f"{path}.perceiver_resampler.layers.{{layer}}", weights(layer), p.size("resampler_depth")),
        [(f"{path}.perceiver_resampler.norm.weight", (TEXT,), 1)],
    )


def idefics3(c: Fields, whole: Fields) -> ListedTower:
    """One matrix over several patches: SmolVLM, arXiv:2504.05299, too (transformers `modeling_idefics3.py`)."""
    merged = c.size("hidden_size") * (whole.maybe("scale_factor") or 2) ** 2
    projector = ("model.connector.modality_projection.proj.weight", (TEXT, merged), 1)
    return listed(c, siglip(c, "model.vision_model"), [projector])


def aria(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Aria, arXiv:2410.05993: learned queries that attend to the patches (transformers `modeling_aria.py`)."""
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
    """A gated projector over several patches (transformers `modeling_aya_vision.py`)."""
    merged = c.size("hidden_size") * (whole.maybe("downsample_factor") or 2) ** 2
    wide = whole.maybe("alignment_intermediate_size") or section(whole, "text_config", COHERE2).size("hidden_size")
    matrices: Shapes = {"layernorm": (merged,), "linear_1": (wide, merged), "linear_2": (TEXT, wide // 2)}
    yield from placed(PROJECTOR, with_biases(matrices))


def cohere2_vision(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Aya Vision without the norm (transformers `modeling_cohere2_vision.py`)."""
    merged = c.size("hidden_size") * (whole.maybe("downsample_factor") or 2) ** 2
    wide = whole.maybe("alignment_intermediate_size") or 36864
    matrices: Shapes = {"linear_1": (wide, merged), "linear_2": (TEXT, wide // 2)}
    yield from placed(f"model.{PROJECTOR}", with_biases(matrices))


def deepseek_vl(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """DeepSeek-VL, arXiv:2403.05525: two matrices (transformers `modeling_deepseek_vl.py`)."""
    yield from placed("model.aligner", with_biases({"linear1": (TEXT, c.size("hidden_size")), "linear2": (TEXT, TEXT)}))


def deepseek_vl_hybrid(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """DeepSeek-VL-7B: SAM's encoder for a larger image next to SigLIP's (transformers
    `modeling_deepseek_vl_hybrid.py`)."""
    fine, path = section(whole, "high_res_vision_config", SAM), "model.high_res_vision"
    d, out = fine.size("hidden_size"), fine.size("output_channels")
    half = section(whole, "text_config", LLAMA).size("hidden_size") // 2
    yield f"{path}_alpha", (1,), 1
    yield from sam(fine, f"{path}_model.vision_encoder")
    yield from sam_neck(d, out, f"{path}_neck")
    yield from placed(f"{path}_proj", weights({"conv1": (2 * out, out, 3, 3), "conv2": (4 * out, 2 * out, 3, 3)}))
    matrices: Shapes = {"vision_proj": (half, c.size("hidden_size")), "high_res_vision_proj": (half, 4 * out)}
    yield from placed("model.aligner", with_biases({**matrices, "proj": (TEXT, TEXT)}))


def got_ocr2(c: Fields, whole: Fields) -> ListedTower:
    """GOT, arXiv:2409.01704: SAM's encoder, convolutions and a matrix (transformers `modeling_got_ocr2.py`)."""
    out = c.size("output_channels")
    convolutions: Shapes = {"conv_upsampler1": (2 * out, out, 3, 3), "conv_upsampler2": (TEXT, 2 * out, 3, 3)}
    projector = weights(convolutions) | with_biases({"multimodal_projector": (TEXT, TEXT)})
    return listed(c, sam(c, "vision_tower"), placed(PROJECTOR, projector))


def granite4_vision(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """A Q-Former over windows of each layer that the language model sees, and four of the last (transformers
    `modeling_granite4_vision.py`)."""
    d, sizes = c.size("hidden_size"), QFORMER | {"num_hidden_layers": 1, "cross_attention_frequency": 1}
    stated = section(whole, "qformer_config").stated
    # the class overwrites the width, and takes a Q-Former of one layer where the config has no section for it
    former = Fields({**stated, "hidden_size": d, "encoder_hidden_size": d}, QFORMER if stated else sizes, {})
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
    """One matrix (transformers `modeling_hyperclovax_vision_v2.py`)."""
    yield from placed("model", with_biases({"vision_projector": (TEXT, c.size("out_hidden_size"))}))


def no_projector(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """None: the encoder itself ends in the language model's width."""
    yield from ()


def exaone4_5(c: Fields, whole: Fields) -> ListedTower:
    """Qwen2.5-VL's, whose output is the language model's (transformers `modeling_exaone4_5.py`)."""
    return listed(c, qwen2_5(c, "model.visual"))


COHERE2, LLAMA = {"hidden_size": 8192}, {"hidden_size": 4096}
"""Defaults of their language models' classes."""
