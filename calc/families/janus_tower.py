"""Janus, arXiv:2410.13848: SigLIP's layers to see, and a quantized autoencoder to draw (transformers
`modeling_janus.py`)."""

from collections.abc import Iterator

from calc.families.fields import Fields
from calc.families.image_codecs import convolved, group_norm, level_widths, resnet
from calc.families.tower_parts import patches, section
from calc.families.tower_shapes import images, norms
from calc.model.tensor import Shapes
from calc.model.towers.listed import Layer
from calc.model.towers.named_shapes import NamedShape, placed, with_biases

VISION = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_channels": 3,
    "image_size": 384,
    "patch_size": 16,
    "mlp_ratio": 4.0,
    "attention_bias": True,
    "projection_dim": 2048,
    "use_qk_norm": False,
    "depth": 2,
}
VQ = {
    "embed_dim": 8,
    "num_embeddings": 16384,
    "double_latent": False,
    "latent_channels": 256,
    "in_channels": 3,
    "base_channels": 128,
    "channel_multiplier": [1, 1, 2, 2, 4],
    "num_res_blocks": 2,
    "out_channels": 3,
    "projection_dim": 2048,
    "num_hidden_layers": 2,
    "image_token_embed_dim": 2048,
}


def janus(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Encoder, image generator, and the matrices between them and the language model."""
    d, p, path = c.size("hidden_size"), c.size("patch_size"), "model.vision_model"
    normed = with_biases(norms(d, "self_attn.q_norm", "self_attn.k_norm")) if c.flag("use_qk_norm") else {}
    layer = Layer(out="self_attn.projection_layer", qkv_bias=c.flag("attention_bias"))
    shapes = layer.shapes(d, int(d * c.real("mlp_ratio"))) | normed
    patch: Shapes = {"embeddings.patch_embedding": (d, c.size("num_channels"), p, p), "post_layernorm": (d,)}
    yield from placed(path, with_biases(patch))
    yield f"{path}.embeddings.position_embedding.weight", (patches(c), d), 1
    yield from placed(f"{path}.encoder.layers.{{layer}}", shapes, c.size("num_hidden_layers"))
    yield from aligner("model.aligner", d, c.size("projection_dim"), c.size("depth"))
    v = section(whole, "vq_config", VQ)
    words, wide, out = v.size("num_embeddings"), v.size("embed_dim"), v.size("projection_dim")
    yield from autoencoder(v, "model.vqmodel")
    yield "model.generation_embeddings.weight", (words, wide), 1
    yield from aligner("model.generation_aligner", wide, out, v.size("num_hidden_layers"))
    head: Shapes = {"proj_out": (out, v.size("image_token_embed_dim")), "vision_head": (words, out)}
    yield from placed("model.generation_head", with_biases(head))


def aligner(path: str, seen: int, wide: int, depth: int) -> Iterator[NamedShape]:
    """Matrices one behind the other."""
    yield from placed(path, with_biases({"fc1": (wide, seen)}))
    for i in range(depth - 1):
        yield from placed(f"{path}.hidden_layers.{i}", {"weight": (wide, wide), "bias": (wide,)})


def autoencoder(v: Fields, path: str) -> Iterator[NamedShape]:
    """VQGAN, arXiv:2012.09841: convolutions down to words of a codebook, and up again."""
    latent, wide, blocks = (v.size(x) for x in ("latent_channels", "embed_dim", "num_res_blocks"))
    widths, base = level_widths(v), v.size("base_channels")
    last, encoder, decoder = widths[-1], f"{path}.encoder", f"{path}.decoder"
    ends: Shapes = {"encoder.conv_in": (base, v.size("in_channels"), 3, 3)}
    ends |= {"encoder.conv_out": (latent * (2 if v.flag("double_latent") else 1), last, 3, 3)}
    ends |= {"decoder.conv_in": (last, latent, 3, 3), "decoder.conv_out": (v.size("out_channels"), widths[0], 3, 3)}
    ends |= {"encoder.norm_out": (last,), "decoder.norm_out": (widths[0],)}
    ends |= {"quant_conv": (wide, latent, 1, 1), "post_quant_conv": (latent, wide, 1, 1)}
    yield from placed(path, with_biases(ends))
    yield f"{path}.quantize.embedding.weight", (v.size("num_embeddings"), wide), 1
    for half in (encoder, decoder):
        for i in (1, 2):
            yield from resnet(f"{half}.mid.block_{i}", last, last, group_norm)
        yield from convolved(f"{half}.mid.attn_1", last)
    yield from level(f"{encoder}.down", "downsample", base, widths, blocks)
    yield from level(f"{decoder}.up", "upsample", last, widths[::-1], blocks + 1)


def level(path: str, sampling: str, seen: int, widths: list[int], blocks: int) -> Iterator[NamedShape]:
    """Residual blocks at each resolution in the order in which they run, with attention on the coarsest grid."""
    for i, width in enumerate(widths):
        at, attends = f"{path}.{i}", i == (len(widths) - 1 if sampling == "downsample" else 0)
        for block in range(blocks):
            yield from resnet(f"{at}.block.{block}", width if block else seen, width, group_norm)
            if attends:
                yield from convolved(f"{at}.attn.{block}", width)
        if i < len(widths) - 1:
            yield from placed(at, with_biases({f"{sampling}.conv": (width, width, 3, 3)}))
        seen = width


JANUS = images(janus, VISION, "vq_config")
