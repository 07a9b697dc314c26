"""Encoders for images from the library timm, by the architecture that a section names (timm 1.0)."""

from collections.abc import Iterator
from typing import NamedTuple

from calc.families.fields import Fields
from calc.families.tower_parts import FUSED, batch_statistics, height_and_width, placed
from calc.model.tensor import Shape, Shapes, weights, with_biases
from calc.model.vision import NamedShape


class ConvolvedStage(NamedTuple):
    """Blocks of one width: of each how much wider it is inside, and its kernels before and within (0: none)."""

    width: int
    blocks: tuple[tuple[int, int, int], ...]
    attends: int = 0  # how often attention and a block twice as wide follow
    heads: int = 0  # of the queries, which share one key and value
    d_head: int = 0
    fewer: bool = False  # keys and values of every second place


MOBILENET = (
    ConvolvedStage(256, ((6, 3, 5), (4, 5, 0), (4, 3, 0), (4, 5, 0), (4, 3, 0))),
    ConvolvedStage(640, ((6, 5, 5), *((4, 5, 0),) * 7, (1, 0, 0)), attends=14, heads=12, d_head=64, fewer=True),
    ConvolvedStage(1280, ((6, 5, 5),), attends=19, heads=16, d_head=96),
)
"""Blocks of MobileNetV5-300M, after its first stage."""


def mobilenet(path: str) -> Iterator[NamedShape]:
    """MobileNetV5-300M, the encoder for images of Gemma 3n (timm `mobilenetv5.py`)."""
    width = 64
    yield from placed(f"{path}.conv_stem", {"conv.weight": (width, 3, 3, 3), "conv.bias": (width,)})
    yield f"{path}.conv_stem.bn.weight", (width,), 1
    for i, given in enumerate((64, 128, 128)):
        block: Shapes = {"conv_exp": (4 * given, given, 3, 3), "bn1": (4 * given,)}
        block |= {"conv_pwl": (128, 4 * given, 1, 1), "bn2": (128,)}
        yield from placed(f"{path}.blocks.0.{i}", weights(block))
    given = 128
    for number, stage in enumerate(MOBILENET, start=1):
        at, width = f"{path}.blocks.{number}", stage.width
        for i, (times, start, middle) in enumerate(stage.blocks):
            yield from placed(f"{at}.{i}", inverted(given, times * given, width, start, middle))
            given = width
        for i in range(len(stage.blocks), len(stage.blocks) + 2 * stage.attends, 2):
            yield from placed(f"{at}.{i}", shared_keys(stage))
            yield from placed(f"{at}.{i + 1}", inverted(width, 2 * width, width, 0, 0))
    fused = sum(stage.width for stage in MOBILENET if stage.attends)
    fusion: Shapes = {"ffn.pw_exp.conv": (2 * fused, fused, 1, 1), "ffn.pw_exp.bn": (2 * fused,)}
    fusion |= {"ffn.pw_proj.conv": (2048, 2 * fused, 1, 1), "ffn.pw_proj.bn": (2048,), "norm": (2048,)}
    yield from placed(f"{path}.msfa", weights(fusion))


def inverted(given: int, inner: int, width: int, start: int, middle: int) -> Shapes:
    """A bottleneck that is wider inside, with a convolution of each channel before it, within it, both or none."""
    modules: dict[str, Shape] = {}
    if start:
        modules |= {"dw_start.conv": (given, 1, start, start), "dw_start.bn": (given,)}
    modules |= {"pw_exp.conv": (inner, given, 1, 1), "pw_exp.bn": (inner,)}
    if middle:
        modules |= {"dw_mid.conv": (inner, 1, middle, middle), "dw_mid.bn": (inner,)}
    modules |= {"pw_proj.conv": (width, inner, 1, 1), "pw_proj.bn": (width,)}
    return weights(modules) | {"layer_scale.gamma": (width,)}


def shared_keys(stage: ConvolvedStage) -> Shapes:
    """Attention whose heads share one key and value, of every place or of every second."""
    width, d_head, q = stage.width, stage.d_head, stage.heads * stage.d_head
    modules: Shapes = {"norm": (width,), "attn.query.proj": (q, width, 1, 1), "attn.output.proj": (width, q, 1, 1)}
    for name in ("key", "value"):
        modules |= {f"attn.{name}.proj": (d_head, width, 1, 1)}
        if stage.fewer:
            modules |= {f"attn.{name}.down_conv": (width, 1, 3, 3), f"attn.{name}.norm": (width,)}
    return weights(modules) | {"layer_scale.gamma": (width,)}


FASTVIT_STAGES = ((96, 2, False), (192, 12, False), (384, 24, False), (768, 4, True), (1536, 2, True))
"""Stages of FastViT-MCI3: width, blocks, and whether they attend."""


