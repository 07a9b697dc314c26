"""Codecs that make images into tokens of the vocabulary, and back: VQGAN, arXiv:2012.09841."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from calc.families.encoders import siglip_layers
from calc.families.fields import Fields
from calc.families.tower_parts import (
    Layer,
    Tower,
    batch_statistics,
    buffers,
    by_sections,
    images,
    numbers,
    patch,
    patches,
    placed,
    section,
)
from calc.model.tensor import Shapes, with_biases
from calc.model.vision import NamedShape

NormOf = Callable[[str, int], Iterator[NamedShape]]
"""Weights of a norm, made from its path and width."""
AttentionOf = Callable[[str, int, int], Iterator[NamedShape]]
"""Weights of attention, made from the path of a level, the number of the block that it follows, and a width."""
LevelNames = tuple[str, str, str]
"""Names of an encoder's levels, of the blocks in each, and of the attention behind a block."""
APERTUS_NAMES: LevelNames = ("stages", "layers.{}.resnet", "layers.{}.attention")


def chameleon(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Chameleon's, arXiv:2405.09818: the encoder alone (transformers `modeling_chameleon.py`)."""
    plain = c.get("attn_type") == "vanilla"
    yield from vqgan(c, "model.vqmodel", [plain and each for each in by_resolution(c)], middle=plain)


def apertus(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Apertus 1.5's, for images and for sound: the encoders alone (transformers `modeling_apertus1p5.py`)."""
    images = vqgan(c, "model.vision_tokenizer", by_resolution(c), words="codebook_size", names=APERTUS_NAMES)
    yield from (row for row in images if ".post_quant_conv." not in row[0])
    sound, path = section(whole, "audio_config"), "model.audio_tokenizer"
    yield from wave_encoder(sound, f"{path}.encoder")
    words, d = sound.sizes("codebook_size", "codebook_dim")  # training moves the codebook, and no gradient does
    codes: Shapes = {"inited": (1,), "cluster_size": (words,), "embed": (words, d), "embed_avg": (words, d)}
    yield from buffers(f"{path}.quantizer.codebook", codes)


def wave_encoder(c: Fields, path: str) -> Iterator[NamedShape]:
    """WavTokenizer's encoder, arXiv:2408.16532: blocks of convolutions over a wave, which halve its rate, and LSTMs."""
    width, blocks, narrows = c.sizes("num_filters", "num_residual_layers", "compress")
    yield from wave_convolution(c, f"{path}.layers.0", c.size("audio_channels"), width, c.size("kernel_size"))
    at = 1
    for ratio in reversed(numbers(c, "upsampling_ratios")):
        for block in (f"{path}.layers.{at + i}" for i in range(blocks)):
            narrow = width // narrows
            yield from wave_convolution(c, f"{block}.block.1", width, narrow, c.size("residual_kernel_size"))
            yield from wave_convolution(c, f"{block}.block.3", narrow, width, 1)
            if c.flag("use_conv_shortcut"):
                yield from wave_convolution(c, f"{block}.shortcut", width, width, 1)
        at += blocks + 2  # an activation stands before the convolution
        yield from wave_convolution(c, f"{path}.layers.{at - 1}", width, 2 * width, 2 * ratio)
        width *= 2
    lstm: Shapes = {f"weight_{of}h_l{{layer}}": (4 * width, width) for of in "ih"}
    lstm |= {f"bias_{of}h_l{{layer}}": (4 * width,) for of in "ih"}
    yield from placed(f"{path}.layers.{at}.lstm", lstm, c.size("num_lstm_layers"))
    yield from wave_convolution(c, f"{path}.layers.{at + 2}", width, c.size("hidden_size"), c.size("last_kernel_size"))


def wave_convolution(c: Fields, path: str, given: int, width: int, kernel: int) -> Iterator[NamedShape]:
    """A convolution whose weight is a length and a direction (arXiv:1602.07868), or one with a norm behind it."""
    if c.get("norm_type") == "weight_norm":
        weight = f"{path}.conv.parametrizations.weight"
        yield from placed(weight, {"original0": (width, 1, 1), "original1": (width, given, kernel)})
        yield f"{path}.conv.bias", (width,), 1
    else:
        yield from placed(path, with_biases({"conv": (width, given, kernel), "norm": (width,)}))


def emu3(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Emu3's, arXiv:2409.18869: an encoder and a decoder, for videos too (transformers `modeling_emu3.py`)."""
    widths, top, d, latent = level_widths(c), level_widths(c)[-1], c.size("embed_dim"), c.size("latent_channels")
    base, n, hidden, path = c.size("base_channels"), c.size("num_res_blocks"), c.size("hidden_size"), "vqmodel"
    halvings = c.size("temporal_downsample_factor").bit_length() - 1
    seen = [level in c.indices("attn_resolutions") for level in range(len(widths))]
    code = 2 * latent if c.flag("double_latent") else latent
    spatial = partial(spatial_norm, d)

    def middle(at: str, norm: NormOf) -> Iterator[NamedShape]:
        for block in ("block_1", "block_2"):
            yield from resnet(f"{at}.middle_block.{block}", top, top, norm)
        yield from projected(f"{at}.middle_block.attn_1", hidden)
        yield from norm(f"{at}.middle_block.attn_norm", top)

    def attention(norm: NormOf, at: str, block: int, width: int) -> Iterator[NamedShape]:
        yield from projected(f"{at}.attn.{block}", hidden)
        yield from norm(f"{at}.attn_norms.{block}", width)

    encoder, decoder = f"{path}.encoder", f"{path}.decoder"
    ends: Shapes = {"conv_in": (base, c.size("in_channels"), 3, 3), "conv_out": (code, top, 3, 3)}
    yield from placed(encoder, with_biases({**ends, "norm_out": (top,)}))
    down, up = f"{encoder}.down_block.down", f"{decoder}.up_block.up"
    yield from levels(down, n, seen, base, widths, attention=partial(attention, group_norm))
    yield from middle(encoder, group_norm)
    yield from over_time(encoder, code, 4, halvings, n)
    ends = {"conv_in": (top, latent, 3, 3), "conv_out": (c.size("out_channels"), widths[0], 3, 3)}
    yield from placed(decoder, with_biases(ends))
    yield from spatial(f"{decoder}.norm_out", widths[0])
    attending = partial(attention, spatial)
    upward = partial(levels, up, n + 1, norm=spatial, attention=attending, sampling="upsample", backwards=True)
    yield from upward(seen[::-1], top, widths[::-1])
    yield from middle(decoder, spatial)
    yield from over_time(decoder, latent, 3, halvings, n)
    yield f"{path}.quantize.embedding.weight", (c.size("codebook_size"), d), 1
    time: Shapes = {"quant_conv.conv": (d, latent, 3, 1, 1), "post_quant_conv.conv": (latent, d, 3, 1, 1)}
    yield from placed(path, with_biases(time))


def level_widths(c: Fields) -> list[int]:
    """Channels at each resolution, the finest first."""
    return [c.size("base_channels") * times for times in numbers(c, "channel_multiplier")]


def by_resolution(c: Fields) -> list[bool]:
    """Whether blocks attend, at each resolution: where its side is one of those listed."""
    sides = [c.size("resolution") // 2**level for level in range(len(level_widths(c)))]
    return [side in c.indices("attn_resolutions") for side in sides]


def vqgan(
    c: Fields,
    path: str,
    attends: Sequence[bool],
    *,
    middle: bool = True,
    decodes: bool = False,
    words: str = "num_embeddings",
    names: LevelNames = ("down", "block.{}", "attn.{}"),
) -> Iterator[NamedShape]:
    """Convolutions down to words of a codebook, and where it draws up again; `middle`: it attends at the coarsest
    resolution behind all blocks."""
    latent, wide, blocks, base = c.sizes("latent_channels", "embed_dim", "num_res_blocks", "base_channels")
    widths = level_widths(c)
    last, code = widths[-1], latent * (2 if c.flag("double_latent") else 1)
    ends: Shapes = {"encoder.conv_in": (base, c.size("in_channels"), 3, 3), "encoder.conv_out": (code, last, 3, 3)}
    ends |= {"encoder.norm_out": (last,)}
    ends |= {"quant_conv": (wide, latent, 1, 1), "post_quant_conv": (latent, wide, 1, 1)}
    yield f"{path}.quantize.embedding.weight", (c.size(words), wide), 1
    down, block, attention = names
    attending = partial(convolved_attention, name=attention)
    named = partial(levels, block=block, attention=attending)
    yield from named(f"{path}.encoder.{down}", blocks, attends, base, widths)
    if decodes:
        ends |= {"decoder.conv_in": (last, latent, 3, 3), "decoder.conv_out": (c.size("out_channels"), widths[0], 3, 3)}
        ends |= {"decoder.norm_out": (widths[0],)}
        up = f"{path}.decoder.up"
        yield from named(up, blocks + 1, attends[::-1], last, widths[::-1], sampling="upsample")
    yield from placed(path, with_biases(ends))
    for half in ("encoder", "decoder")[: 1 + decodes]:
        for i in (1, 2):
            yield from resnet(f"{path}.{half}.mid.block_{i}", last, last, group_norm)
        if middle:
            yield from convolved(f"{path}.{half}.mid.attn_1", last)


def group_norm(path: str, width: int) -> Iterator[NamedShape]:
    yield from placed(path, {"weight": (width,), "bias": (width,)})


def convolved_attention(at: str, block: int, width: int, name: str = "attn.{}") -> Iterator[NamedShape]:
    yield from convolved(f"{at}.{name.format(block)}", width)


def levels(
    path: str,
    blocks: int,
    attends: Sequence[bool],
    given: int,
    widths: Sequence[int],
    *,
    norm: NormOf = group_norm,
    block: str = "block.{}",
    attention: AttentionOf = convolved_attention,
    sampling: str = "downsample",
    backwards: bool = False,
) -> Iterator[NamedShape]:
    """Blocks at each resolution, in the order in which they run, and a convolution between two resolutions; numbered
    backwards where a decoder's levels are called like the encoder's."""
    last = len(widths) - 1
    for step, width in enumerate(widths):
        at = f"{path}.{last - step if backwards else step}"
        for i in range(blocks):
            yield from resnet(f"{at}.{block.format(i)}", width if i else given, width, norm)
            if attends[step]:
                yield from attention(at, i, width)
        if step != last:
            yield from placed(at, with_biases({f"{sampling}.conv": (width, width, 3, 3)}))
        given = width


def resnet(path: str, given: int, width: int, norm: NormOf) -> Iterator[NamedShape]:
    """Two convolutions, each behind a norm, and a third where the width changes."""
    convolutions: Shapes = {"conv1": (width, given, 3, 3), "conv2": (width, width, 3, 3)}
    if given != width:
        convolutions |= {"nin_shortcut": (width, given, 1, 1)}
    yield from norm(f"{path}.norm1", given)
    yield from norm(f"{path}.norm2", width)
    yield from placed(path, with_biases(convolutions))


def spatial_norm(seen: int, path: str, width: int) -> Iterator[NamedShape]:
    """A norm whose scale and shift follow the code at each place."""
    yield from placed(path, with_biases({"norm_layer": (width,)}))
    yield from placed(path, with_biases({"conv_y": (width, seen, 1, 1), "conv_b": (width, seen, 1, 1)}))


def convolved(path: str, width: int) -> Iterator[NamedShape]:
    """Attention whose matrices are convolutions of one place."""
    matrices: Shapes = dict.fromkeys(("q", "k", "v", "proj_out"), (width, width, 1, 1))
    yield from placed(path, with_biases({**matrices, "norm": (width,)}))


def projected(path: str, hidden: int) -> Iterator[NamedShape]:
    """Attention of a width of its own."""
    matrices: Shapes = dict.fromkeys(("q_proj", "k_proj", "v_proj", "out_proj"), (hidden, hidden))
    yield from placed(path, with_biases(matrices))


def over_time(path: str, width: int, frames: int, halvings: int, blocks: int) -> Iterator[NamedShape]:
    """Convolutions over frames of a video, and blocks of two."""
    inner: Shapes = {"conv1.conv": (width, width, 3, 3, 3), "conv2.conv": (width, width, 3, 3, 3)}
    norms: Shapes = {"norm1": (width,), "norm2": (width,)}
    sampling = with_biases({"conv.conv": (width, width, frames, 3, 3)})
    yield from placed(f"{path}.time_conv.{{layer}}", sampling, halvings)
    yield from placed(f"{path}.time_res_stack.{{layer}}", with_biases({**inner, **norms}), blocks)
    for norm in norms:
        yield from batch_statistics(f"{path}.time_res_stack.{{layer}}.{norm}", width, blocks)


# Janus, arXiv:2410.13848: SigLIP's layers to see, and a quantized autoencoder to draw


def janus(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Encoder, image generator, and the matrices between them and the language model."""
    d, path = c.size("hidden_size"), "model.vision_model"
    normed = ("self_attn.q_norm", "self_attn.k_norm") if c.flag("use_qk_norm") else ()
    layer = Layer(out="self_attn.projection_layer", norms=(*Layer.norms, *normed), qkv_bias=c.flag("attention_bias"))
    yield from siglip_layers(c, path, patch(c), patches(c), layer, int(d * c.real("mlp_ratio")))
    yield from aligner("model.aligner", d, c.size("projection_dim"), c.size("depth"))
    v = section(whole, "vq_config")
    words, wide, out = v.sizes("num_embeddings", "embed_dim", "projection_dim")
    coarsest = [False] * (len(level_widths(v)) - 1) + [True]
    yield from vqgan(v, "model.vqmodel", coarsest, decodes=True)
    yield "model.generation_embeddings.weight", (words, wide), 1
    yield from aligner("model.generation_aligner", wide, out, v.size("num_hidden_layers"))
    head: Shapes = {"proj_out": (out, v.size("image_token_embed_dim")), "vision_head": (words, out)}
    yield from placed("model.generation_head", with_biases(head))


def aligner(path: str, seen: int, wide: int, depth: int) -> Iterator[NamedShape]:
    """Matrices one behind the other."""
    yield from placed(path, with_biases({"fc1": (wide, seen)}))
    for i in range(depth - 1):
        yield from placed(f"{path}.hidden_layers.{i}", {"weight": (wide, wide), "bias": (wide,)})


CODECS: dict[str, Tower] = {
    "apertus1p5": images(apertus, "audio_config"),
    "chameleon": by_sections(chameleon, "vq_config"),
    "emu3": by_sections(emu3, "vq_config"),
    "janus": images(janus, "vq_config"),
}
"""model_type of a wrapper -> its codec."""
