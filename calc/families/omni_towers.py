"""Encoders for images and for sound of one wrapper.

Read off the classes of transformers 5.23, `modeling_*.py` of each model_type; names are the checkpoints'.
"""

import math
import struct
from collections.abc import Iterator, Mapping
from itertools import pairwise

from calc.families import tower_defaults as defaults
from calc.families.encoders import qwen2_5, qwen3
from calc.families.family import Tower
from calc.families.fields import Fields
from calc.families.sound_towers import batch_statistics, convolved, two_convolutions, whisper_layer
from calc.families.tower_parts import not_counted, section
from calc.families.tower_shapes import each, images, norms, with_defaults
from calc.model.tensor import Shapes
from calc.model.towers.listed import GATED, TEXT, Layer, ListedTower, biased
from calc.model.towers.named_shapes import NamedShape, placed, weights, with_biases

SECTIONS = ("vision_config", "audio_config")


# Qwen's, of which the config of the whole has no section for images


def omni2_5(c: Fields, whole: Fields) -> ListedTower:
    """Qwen2.5-Omni, arXiv:2503.20215: Qwen2.5-VL's encoder, its queries, keys and values apart, and Whisper's."""
    d = c.size("hidden_size")
    return not_counted(split_qkv(qwen2_5(c, "visual"), d), whispered(section(whole, "audio_config", defaults.AUDIO)))


def split_qkv(rows: Iterator[NamedShape], d: int) -> Iterator[NamedShape]:
    """Rows with three matrices, of queries, keys and values, for each fused one."""
    for name, shape, copies in rows:
        if ".attn.qkv." in name:
            yield from ((name.replace(".qkv.", f".{letter}."), (d, *shape[1:]), copies) for letter in "qkv")
        else:
            yield name, shape, copies


def whispered(a: Fields) -> Iterator[NamedShape]:
    """Whisper's encoder, arXiv:2212.04356, with computed positions and a matrix."""
    d, out, path = a.size("d_model"), a.size("output_dim"), "audio_tower"
    front = two_convolutions(d, a.size("num_mel_bins")) | norms(d, "ln_post") | {"proj": (out, d)}
    yield from placed(path, with_biases(front) | weights({"audio_bos_eos_token": (2, out)}))
    layer = with_biases(whisper_layer(d, a.size("encoder_ffn_dim"))) | weights({"self_attn.k_proj": (d, d)})
    yield from placed(f"{path}.layers.{{layer}}", layer, a.size("encoder_layers"))


QWEN3_MERGERS = {"deepstack_merger": "merger", ".norm.": ".ln_q.", "linear_fc1": "mlp.0", "linear_fc2": "mlp.2"}
"""Modules of Qwen3-VL's mergers -> their names in Qwen3-Omni."""


def omni3(c: Fields, whole: Fields) -> ListedTower:
    """Qwen3-Omni, arXiv:2509.17765: Qwen3-VL's encoder, and convolutions over time and pitch before layers."""
    a = section(whole, "audio_config", defaults.AUDIO)
    d = a.size("d_model")
    matrices: Shapes = {"proj1": (d, d), "proj2": (a.size("output_dim"), d)}
    sound = (*convolved(a, "audio_tower"), *placed("audio_tower", with_biases(matrices)))
    return not_counted(renamed_mergers(qwen3(c, "visual")), sound)


def renamed_mergers(rows: Iterator[NamedShape]) -> Iterator[NamedShape]:
    """All rows, mergers under other names."""
    for name, shape, copies in rows:
        if "merger" in name:
            for stored, here in QWEN3_MERGERS.items():
                name = name.replace(stored, here)
        yield name, shape, copies


# Nemotron 3 Nano Omni: RADIO, arXiv:2312.06709, and Parakeet


RADIO = {
    "hidden_size": 1280,
    "num_hidden_layers": 32,
    "num_attention_heads": 16,
    "mlp_ratio": 4.0,
    "use_swiglu_ffn": False,
    "qkv_bias": True,
    "num_channels": 3,
    "patch_size": 16,
    "max_img_size": 2048,
    "num_cls_tokens": 3,
    "num_registers": 7,
    "video_temporal_patch_size": 2,
    "summary_idxs": [0, 1],
}
PARAKEET = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 8,
    "num_key_value_heads": None,
    "attention_bias": False,
    "convolution_bias": True,
    "conv_kernel_size": 9,
    "num_mel_bins": 80,
    "subsampling_conv_channels": 256,
    "subsampling_conv_kernel_size": 3,
    "subsampling_conv_stride": 2,
    "subsampling_factor": 8,
    "projection_bias": False,
}