def fastvit(path: str) -> Iterator[NamedShape]:
    """FastViT-MCI3 of FastVLM, arXiv:2412.13303, with its branches merged (timm `fastvit.py`)."""
    first = FASTVIT_STAGES[0][0]
    stem: Shapes = {"0": (first, 3, 3, 3), "1": (first, 1, 3, 3), "2": (first, first, 1, 1)}
    yield from placed(f"{path}.stem", merged(stem))
    for stage, (width, blocks, attends) in enumerate(FASTVIT_STAGES):
        at = f"{path}.stages.{stage}"
        if stage:
            halved: Shapes = {"downsample.proj.0": (width, 1, 7, 7), "downsample.proj.1": (width, width, 1, 1)}
            yield from placed(at, merged(halved))
        if attends:
            yield from placed(at, merged({"pos_emb": (width, 1, 7, 7)}))
        mlp: Shapes = {"mlp.fc1": (4 * width, width, 1, 1), "mlp.fc2": (width, 4 * width, 1, 1)}
        block = with_biases({**mlp, "mlp.conv.bn": (width,)}) | weights({"mlp.conv.conv": (width, 1, 7, 7)})
        if attends:
            block |= with_biases({"norm": (width,), "token_mixer.proj": (width, width)})
            block |= weights({"token_mixer.qkv": (3 * width, width)})
            block |= {"layer_scale_1.gamma": (width, 1, 1), "layer_scale_2.gamma": (width, 1, 1)}
        else:
            block |= {**merged({"token_mixer": (width, 1, 3, 3)}), "layer_scale.gamma": (width, 1, 1)}
        yield from placed(f"{at}.blocks.{{layer}}", block, blocks)
        yield from batch_statistics(f"{at}.blocks.{{layer}}.mlp.conv.bn", width, blocks)
    last = FASTVIT_STAGES[-1][0]
    squeeze: Shapes = {"se.fc1": (last // 8, 2 * last, 1, 1), "se.fc2": (2 * last, last // 8, 1, 1)}
    yield from placed(f"{path}.final_conv", with_biases(squeeze) | merged({"": (2 * last, 1, 3, 3)}))


def merged(convolutions: Shapes) -> Shapes:
    """Convolutions into which their branches were merged."""
    return with_biases({f"{name}.reparam_conv".removeprefix("."): shape for name, shape in convolutions.items()})


class Perception(NamedTuple):
    """timm's defaults of a Perception Encoder's arguments."""

    embed_dim: int
    depth: int
    img_size: int
    wide: int  # of the feed-forward, where embed_dim is as above
    class_token: bool
    norm: bool = False  # behind the last layer
    scale: float | None = 0.1


PERCEPTION = {
    "vit_pe_core_gigantic_patch14_448": Perception(1536, 50, 448, 8960, class_token=False, norm=True, scale=None),
    "vit_pe_core_large_patch14_336": Perception(1024, 24, 336, 4096, class_token=True, norm=True, scale=None),
    "vit_pe_lang_gigantic_patch14_448": Perception(1536, 47, 448, 8960, class_token=False),
    "vit_pe_lang_large_patch14_448": Perception(1024, 23, 448, 4096, class_token=True),
}
ARGUMENTS = frozenset(
    "depth embed_dim global_pool img_size init_values ref_feat_shape use_post_transformer_norm".split()
)


def arguments(c: Fields) -> Fields:
    """Arguments to timm that a section states against the architecture's."""
    return c.section("model_args")


def is_known_perception(c: Fields) -> bool:
    """Whether all is stated that we know, and nothing pools the patches."""
    return arguments(c).get("global_pool") == "" and arguments(c).stated.keys() <= ARGUMENTS


def perception(c: Fields, path: str) -> Iterator[NamedShape]:
    """A Perception Encoder, arXiv:2504.13181, without its pooling head (timm `eva.py`)."""
    usual = PERCEPTION[c.get("architecture")]
    a = Fields(arguments(c).stated, usual._asdict(), {})
    d, n, p = a.size("embed_dim"), a.size("depth"), 14
    height, width = height_and_width(a, "img_size")
    layer = FUSED.shapes(d, usual.wide * d // usual.embed_dim)
    if usual.class_token:
        yield f"{path}.cls_token", (1, 1, d), 1
    yield f"{path}.pos_embed", (1, (height // p) * (width // p) + usual.class_token, d), 1
    yield f"{path}.patch_embed.proj.weight", (d, 3, p, p), 1
    yield from placed(path, with_biases({"norm_pre": (d,)}))
    if a.flag("use_post_transformer_norm") if a.states("use_post_transformer_norm") else usual.norm:
        yield from placed(path, with_biases({"norm": (d,)}))
    if (a.get("init_values") if a.states("init_values") else usual.scale) is not None:
        layer |= {"gamma_1": (d,), "gamma_2": (d,)}
    yield from placed(f"{path}.blocks.{{layer}}", layer, n)
