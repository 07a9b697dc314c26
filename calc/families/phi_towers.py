"""Phi-4-multimodal's encoders, arXiv:2503.01743: SigLIP's with a head that pools, and a Conformer (transformers
`modeling_phi4_multimodal.py`)."""

import math
from collections.abc import Iterator

from calc.families.encoders import siglip
from calc.families.fields import Fields
from calc.families.tower_parts import section
from calc.families.tower_shapes import each, images, norms
from calc.model.tensor import Shapes
from calc.model.towers.listed import TEXT
from calc.model.towers.named_shapes import NamedShape, placed, weights, with_biases

IMAGE_PATH, SOUND_PATH = "model.embed_tokens_extend.image_embed", "model.embed_tokens_extend.audio_embed"
VISION = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_channels": 3,
    "image_size": 448,
    "patch_size": 14,
}
SOUND = {
    "hidden_size": 1024,
    "intermediate_size": 1536,
    "num_blocks": 24,
    "num_attention_heads": 16,
    "ext_pw_out_channel": 1024,
    "depthwise_separable_out_channel": 1024,
    "depthwise_multiplier": 1,
    "kernel_size": 3,
    "input_size": 80,
    "time_reduction": 8,
    "bias_max_distance": 1000,
    "bias_symmetric": False,
    "nemo_conv_channels": 1024,
    "downsample_rate": 1,
}


def phi(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    d = c.size("hidden_size")
    yield from siglip(c.with_stated("vision_use_head", True), f"{IMAGE_PATH}.img_processor")
    yield f"{IMAGE_PATH}.global_img_feature_extensor", (1, 1, d), 1
    yield f"{IMAGE_PATH}.sub_img_feature_extensor", (1, 1, 1, d), 1
    yield from placed(IMAGE_PATH, with_biases({"img_projection_up": (TEXT, d), "img_projection_down": (TEXT, TEXT)}))
    a = section(whole, "audio_config", SOUND)
    seen = a.size("hidden_size") * a.size("downsample_rate")
    for what in ("speech", "vision_speech"):
        matrices: Shapes = {f"up_proj_for_{what}": (TEXT, seen), f"down_proj_for_{what}": (TEXT, TEXT)}
        yield from placed(SOUND_PATH, with_biases(matrices))
    yield from conformer(a, f"{SOUND_PATH}.encoder")


def conformer(a: Fields, path: str) -> Iterator[NamedShape]:
    """Convolutions that take fewer frames, a bias by distance, and layers of convolutions between two feed-forwards."""
    d, f, heads = a.size("hidden_size"), a.size("intermediate_size"), a.size("num_attention_heads")
    q = heads * (a.maybe("head_dim") or d // heads)
    layer: Shapes = each("self_attn.{}_proj", (q, d)) | {"self_attn.o_proj": (d, q)}
    for side in ("in", "out"):
        layer |= {f"feed_forward_{side}.gate_up_proj": (2 * f, d), f"feed_forward_{side}.down_proj": (d, f)}
    out, wide, kernel = a.size("ext_pw_out_channel"), d * a.size("depthwise_multiplier"), a.size("kernel_size")
    layer |= {"conv.glu.ext_pw_conv_1d": (2 * out, d, 1), "conv.ext_pw_conv_1d": (out, d, 1)}
    layer |= {"conv.dw_sep_conv_1d.dw_conv": (wide, 1, kernel)}
    layer |= {"conv.dw_sep_conv_1d.pw_conv": (a.size("depthwise_separable_out_channel"), wide, 1)}
    inner = (f"{part}.layer_norm" for part in ("feed_forward_in", "feed_forward_out", "conv"))
    layer |= norms(d, "layer_norm_att", "layer_norm", *inner)
    gates: Shapes = {"conv.glu.b1": (1, out, 1), "conv.glu.b2": (1, out, 1)}
    yield from placed(f"{path}.encoders.{{layer}}", with_biases(layer) | gates, a.size("num_blocks"))
    channels, halvings = a.size("nemo_conv_channels"), int(math.log2(a.size("time_reduction")))
    front: Shapes = {"conv.0": (channels, 1, 3, 3)}
    for i in range(2, 3 * halvings - 1, 3):  # an activation after each
        front |= {f"conv.{i}": (channels, 1, 3, 3), f"conv.{i + 1}": (channels, channels, 1, 1)}
    pitches = a.size("input_size")
    for _ in range(halvings):
        pitches = -(-pitches // 2)
    pitches = a.maybe("nemo_final_size") or pitches
    yield from placed(f"{path}.embed", with_biases({**front, "out": (d, channels * pitches)}))
    buckets = a.size("bias_max_distance") * (1 if a.flag("bias_symmetric") else 2)
    yield from placed(f"{path}.relative_attention_bias_layer", weights({"bias_values": (buckets, heads)}))


def phi_statistics(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Mean and inverse deviation of each pitch."""
    pitches = section(whole, "audio_config", SOUND).size("input_size")
    path = f"{SOUND_PATH}.encoder.encoder_embedding"
    yield from placed(path, {"global_mean": (pitches,), "global_invstd": (pitches,)})


PHI4 = images(phi, VISION, "audio_config", statistics=phi_statistics)