def nemotron(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Image encoder, projector, and the sound encoder where the config has a section for it."""
    yield from radio(c, "vision_model.radio_model.model")
    outer = with_defaults(whole, {"projector_hidden_size": 4096, "downsample_ratio": 0.5})
    seen = whole.maybe("vision_hidden_size") or whole.maybe("vit_hidden_size") or 1280
    merged, wide = seen * int(1 / outer.real("downsample_ratio")) ** 2, outer.size("projector_hidden_size")
    yield from placed("mlp1", weights({"0": (merged,), "1": (wide, merged), "3": (TEXT, wide)}))
    text = section(whole, "text_config" if whole.states("text_config") else "llm_config")
    if text.maybe("num_nextn_predict_layers", 0):
        yield from placed("vision_final_layernorm", {"weight": (seen,), "bias": (seen,)})
    if (a := hearing(whole)) is not None:
        d, middle = a.size("hidden_size"), a.size("projection_hidden_size")
        yield from parakeet(a, "sound_encoder.encoder")
        yield "sound_projection.norm.weight", (d,), 1
        matrices: Shapes = {"linear1": (middle, d), "linear2": (TEXT, middle)}
        yield from placed("sound_projection", biased(a.flag("projection_bias"), matrices))


def hearing(whole: Fields) -> Fields | None:
    """The section for sound, under one of its two names."""
    names = [name for name in ("audio_config", "sound_config") if isinstance(whole.get(name), Mapping)]
    return section(whole, names[0], PARAKEET) if names else None


def radio(c: Fields, path: str) -> Iterator[NamedShape]:
    """Registers with class tokens, patches of images and of two frames, positions that are cut to an image's size."""
    d, front = c.size("hidden_size"), f"{path}.patch_generator"
    patch = c.size("num_channels") * c.size("patch_size") ** 2
    yield f"{front}.cls_token.token", (c.size("num_cls_tokens") + c.size("num_registers"), d), 1
    yield f"{front}.pos_embed", (1, (c.size("max_img_size") // c.size("patch_size")) ** 2, d), 1
    yield f"{front}.embedder.weight", (d, patch), 1
    if (frames := c.maybe("video_temporal_patch_size")) is not None:
        yield f"{front}.video_embedder.weight", (d, frames * patch), 1
    f, heads, gated = int(d * c.real("mlp_ratio")), c.size("num_attention_heads"), c.flag("use_swiglu_ffn")
    layer = Layer(
        qkv=("attn.qkv",),
        out="attn.proj",
        mlp=GATED if gated else ("mlp.fc1", "mlp.fc2"),
        norms=("norm1", "norm2"),
        scales=("layer_scale1.lambda1", "layer_scale2.lambda1"),
        qkv_bias=c.flag("qkv_bias"),
    )
    thirds = (int(f * 2 / 3) + 7) // 8 * 8  # two of them, in eights
    blocks = layer.shapes(d, thirds if gated else f, q=heads * (c.maybe("head_dim") or d // heads))
    yield from placed(f"{path}.blocks.{{layer}}", blocks, c.size("num_hidden_layers"))


def parakeet(a: Fields, path: str) -> Iterator[NamedShape]:
    """FastConformer, arXiv:2305.05084."""
    d, f, heads, kernel = (
        a.size(x) for x in ("hidden_size", "intermediate_size", "num_attention_heads", "conv_kernel_size")
    )
    d_head = a.maybe("head_dim") or d // heads
    q, kv = heads * d_head, (a.maybe("num_key_value_heads") or heads) * d_head
    matrices: Shapes = {"self_attn.q_proj": (q, d), **each("self_attn.{}_proj", (kv, d), "kv")}
    matrices |= {"self_attn.o_proj": (d, q)}
    for i in (1, 2):
        matrices |= {f"feed_forward{i}.linear1": (f, d), f"feed_forward{i}.linear2": (d, f)}
    convolutions: Shapes = {"pointwise_conv1": (2 * d, d, 1), "depthwise_conv": (d, 1, kernel)}
    convolutions |= {"pointwise_conv2": (d, d, 1)}
    layer = biased(a.flag("attention_bias"), matrices)
    layer |= biased(a.flag("convolution_bias"), {f"conv.{name}": shape for name, shape in convolutions.items()})
    norm_names = (f"norm_{part}" for part in ("feed_forward1", "self_att", "conv", "feed_forward2", "out"))
    layer |= with_biases(norms(d, "conv.norm", *norm_names)) | weights({"self_attn.relative_k_proj": (q, d)})
    layer |= {"self_attn.bias_u": (heads, d_head), "self_attn.bias_v": (heads, d_head)}
    yield from placed(f"{path}.layers.{{layer}}", layer, a.size("num_hidden_layers"))
    wide, k = a.size("subsampling_conv_channels"), a.size("subsampling_conv_kernel_size")
    halvings = int(math.log2(a.size("subsampling_factor")))
    front: Shapes = {"layers.0": (wide, 1, k, k)}
    for i in range(2, 3 * halvings - 1, 3):  # an activation after each
        front |= {f"layers.{i}": (wide, 1, k, k), f"layers.{i + 1}": (wide, wide, 1, 1)}
    pitches = a.size("num_mel_bins") // a.size("subsampling_conv_stride") ** halvings
    yield from placed(f"{path}.subsampling", with_biases({**front, "linear": (d, wide * pitches)}))


def nemotron_statistics(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Class tokens that sum an image up, and the running statistics of Parakeet's batch norms."""
    words = c.get("summary_idxs")
    yield "vision_model.radio_model.summary_idxs", (len(words) if isinstance(words, list) else 2,), 1
    if (a := hearing(whole)) is not None:
        path = "sound_encoder.encoder.layers.{layer}.conv.norm"
        yield from batch_statistics(path, a.size("hidden_size"), a.size("num_hidden_layers"))


# Inkling: a perceptron that folds a patch step by step, and a table of pitches


INKLING = {"patch_size": 40, "temporal_patch_size": 2, "num_channels": 3, "n_layers": 24}
INKLING_SOUND = {"n_mel_bins": 80, "mel_vocab_size": 256}


def inkling(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    frames, side = c.size("temporal_patch_size"), c.size("patch_size", least=2)
    steps = scales(frames, side, c.size("num_channels"), c.size("n_layers"))
    for i, (fine, coarse) in enumerate(pairwise(steps)):
        folded = math.prod(b // a for a, b in zip(fine[:3], coarse[:3], strict=True))
        last = i == len(steps) - 2
        out = TEXT if last else coarse[3]
        yield f"model.visual.layers.linear_{i}.weight", (out, fine[3] * folded), 1
        if not last:
            yield f"model.visual.layers.norm_{i}.weight", (out,), 1
    yield "model.visual.final_norm.weight", (TEXT,), 1
    a = section(whole, "audio_config", INKLING_SOUND)
    yield "model.audio.encoder.weight", (a.size("n_mel_bins") * a.size("mel_vocab_size"), TEXT), 1
    yield "model.audio.final_norm.weight", (TEXT,), 1


Scale = tuple[int, int, int, int]  # frames, height and width of what has been folded, and channels


def scales(frames: int, side: int, channels: int, layers: int) -> list[Scale]:
    """Inputs of each layer, and output of the last: of the steps from a pixel to a patch, first over its sides and then
    over its frames, those nearest to equal ratios; each once where there are more of them than layers."""
    sides, times = cumulative(side), cumulative(frames)
    steps: list[Scale] = [(1, 1, 1, channels)]
    steps += [(1, h, h, -(-h * h * channels // 64) * 64) for h in sides]
    steps += [(t, sides[-1], sides[-1], sides[-1] ** 2 * channels * t * 64) for t in times]
    sizes = [fp32(math.log(t * h * w)) for t, h, w, _ in steps]
    whole = fp32(math.log(side * side * frames * channels))
    step = fp32(whole / layers)
    ideal = [fp32(step * i) if 2 * i < layers + 1 else fp32(whole - step * (layers - i)) for i in range(layers + 1)]
    if layers >= len(steps):
        distances = [[fp32(abs(at - size)) for size in sizes] for at in ideal]
        chosen = [row.index(min(row)) for row in distances]
    else:
        chosen = assigned(ideal, sizes)
    return [steps[j] for j in (0, *chosen[1:-1], len(steps) - 1)]


def fp32(number: float) -> float:
    """The number in fp32, as in the class: it decides ties."""
    (single,) = struct.unpack("f", struct.pack("f", number))
    return float(single)


def cumulative(number: int) -> list[int]:
    """Products of its prime factors, the largest first."""
    factors, rest, prime = list[int](), number, 2
    while rest > 1:
        if prime * prime > rest:
            prime = rest
        if rest % prime:
            prime += 1
        else:
            factors.append(prime)
            rest //= prime
    products, product = list[int](), 1
    for factor in reversed(factors):
        product *= factor
        products.append(product)
    return products


def assigned(ideal: list[float], sizes: list[float]) -> list[int]:
    """The step of each layer where none has another's: those whose distances to the ideal add up to least. Both lists
    ascend, so that layers take their steps in order."""
    best: list[tuple[float, list[int]]] = [(0.0, [])] * (len(sizes) + 1)
    for at in ideal:
        row: list[tuple[float, list[int]]] = [(math.inf, [])]
        for j, size in enumerate(sizes):
            cost, before = best[j]
            row.append(min(row[-1], (cost + abs(at - size), [*before, j]), key=lambda choice: choice[0]))
        best = row
    return best[-1][1]


OMNI: dict[str, Tower] = {
    "inkling_mm_model": images(inkling, INKLING, "audio_config"),
    "nemotron_h_omni": images(nemotron, RADIO, "audio_config", "sound_config", statistics=nemotron_statistics),
    "qwen2_5_omni_thinker": Tower(omni2_5, defaults.QWEN2_5, SECTIONS),
    "qwen3_omni_moe_thinker": Tower(omni3, defaults.QWEN3_VL, SECTIONS),
}
"""model_type of a wrapper -> its towers."""
