"""Encoders for images and sound of Gemma 3n and Gemma 4."""

from collections.abc import Iterator, Mapping
from typing import Any

from calc.families.encoders import timm_of
from calc.families.fields import Fields
from calc.families.tower_parts import listed, section, two
from calc.model.tensor import Shapes
from calc.model.towers.listed import TEXT, Layer, ListedTower
from calc.model.towers.named_shapes import NamedShape, placed, weights, with_biases

CLIPS = ("input_min", "input_max", "output_min", "output_max")
"""Limits that a clipped matrix keeps."""
GEMMA4_LAYER = Layer(
    qkv=("self_attn.q_proj.linear", "self_attn.k_proj.linear", "self_attn.v_proj.linear"),
    out="self_attn.o_proj.linear",
    mlp=("mlp.gate_proj.linear", "mlp.up_proj.linear", "mlp.down_proj.linear"),
    norms=("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
    head_norms=("self_attn.q_norm", "self_attn.k_norm"),
    qkv_bias=False,
    out_bias=False,
    mlp_bias=False,
    norm_bias=False,
)
GEMMA4 = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 16,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "head_dim": 64,
    "patch_size": 16,
    "position_embedding_size": 10240,
}
GEMMA4_AUDIO: Mapping[str, Any] = {
    "hidden_size": 1024,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "subsampling_conv_channels": [128, 32],
    "conv_kernel_size": 5,
    "use_clipped_linears": True,
    "output_proj_dims": 1536,
}
GEMMA3N = {"architecture": "mobilenetv5_300m_enc", "hidden_size": 2048, "vocab_size": 128}
GEMMA3N_AUDIO: Mapping[str, Any] = {
    "vocab_size": 128,
    "input_feat_size": 128,
    "hidden_size": 1536,
    "conf_num_attention_heads": 8,
    "conf_num_hidden_layers": 12,
    "conf_conv_kernel_size": 5,
    "sscp_conv_channel_size": [128, 32],
    "sscp_conv_kernel_size": [[3, 3], [3, 3]],
    "sscp_conv_stride_size": [[2, 2], [2, 2]],
}
GEMMA4_UNIFIED = {"patch_size": 16, "pooling_kernel_size": 3, "mm_embed_dim": 3840, "mm_posemb_size": 1120}
"""Defaults of fields that a config leaves out (transformers 5.23 `configuration_*.py`)."""


def gemma3n(c: Fields, whole: Fields) -> ListedTower | None:
    """Gemma 3n: MobileNetV5 for images, a Conformer for sound, and tokens of their own (transformers
    `modeling_gemma3n.py`)."""
    encoder = timm_of(c)
    if encoder is None:
        return None
    a = section(whole, "audio_config", GEMMA3N_AUDIO)
    embedders = ((c, "embed_vision"), (a, "embed_audio"))
    return listed(
        c,
        encoder.read(c, "model.vision_tower"),
        gemma3n_sound(a),
        *(embedder(fields, name) for fields, name in embedders),
    )


def embedder(c: Fields, name: str) -> Iterator[NamedShape]:
    """Tokens of images or sound, and the matrix that takes them and what the encoder puts out."""
    d = c.size("hidden_size")
    modules: Shapes = {"embedding": (c.size("vocab_size"), d), "embedding_projection": (TEXT, d)}
    modules |= {"hard_embedding_norm": (d,), "soft_embedding_norm": (d,)}
    yield from placed(f"model.{name}", weights(modules))


def gemma3n_sound(a: Fields) -> Iterator[NamedShape]:
    """A Conformer, arXiv:2005.08100, behind two convolutions over time and pitch."""
    d, heads, tower = a.size("hidden_size"), a.size("conf_num_attention_heads"), "model.audio_tower"
    q, front = d // heads * heads, f"{tower}.subsample_conv_projection"
    pitches, given = a.size("input_feat_size"), 1
    kernels, strides = pairs(a, "sscp_conv_kernel_size"), pairs(a, "sscp_conv_stride_size")
    channels = two(a, "sscp_conv_channel_size")
    for i, (out, (tall, wide), (_, stride)) in enumerate(zip(channels, kernels, strides, strict=True)):
        yield from placed(f"{front}.conv_{i}", weights({"conv": (out, given, tall, wide), "norm": (out,)}))
        pitches, given = (pitches + 2 - wide) // stride + 1, out  # one more pitch on each side
    yield f"{front}.input_proj_linear.weight", (d, given * pitches), 1
    attention: Shapes = {f"attn.{x}_proj": (q, d) for x in "qkv"}
    attention |= {"attn.relative_position_embedding.pos_proj": (q, d), "post": (d, d)}
    attention |= {"pre_attn_norm": (d,), "post_norm": (d,)}
    layer: Shapes = {f"attention.{name}": shape for name, shape in attention.items()}
    for ffn in ("ffw_layer_start", "ffw_layer_end"):
        layer |= {f"{ffn}.ffw_layer_1": (4 * d, d), f"{ffn}.ffw_layer_2": (d, 4 * d)}
        layer |= {f"{ffn}.pre_layer_norm": (d,), f"{ffn}.post_layer_norm": (d,)}
    layer |= {"lconv1d.linear_start": (2 * d, d), "lconv1d.linear_end": (d, d), "lconv1d.pre_layer_norm": (d,)}
    layer |= {"lconv1d.depthwise_conv1d": (d, 1, a.size("conf_conv_kernel_size")), "lconv1d.conv_norm": (d,)}
    shapes = {**weights({**layer, "norm": (d,)}), "attention.attn.per_dim_scale": (d // heads,)}
    yield from placed(f"{tower}.conformer.{{layer}}", shapes, a.size("conf_num_hidden_layers"))


def pairs(a: Fields, name: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Two numbers of each of two convolutions: over time and over pitch."""
    value = a.get(name)
    first, second = value if isinstance(value, list) and len(value) == 2 else (value, value)
    return two(a.within({name: first}), name), two(a.within({name: second}), name)


def gemma4(c: Fields, whole: Fields) -> ListedTower:
    """Gemma 4, with an encoder for sound in its small models (transformers `modeling_gemma4.py`)."""
    parts, statistics = [], []
    if whole.get("vision_config") is not None:
        parts.append(gemma4_images(c, "model"))
        statistics.append(gemma4_image_statistics(c, "model"))
    if whole.get("audio_config") is not None:
        a = section(whole, "audio_config", GEMMA4_AUDIO)
        parts.append(gemma4_sound(a))
        if a.flag("use_clipped_linears"):
            statistics.append(clips(gemma4_sound(a)))
    return listed(c, *parts, statistics=statistics)


def diffusion_gemma(c: Fields, whole: Fields) -> ListedTower:
    """Gemma 4's encoder for images within the encoder of the text (transformers `modeling_diffusion_gemma.py`)."""
    path = "model.encoder"
    return listed(c, gemma4_images(c, path), statistics=[gemma4_image_statistics(c, path)])


def gemma4_images(c: Fields, path: str) -> Iterator[NamedShape]:
    """An encoder whose positions are a table for rows and one for columns, and a matrix behind it."""
    d, d_head, tower = c.size("hidden_size"), c.size("head_dim"), f"{path}.vision_tower"
    q, kv = c.size("num_attention_heads") * d_head, c.size("num_key_value_heads") * d_head
    layer = GEMMA4_LAYER.shapes(d, c.size("intermediate_size"), q=q, kv=kv, d_head=d_head)
    yield f"{tower}.patch_embedder.position_embedding_table", (2, c.size("position_embedding_size"), d), 1
    yield f"{tower}.patch_embedder.input_proj.weight", (d, 3 * c.size("patch_size") ** 2), 1
    yield from placed(f"{tower}.encoder.layers.{{layer}}", layer, c.size("num_hidden_layers"))
    yield f"{path}.embed_vision.embedding_projection.weight", (TEXT, d), 1


def gemma4_image_statistics(c: Fields, path: str) -> Iterator[NamedShape]:
    """A mean and a spread of its output, and the limits of its matrices, where it has them."""
    if c.flag("standardize"):
        for name in ("std_bias", "std_scale"):
            yield f"{path}.vision_tower.{name}", (c.size("hidden_size"),), 1
    if c.flag("use_clipped_linears"):
        yield from clips(gemma4_images(c, path))


def clips(modules: Iterator[NamedShape]) -> Iterator[NamedShape]:
    """Four limits of each matrix that is clipped."""
    for name, _, copies in modules:
        if name.endswith(".linear.weight"):
            for clip in CLIPS:
                yield f"{name.removesuffix('linear.weight')}{clip}", (), copies


def gemma4_sound(a: Fields) -> Iterator[NamedShape]:
    """A Conformer, arXiv:2005.08100, and a matrix behind it."""
    d, out, tower = a.size("hidden_size"), a.size("output_proj_dims"), "model.audio_tower"
    d_head, front = d // a.size("num_attention_heads"), f"{tower}.subsample_conv_projection"
    q = d_head * a.size("num_attention_heads")
    first, second = two(a, "subsampling_conv_channels")
    convolutions: Shapes = {"layer0.conv": (first, 1, 3, 3), "layer0.norm": (first,)}
    convolutions |= {"layer1.conv": (second, first, 3, 3), "layer1.norm": (second,)}
    yield from placed(front, weights({**convolutions, "input_proj_linear": (d, first // 4 * second)}))
    layer: Shapes = {f"self_attn.{x}_proj.linear": (q, d) for x in "qkv"}
    layer |= {"self_attn.post.linear": (d, d), "self_attn.relative_k_proj": (q, d)}
    for ffn in ("feed_forward1", "feed_forward2"):
        layer |= {f"{ffn}.ffw_layer_1.linear": (4 * d, d), f"{ffn}.ffw_layer_2.linear": (d, 4 * d)}
        layer |= {f"{ffn}.pre_layer_norm": (d,), f"{ffn}.post_layer_norm": (d,)}
    layer |= {"lconv1d.linear_start.linear": (2 * d, d), "lconv1d.linear_end.linear": (d, d)}
    layer |= {"lconv1d.depthwise_conv1d": (d, 1, a.size("conv_kernel_size")), "lconv1d.pre_layer_norm": (d,)}
    layer |= dict.fromkeys(("lconv1d.conv_norm", "norm_pre_attn", "norm_post_attn", "norm_out"), (d,))
    shapes = {**weights(layer), "self_attn.per_dim_scale": (d_head,)}
    yield from placed(f"{tower}.layers.{{layer}}", shapes, a.size("num_hidden_layers"))
    yield from placed(tower, with_biases({"output_proj": (out, d)}))
    yield "model.embed_audio.embedding_projection.weight", (TEXT, out), 1


def gemma4_unified(c: Fields, whole: Fields) -> ListedTower:
    """Patches and frames of sound go in by a matrix or two (transformers `modeling_gemma4_unified.py`; names as
    checkpoints have them)."""
    parts: list[Iterator[NamedShape]] = []
    if whole.get("vision_config") is not None:
        out = c.maybe("output_proj_dims") or 3840
        parts.append(unified_images(c))
        parts.append(placed("model.embed_vision", weights({"embedding_projection": (TEXT, out)})))
    if whole.get("audio_config") is not None:
        wide = section(whole, "audio_config", {"audio_embed_dim": 640}).size("audio_embed_dim")
        parts.append(placed("model.embed_audio", weights({"embedding_projection": (TEXT, wide)})))
    return listed(c, *parts)


def unified_images(c: Fields) -> Iterator[NamedShape]:
    """A matrix between norms, and a table of positions for rows and columns."""
    d, patch = c.size("mm_embed_dim"), 3 * (c.size("patch_size") * c.size("pooling_kernel_size")) ** 2
    modules: Shapes = {"patch_ln1": (patch,), "patch_dense": (d, patch), "patch_ln2": (d,), "pos_norm": (d,)}
    yield "model.vision_embedder.pos_embedding", (c.size("mm_posemb_size"), 2, d), 1
    yield from placed("model.vision_embedder", with_biases(modules))
