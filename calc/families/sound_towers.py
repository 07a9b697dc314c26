"""Encoders for sound, alone or next to one for images, and what leads from them into a language model.

Read off the classes of transformers 5.23, `modeling_*.py` of each model_type; names are the checkpoints'.
"""

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from calc.errors import ConfigError, Message
from calc.families.encoders import qformer, qwen2_5, qwen3, siglip, timm_of
from calc.families.family import GEMMA_NORMS
from calc.families.fields import MLP_KINDS, Fields
from calc.families.tower_parts import (
    FUSED,
    GATED,
    PROJECTOR,
    Layer,
    Tower,
    batch_statistics,
    buffers,
    by_sections,
    each,
    flat_patch,
    head_widths,
    height_and_width,
    images,
    layers,
    listed,
    norms,
    numbers,
    patch,
    placed,
    renamed,
    section,
    two_matrices,
)
from calc.model.tensor import Shapes, biased, weights, with_biases
from calc.model.vision import TEXT, ListedTower, NamedShape, TowerBuffer

FIELDS = ("hidden_size", "intermediate_size", "num_hidden_layers")
WHISPER_FIELDS = ("d_model", "encoder_ffn_dim", "encoder_layers")
WHISPER_LAYER = Layer(mlp=("fc1", "fc2"), norms=("self_attn_layer_norm", "final_layer_norm"), key_bias=False)


def two_convolutions(hidden: int, mel_bins: int) -> Shapes:
    """Whisper's, over time."""
    return {"conv1": (hidden, mel_bins, 3), "conv2": (hidden, hidden, 3)}


def whisper(c: Fields, path: str, fields: tuple[str, str, str] = FIELDS) -> Iterator[NamedShape]:
    """Whisper's encoder, arXiv:2212.04356, with a table of positions."""
    d, f, n = c.sizes(*fields)
    yield from placed(path, with_biases(two_convolutions(d, c.size("num_mel_bins")) | norms(d, "layer_norm")))
    yield f"{path}.embed_positions.weight", (c.size("max_source_positions"), d), 1
    yield from placed(f"{path}.layers.{{layer}}", WHISPER_LAYER.shapes(d, f), n)


def qwen2_audio(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    yield from whisper(c, "audio_tower", WHISPER_FIELDS)
    yield from placed(PROJECTOR, with_biases({"linear": (TEXT, c.size("d_model"))}))


def voxtral(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Voxtral, arXiv:2507.13264: the projector takes as many frames at once as fill the feed-forward's width."""
    yield from whisper(c, "audio_tower")
    yield from placed(PROJECTOR, weights(two_matrices(c.size("intermediate_size"))))


def moss(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    yield from whisper(c, "model.audio_tower")
    frames = whole.maybe("audio_merge_size") or 4
    linear = biased(whole.get("projector_bias") is not False, two_matrices(frames * c.size("hidden_size")))
    yield from placed(f"model.{PROJECTOR}", linear | with_biases(norms(TEXT, "norm")))


def voxtral_realtime(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """A causal encoder with rotary positions and gated feed-forward."""
    d, f, path = c.size("hidden_size"), c.size("intermediate_size"), "audio_tower"
    wide = c.size("num_attention_heads") * c.size("head_dim")
    yield from placed(f"{path}.embedder", with_biases(two_convolutions(d, c.size("num_mel_bins"))))
    layer = replace(WHISPER_LAYER, out="self_attn.o_proj", mlp=GATED, mlp_bias=False, norm_bias=False)
    shapes = layer.shapes(d, f, q=wide) | {"mlp.down_proj.bias": (d,)}
    yield from placed(f"{path}.layers.{{layer}}", shapes, c.size("num_hidden_layers"))
    yield from placed(path, weights(norms(d, "norm")))
    frames = whole.maybe("downsample_factor") or 4
    yield from placed(PROJECTOR, weights(two_matrices(frames * d)))


def qwen3_asr(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    d, out = c.sizes("d_model", "output_dim")
    yield from convolved(c, "model.audio_tower")
    yield from placed(f"model.{PROJECTOR}", with_biases(two_matrices(d, d, out)))


def three_convolutions(wide: int) -> Shapes:
    """Qwen3-Omni's, over time and pitch."""
    return {"conv2d1": (wide, 1, 3, 3), "conv2d2": (wide, wide, 3, 3), "conv2d3": (wide, wide, 3, 3)}


def convolved(c: Fields, path: str) -> Iterator[NamedShape]:
    """Three convolutions over time and pitch, each with a stride of 2, then Whisper's layers."""
    d, f, n, wide = c.sizes(*WHISPER_FIELDS, "downsample_hidden_size")
    yield from placed(path, with_biases(three_convolutions(wide) | norms(d, "ln_post")))
    yield f"{path}.conv_out.weight", (d, wide * -(-c.size("num_mel_bins") // 8)), 1
    yield from placed(f"{path}.layers.{{layer}}", replace(WHISPER_LAYER, key_bias=True).shapes(d, f), n)


def glm_asr(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Whisper's sizes with rotary positions."""
    d, f, path = *c.sizes("hidden_size", "intermediate_size"), "audio_tower"
    q, kv, _ = head_widths(c)
    yield from placed(path, with_biases(two_convolutions(d, c.size("num_mel_bins")) | norms(d, "norm")))
    layer = Layer(out="self_attn.o_proj", norms=("input_layernorm", "post_attention_layernorm"), key_bias=False)
    yield from layers(c, f"{path}.layers", layer, q=q, kv=kv)
    yield from placed(PROJECTOR, with_biases(two_matrices(f, 2 * TEXT)))


def fun_asr_layer(d: int, f: int, first: int) -> Shapes:
    """A layer whose input is `first` wide."""
    layer: Shapes = each("self_attn.{}_proj", (d, first)) | {"self_attn.o_proj": (d, d)}
    layer |= {"mlp.fc1": (f, d), "mlp.fc2": (d, f)}
    return with_biases(layer | norms(first, "input_layernorm") | norms(d, "post_attention_layernorm"))


def fun_asr(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """SenseVoice's encoder, arXiv:2407.04051, with memory of a kernel in each layer; and an adaptor of layers."""
    d, f, n, path = *c.sizes(*FIELDS), "model.audio_tower"
    memory = weights({"self_attn.fsmn.conv": (d, 1, c.size("fsmn_kernel_size"))})
    stacked = c.size("num_mel_bins") * c.size("num_stacked_frames")
    yield from placed(f"{path}.layers.0", fun_asr_layer(d, f, stacked) | memory)
    for layer in range(1, n):
        yield from placed(f"{path}.layers.{layer}", fun_asr_layer(d, f, d) | memory)
    for layer in {n - c.size("num_timestamp_prediction_layers") - 1, n - 1} & set(range(n)):
        yield from placed(f"{path}.layers.{layer}", with_biases(norms(d, "final_layernorm")))
    a = section(whole, "adaptor_config")
    out, middle = a.size("hidden_size"), a.size("projector_hidden_size")
    yield from placed(f"model.{PROJECTOR}", with_biases(two_matrices(d, middle, out)))
    layer_shapes = fun_asr_layer(out, a.size("intermediate_size"), out)
    yield from placed(f"model.{PROJECTOR}.layers.{{layer}}", layer_shapes, a.size("num_hidden_layers"))


def granite_speech(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """A Conformer, arXiv:2005.08100, that is trained on characters, and a Q-Former over windows of its output."""
    d, heads = c.size("hidden_dim"), c.size("num_heads")
    d_head = c.maybe("dim_head") or d // heads
    wide, inner, f = d * c.size("conv_expansion_factor"), heads * d_head, d * c.size("feedforward_mult")
    layer = norms(d, "attn.pre_norm", "conv.norm", "ff1.pre_norm", "ff2.pre_norm", "post_norm")
    layer |= {f"ff{i}.up_proj": (f, d) for i in (1, 2)} | {f"ff{i}.down_proj": (d, f) for i in (1, 2)}
    layer |= {"attn.to_out": (d, inner), "conv.up_conv": (2 * wide, d, 1), "conv.down_conv": (d, wide, 1)}
    plain: Shapes = {"attn.to_q": (inner, d), "attn.to_kv": (2 * inner, d)}
    plain |= {"attn.rel_pos_emb": (2 * c.size("max_pos_emb") + 1, d_head)}
    plain |= {"conv.depth_conv.conv": (wide, 1, c.size("conv_kernel_size"))}
    blocks = with_biases(layer | norms(wide, "conv.batch_norm")) | weights(plain)
    yield from placed("encoder.layers.{layer}", blocks, c.size("num_layers"))
    yield from batch_statistics("encoder.layers.{layer}.conv.batch_norm", wide, c.size("num_layers"))
    characters = c.size("output_dim")
    ends: Shapes = {"input_linear": (d, c.size("input_dim")), "out": (characters, d), "out_mid": (d, characters)}
    yield from placed("encoder", with_biases(ends))
    p = section(whole, "projector_config")
    q = p.size("hidden_size")
    yield from qformer(p, "projector.qformer")
    queries = (whole.maybe("window_size") or 15) // (whole.maybe("downsample_rate") or 5)
    yield "projector.query", (1, queries, q), 1
    yield from placed("projector", with_biases({"linear": (TEXT, q)}))


def vibevoice(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """VibeVoice, arXiv:2508.19205: two encoders of sound, one for how it sounds and one for what is said."""
    for kind, usual in (("acoustic", 64), ("semantic", 128)):
        field = f"{kind}_tokenizer_encoder_config"
        t = section(whole, field)
        t = t.with_stated("hidden_size", usual) if whole.get(field) is None else t
        yield from tokenizer(t, f"{kind}_tokenizer_encoder")
        linear: Shapes = {f"{kind}_linear_1": (TEXT, t.size("hidden_size")), f"{kind}_linear_2": (TEXT, TEXT)}
        yield from placed(PROJECTOR, with_biases(linear) | weights(norms(TEXT, f"{kind}_norm")))


def tokenizer(t: Fields, path: str) -> Iterator[NamedShape]:
    """Stages of ConvNeXt layers, arXiv:2201.03545, each twice as wide as the one before."""
    kernel, times, filters = t.size("kernel_size"), t.size("ffn_expansion"), t.size("num_filters")
    depths, strides = numbers(t, "depths"), numbers(t, "downsampling_ratios")
    channels, last = t.size("channels"), filters << len(strides)
    yield from placed(f"{path}.stem.conv", with_biases({"conv": (filters, channels, kernel)}))
    yield from placed(f"{path}.head", with_biases({"conv": (t.size("hidden_size"), last, kernel)}))
    for i, stride in enumerate(strides):
        width = filters << i
        front: Shapes = {"conv": (2 * width, width, 2 * stride)}
        yield from placed(f"{path}.conv_layers.{i}.conv", with_biases(front))
    for i, depth in enumerate(depths[: len(strides) + 1]):
        d = filters << i
        layer = with_biases(
            {"mixer.conv": (d, 1, kernel), "ffn.linear1": (times * d, d), "ffn.linear2": (d, times * d)}
        )
        layer |= weights(norms(d, "norm", "ffn_norm")) | norms(d, "gamma", "ffn_gamma")
        stage = f"{path}.conv_layers.{i - 1}" if i else f"{path}.stem"
        yield from placed(f"{stage}.stage.{{layer}}", layer, depth)


def nemo(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Nemotron 3.5 Transcribe: an encoder of speech, one that tells speakers apart, and one that times words."""
    path = "perception.encoder"
    asr = section(whole, "audio_config.asr_config")
    audio, head = (section(whole, f"audio_config.diarization_config.{name}_config") for name in ("audio", "head"))
    yield from nemo_front(asr, f"{path}.asr_encoder")
    yield from nemo_layers(asr, f"{path}.asr_encoder", qk_norm=True)
    yield from nemo_front(audio, f"{path}.diarization_model.encoder")
    yield from nemo_layers(audio, f"{path}.diarization_model.encoder", qk_norm=False)
    d, wide, (h, n) = asr.size("hidden_size"), audio.size("hidden_size"), head.sizes("hidden_size", "num_speakers")
    modules: Shapes = {"encoder_proj": (h, head.size("audio_hidden_size")), "first_hidden_to_hidden": (h, h)}
    modules |= {"single_hidden_to_spks": (n, h), "subpixel_upsample": (h * head.size("subsampling_factor"), h, 3)}
    yield from placed(f"{path}.diarization_model.sortformer_modules", with_biases(modules))
    yield f"{path}.diarization_model.sortformer_modules.learnable_sil_emb", (wide,), 1
    yield from placed(path, with_biases(norms(d, "asr_norm") | norms(n, "diar_norm")))
    yield from placed("perception", with_biases({"proj": (TEXT, d)}))
    times = section(whole, "word_timestamp_config")
    t, factor, decoder = times.size("hidden_size"), times.size("upsampling_factor"), "ctc_timestamp.decoder"
    yield from placed(decoder, with_biases({"upsample": (t, t, factor)}))
    yield from placed(decoder, with_biases({"decoder_layers.0": (times.size("vocab_size"), t, 1)}))
    yield from nemo_layers(times, f"{decoder}.transformer", qk_norm=True)


def nemo_front(c: Fields, path: str) -> Iterator[NamedShape]:
    """Frames of the spectrogram, several at once."""
    frames = c.size("subsampling_factor") * c.size("num_mel_bins")
    yield f"{path}.pre_encode.proj.weight", (c.size("hidden_size"), frames), 1


def nemo_layers(c: Fields, path: str, *, qk_norm: bool) -> Iterator[NamedShape]:
    """Values have as many heads as queries."""
    d, f = c.sizes("hidden_size", "intermediate_size")
    q, k, d_head = head_widths(c)
    layer: Shapes = {"attn.out_proj": (d, q), "ffn.net.0": (f, d), "ffn.net.3": (d, f)} | norms(d, "norm1", "norm2")
    if qk_norm:
        layer |= norms(d_head, "attn.q_norm", "attn.k_norm")
    fused = weights({"attn.w_qkv": (2 * q + k, d)})
    yield from placed(path, with_biases(norms(d, "embed_norm", "final_norm")))
    yield from placed(f"{path}.layers.{{layer}}", with_biases(layer) | fused, c.size("num_hidden_layers"))


# Qwen's, of which the config of the whole has no section for images


def omni2_5(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Qwen2.5-Omni, arXiv:2503.20215: Qwen2.5-VL's encoder, its queries, keys and values apart, and Whisper's, with
    computed positions and a matrix."""
    yield from split_qkv(qwen2_5(c, "visual"), c.size("hidden_size"))
    a, path = section(whole, "audio_config"), "audio_tower"
    d, f, n, out = a.sizes(*WHISPER_FIELDS, "output_dim")
    front = two_convolutions(d, a.size("num_mel_bins")) | norms(d, "ln_post") | {"proj": (out, d)}
    yield from placed(path, with_biases(front) | weights({"audio_bos_eos_token": (2, out)}))
    yield from placed(f"{path}.layers.{{layer}}", WHISPER_LAYER.shapes(d, f), n)


def split_qkv(rows: Iterator[NamedShape], d: int) -> Iterator[NamedShape]:
    """Rows with three matrices, of queries, keys and values, for each fused one."""
    for name, shape, copies in rows:
        if ".attn.qkv." in name:
            yield from ((name.replace(".qkv.", f".{letter}."), (d, *shape[1:]), copies) for letter in "qkv")
        else:
            yield name, shape, copies


QWEN3_MERGERS = {"deepstack_merger": "merger", ".norm.": ".ln_q.", "r.linear_fc1": "r.mlp.0", "r.linear_fc2": "r.mlp.2"}
QWEN3_MERGERS |= {"}.linear_fc1": "}.mlp.0", "}.linear_fc2": "}.mlp.2"}
"""Modules of Qwen3-VL's mergers -> their names in Qwen3-Omni."""


def omni3(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Qwen3-Omni, arXiv:2509.17765: Qwen3-VL's encoder, and convolutions over time and pitch before layers."""
    yield from renamed(qwen3(c, "visual"), QWEN3_MERGERS)
    a = section(whole, "audio_config")
    d, out = a.sizes("d_model", "output_dim")
    yield from convolved(a, "audio_tower")
    yield from placed("audio_tower", with_biases({"proj1": (d, d), "proj2": (out, d)}))


# Nemotron 3 Nano Omni: RADIO, arXiv:2312.06709, and Parakeet


def nemotron(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Image encoder, projector, and the sound encoder where the config has a section for it."""
    yield from radio(c, "vision_model.radio_model.model")
    sums = c.get("summary_idxs")  # class tokens that sum an image up
    yield TowerBuffer("vision_model.radio_model.summary_idxs", (len(sums) if isinstance(sums, list) else 2,))
    seen = whole.maybe("vision_hidden_size") or whole.maybe("vit_hidden_size") or 1280
    merged, wide = seen * int(1 / whole.real("downsample_ratio")) ** 2, whole.size("projector_hidden_size")
    yield from placed("mlp1", weights({"0": (merged,), "1": (wide, merged), "3": (TEXT, wide)}))
    text = section(whole, "text_config" if whole.states("text_config") else "llm_config")
    if text.maybe("num_nextn_predict_layers", 0):
        yield from placed("vision_final_layernorm", {"weight": (seen,), "bias": (seen,)})
    names = [name for name in ("audio_config", "sound_config") if isinstance(whole.get(name), Mapping)]
    if names:
        a = section(whole, names[0])
        d, middle = a.size("hidden_size"), a.size("projection_hidden_size")
        yield from parakeet(a, "sound_encoder.encoder")
        yield "sound_projection.norm.weight", (d,), 1
        matrices: Shapes = {"linear1": (middle, d), "linear2": (TEXT, middle)}
        yield from placed("sound_projection", biased(a.flag("projection_bias"), matrices))


def radio(c: Fields, path: str) -> Iterator[NamedShape]:
    """Registers with class tokens, patches of images and of two frames, positions that are cut to an image's size."""
    d, front = c.size("hidden_size"), f"{path}.patch_generator"
    row = flat_patch(c)
    yield f"{front}.cls_token.token", (c.size("num_cls_tokens") + c.size("num_registers"), d), 1
    yield f"{front}.pos_embed", (1, (c.size("max_img_size") // c.size("patch_size")) ** 2, d), 1
    yield f"{front}.embedder.weight", row, 1
    if (frames := c.maybe("video_temporal_patch_size")) is not None:
        yield f"{front}.video_embedder.weight", (d, frames * row[1]), 1
    f, gated = int(d * c.real("mlp_ratio")), c.flag("use_swiglu_ffn")
    layer = replace(
        FUSED,
        mlp=GATED if gated else FUSED.mlp,
        scales=("layer_scale1.lambda1", "layer_scale2.lambda1"),
        qkv_bias=c.flag("qkv_bias"),
    )
    thirds = (int(f * 2 / 3) + 7) // 8 * 8  # two of them, in eights
    yield from layers(c, f"{path}.blocks", layer, thirds if gated else f, q=head_widths(c)[0])


def halving_convolutions(path: str, wide: int, kernel: int, halvings: int) -> Shapes:
    """Convolutions over time and pitch, each of which halves both, with an activation after each."""
    shapes: Shapes = {f"{path}.0": (wide, 1, kernel, kernel)}
    for i in range(2, 3 * halvings - 1, 3):
        shapes |= {f"{path}.{i}": (wide, 1, kernel, kernel), f"{path}.{i + 1}": (wide, wide, 1, 1)}
    return shapes


def parakeet(a: Fields, path: str) -> Iterator[NamedShape]:
    """FastConformer, arXiv:2305.05084."""
    d, f, heads, kernel = a.sizes("hidden_size", "intermediate_size", "num_attention_heads", "conv_kernel_size")
    q, kv, d_head = head_widths(a)
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
    yield from batch_statistics(f"{path}.layers.{{layer}}.conv.norm", d, a.size("num_hidden_layers"))
    wide, k = a.sizes("subsampling_conv_channels", "subsampling_conv_kernel_size")
    halvings = int(math.log2(a.size("subsampling_factor")))
    front = halving_convolutions("layers", wide, k, halvings)
    pitches = a.size("num_mel_bins") // a.size("subsampling_conv_stride") ** halvings
    yield from placed(f"{path}.subsampling", with_biases({**front, "linear": (d, wide * pitches)}))


# Inkling: a perceptron that folds a patch step by step, and a table of pitches


def inkling(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    frames, side = c.size("temporal_patch_size"), c.size("patch_size", least=2)
    steps = folding_steps(frames, side, c.size("num_channels"), c.size("n_layers"))
    for i, (fine, coarse) in enumerate(pairwise(steps)):
        folded = math.prod(b // a for a, b in zip(fine[:3], coarse[:3], strict=True))
        last = i == len(steps) - 2
        out = TEXT if last else coarse[3]
        yield f"model.visual.layers.linear_{i}.weight", (out, fine[3] * folded), 1
        if not last:
            yield f"model.visual.layers.norm_{i}.weight", (out,), 1
    yield "model.visual.final_norm.weight", (TEXT,), 1
    a = section(whole, "audio_config")
    yield "model.audio.encoder.weight", (a.size("n_mel_bins") * a.size("mel_vocab_size"), TEXT), 1
    yield "model.audio.final_norm.weight", (TEXT,), 1


Scale = tuple[int, int, int, int]  # frames, height and width of what has been folded, and channels


def folding_steps(frames: int, side: int, channels: int, layers: int) -> list[Scale]:
    """Inputs of each layer, and output of the last: of the steps from a pixel to a patch, first over its sides and then
    over its frames, those nearest to equal ratios; each once where there are more of them than layers."""
    sides, times = cumulative_products(side), cumulative_products(frames)
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
        chosen = nearest_steps(ideal, sizes)
    return [steps[j] for j in (0, *chosen[1:-1], len(steps) - 1)]


def fp32(number: float) -> float:
    """The number in fp32, as in the class: it decides ties."""
    (single,) = struct.unpack("f", struct.pack("f", number))
    return float(single)


def cumulative_products(number: int) -> list[int]:
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


def nearest_steps(ideal: list[float], sizes: list[float]) -> list[int]:
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


# Gemma

CLIPS = ("input_min", "input_max", "output_min", "output_max")
"""Limits that a clipped matrix keeps."""


def gemma3n(c: Fields, whole: Fields) -> ListedTower | None:
    """Gemma 3n: MobileNetV5 for images, a Conformer for sound, and tokens of their own."""
    encoder, a = timm_of(c), section(whole, "audio_config")
    if encoder is None:
        return None
    images, embedders = encoder.read(c, "model.vision_tower"), ((c, "embed_vision"), (a, "embed_audio"))
    tokens = (weight for fields, name in embedders for weight in embedder(fields, name))
    return listed(c, (*images, *gemma3n_sound(a), *tokens))


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
    channels = height_and_width(a, "sscp_conv_channel_size")
    for i, (out, (tall, wide), (_, stride)) in enumerate(zip(channels, kernels, strides, strict=True)):
        yield from placed(f"{front}.conv_{i}", weights({"conv": (out, given, tall, wide), "norm": (out,)}))
        pitches, given = (pitches + 2 - wide) // stride + 1, out  # one more pitch on each side
    yield f"{front}.input_proj_linear.weight", (d, given * pitches), 1
    attention: Shapes = {f"attn.{x}_proj": (q, d) for x in "qkv"}
    attention |= {"attn.relative_position_embedding.pos_proj": (q, d), "post": (d, d)}
    attention |= {"pre_attn_norm": (d,), "post_norm": (d,)}
    layer: Shapes = {f"attention.{name}": shape for name, shape in attention.items()}
    layer |= gemma_conformer(d, a.size("conf_conv_kernel_size"), ("ffw_layer_start", "ffw_layer_end"))
    shapes = {**weights({**layer, "norm": (d,)}), "attention.attn.per_dim_scale": (d // heads,)}
    yield from placed(f"{tower}.conformer.{{layer}}", shapes, a.size("conf_num_hidden_layers"))


def gemma_conformer(d: int, kernel: int, halves: tuple[str, str], inner: str = "") -> Shapes:
    """Two feed-forwards and a convolution; matrices that are clipped lie in a module of their own."""
    layer: Shapes = {f"lconv1d.linear_start{inner}": (2 * d, d), f"lconv1d.linear_end{inner}": (d, d)}
    for half in halves:
        layer |= {f"{half}.ffw_layer_1{inner}": (4 * d, d), f"{half}.ffw_layer_2{inner}": (d, 4 * d)}
    layer |= norms(d, *(f"{half}.{when}_layer_norm" for half in halves for when in ("pre", "post")))
    return (
        layer | {"lconv1d.depthwise_conv1d": (d, 1, kernel)} | norms(d, "lconv1d.pre_layer_norm", "lconv1d.conv_norm")
    )


def pairs(a: Fields, name: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Two numbers of each of two convolutions: over time and over pitch."""
    value = a.get(name)
    first, second = value if isinstance(value, list) and len(value) == 2 else (value, value)
    return height_and_width(a.within({name: first}), name), height_and_width(a.within({name: second}), name)


def gemma4(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Gemma 4, with an encoder for sound in its small models."""
    if whole.get("vision_config") is not None:
        yield from clipped(c, gemma4_images(c, "model"))
    if whole.get("audio_config") is not None:
        a = section(whole, "audio_config")
        yield from clipped(a, gemma4_sound(a))


GEMMA4_LAYER = Layer(
    qkv="self_attn.{}_proj.linear",
    out="self_attn.o_proj.linear",
    mlp=("mlp.gate_proj.linear", "mlp.up_proj.linear", "mlp.down_proj.linear"),
    norms=GEMMA_NORMS,
    head_norms=("self_attn.q_norm", "self_attn.k_norm"),
    bias=False,
)


def gemma4_images(c: Fields, path: str) -> Iterator[NamedShape]:
    """An encoder whose positions are a table for rows and one for columns, a mean and a spread of its output where it
    has them, and a matrix behind it."""
    d, heads, kv_heads, d_head = c.sizes("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    tower = f"{path}.vision_tower"
    yield f"{tower}.patch_embedder.position_embedding_table", (2, c.size("position_embedding_size"), d), 1
    yield f"{tower}.patch_embedder.input_proj.weight", (d, 3 * c.size("patch_size") ** 2), 1
    q, kv = heads * d_head, kv_heads * d_head
    yield from layers(c, f"{tower}.encoder.layers", GEMMA4_LAYER, q=q, kv=kv, d_head=d_head)
    yield from buffers(tower, norms(d, "std_bias", "std_scale") if c.flag("standardize") else {})
    yield f"{path}.embed_vision.embedding_projection.weight", (TEXT, d), 1


def clipped(c: Fields, rows: Iterable[NamedShape]) -> Iterator[NamedShape]:
    """All rows, and after each matrix that is clipped its four limits, where the encoder clips."""
    for row in rows:
        yield row
        path, is_linear, _ = row[0].rpartition(".linear.weight")
        if is_linear and c.flag("use_clipped_linears"):
            yield from buffers(path, dict.fromkeys(CLIPS, ()), row[2])


def gemma4_sound(a: Fields) -> Iterator[NamedShape]:
    """A Conformer, arXiv:2005.08100, and a matrix behind it."""
    d, out, tower = a.size("hidden_size"), a.size("output_proj_dims"), "model.audio_tower"
    d_head, front = d // a.size("num_attention_heads"), f"{tower}.subsample_conv_projection"
    q = d_head * a.size("num_attention_heads")
    first, second = height_and_width(a, "subsampling_conv_channels")
    convolutions: Shapes = {"layer0.conv": (first, 1, 3, 3), "layer0.norm": (first,)}
    convolutions |= {"layer1.conv": (second, first, 3, 3), "layer1.norm": (second,)}
    yield from placed(front, weights({**convolutions, "input_proj_linear": (d, first // 4 * second)}))
    layer: Shapes = {f"self_attn.{x}_proj.linear": (q, d) for x in "qkv"}
    layer |= {"self_attn.post.linear": (d, d), "self_attn.relative_k_proj": (q, d)}
    layer |= gemma_conformer(d, a.size("conv_kernel_size"), ("feed_forward1", "feed_forward2"), ".linear")
    layer |= norms(d, "norm_pre_attn", "norm_post_attn", "norm_out")
    shapes = {**weights(layer), "self_attn.per_dim_scale": (d_head,)}
    yield from placed(f"{tower}.layers.{{layer}}", shapes, a.size("num_hidden_layers"))
    yield from placed(tower, with_biases({"output_proj": (out, d)}))
    yield "model.embed_audio.embedding_projection.weight", (TEXT, out), 1


def gemma4_unified(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Patches and frames of sound go in by a matrix or two."""
    if whole.get("vision_config") is not None:
        yield from unified_images(c)
        yield "model.embed_vision.embedding_projection.weight", (TEXT, c.maybe("output_proj_dims") or 3840), 1
    if whole.get("audio_config") is not None:
        wide = section(whole, "audio_config").size("audio_embed_dim")
        yield "model.embed_audio.embedding_projection.weight", (TEXT, wide), 1


def unified_images(c: Fields) -> Iterator[NamedShape]:
    """A matrix between norms, and a table of positions for rows and columns."""
    d, patch = c.size("mm_embed_dim"), 3 * (c.size("patch_size") * c.size("pooling_kernel_size")) ** 2
    modules: Shapes = {"patch_ln1": (patch,), "patch_dense": (d, patch), "patch_ln2": (d,), "pos_norm": (d,)}
    yield "model.vision_embedder.pos_embedding", (c.size("mm_posemb_size"), 2, d), 1
    yield from placed("model.vision_embedder", with_biases(modules))


# Phi-4-multimodal, arXiv:2503.01743: SigLIP with a head that pools, and a Conformer

IMAGE_PATH, SOUND_PATH = "model.embed_tokens_extend.image_embed", "model.embed_tokens_extend.audio_embed"


def phi(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    d = c.size("hidden_size")
    yield from siglip(c.with_stated("vision_use_head", True), f"{IMAGE_PATH}.img_processor")
    yield f"{IMAGE_PATH}.global_img_feature_extensor", (1, 1, d), 1
    yield f"{IMAGE_PATH}.sub_img_feature_extensor", (1, 1, 1, d), 1
    yield from placed(IMAGE_PATH, with_biases({"img_projection_up": (TEXT, d), "img_projection_down": (TEXT, TEXT)}))
    a = section(whole, "audio_config")
    seen = a.size("hidden_size") * a.size("downsample_rate")
    for what in ("speech", "vision_speech"):
        matrices: Shapes = {f"up_proj_for_{what}": (TEXT, seen), f"down_proj_for_{what}": (TEXT, TEXT)}
        yield from placed(SOUND_PATH, with_biases(matrices))
    yield from conformer(a, f"{SOUND_PATH}.encoder")


def conformer(a: Fields, path: str) -> Iterator[NamedShape]:
    """Convolutions that take fewer frames, a bias by distance, and layers of convolutions between two feed-forwards."""
    d, f, heads = a.sizes("hidden_size", "intermediate_size", "num_attention_heads")
    q, _, _ = head_widths(a)
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
    front = halving_convolutions("conv", channels, 3, halvings)
    pitches = a.size("input_size")
    yield from buffers(f"{path}.encoder_embedding", norms(pitches, "global_mean", "global_invstd"))  # of each pitch
    for _ in range(halvings):
        pitches = -(-pitches // 2)
    pitches = a.maybe("nemo_final_size") or pitches
    yield from placed(f"{path}.embed", with_biases({**front, "out": (d, channels * pitches)}))
    buckets = a.size("bias_max_distance") * (1 if a.flag("bias_symmetric") else 2)
    yield from placed(f"{path}.relative_attention_bias_layer", weights({"bias_values": (buckets, heads)}))


# dots3-note

PYRAMID = [-1] * 25 + [*range(4, 65, 4), 64]
"""Routed experts of each layer where a config says nothing of its layers; -1: a dense one."""
IMAGE_SPELLINGS = {"embed_dim": "hidden_size", "num_heads": "num_attention_heads", "use_bias": "attention_bias"}
SOUND_SPELLINGS = {"whisper_adapter_out_dim": "adapter_out_dim", "adapter_output_size": "adapter_out_dim"}
SOUND_SPELLINGS |= {"d_model": "hidden_size", "encoder_ffn_dim": "intermediate_size", "num_mel_bins": "feature_size"}
SOUND_SPELLINGS |= {"encoder_attention_heads": "num_attention_heads", "encoder_layers": "num_hidden_layers"}
"""Spellings of checkpoints -> the class's own; those of Whisper stand in a section of their own."""


def experts(c: Fields) -> list[int]:
    """Routed experts of each layer; 0 in a dense one."""
    n = c.size("num_hidden_layers")
    kinds = c.per_layer("mlp_layer_types", n, MLP_KINDS)
    if kinds is None or c.get("pyramid_num_routed") is not None:
        counts = numbers(Fields(c.stated, {"pyramid_num_routed": PYRAMID}, {}), "pyramid_num_routed", least=-1)
        if len(counts) != n:
            sentence = "{name} lists {listed:,} layers, but the model has {layers:,}."
            raise ConfigError(Message(sentence, name="pyramid_num_routed", listed=len(counts), layers=n))
        return [max(count, 0) for count in counts]
    own = [c.of_layer(i).size("num_local_experts") for i in range(n)]
    return [count if kind == "sparse" else 0 for kind, count in zip(kinds, own, strict=True)]


def dots3_note(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """A transformer whose last layers route each patch to experts, more of them in each; and an encoder for sound."""
    c = Fields(c.stated, c.defaults, IMAGE_SPELLINGS)
    d, f, wide = c.sizes("hidden_size", "intermediate_size", "moe_intermediate_size")
    path, routed = "vision_encoder", experts(c)
    layer = Layer(
        qkv="attn.qkv",
        out="attn.proj",
        mlp=(),
        norms=("norm_1", "norm_2"),
        head_norms=("attn.q_norm", "attn.k_norm"),
        bias=c.flag("attention_bias"),
        norm_bias=False,
    ).shapes(d, f, d_head=d // c.size("num_attention_heads"))
    yield from placed(f"{path}.patch_embed", with_biases({"proj": patch(c)}))
    yield from placed(path, weights({"patch_embed.norm": (d,), "post_trunk_norm": (d,)}))
    yield from placed(f"{path}.blocks.{{layer}}", layer, len(routed))
    for i, count in enumerate(routed):
        mlp = f"{path}.blocks.{i}.mlp"
        if not count:
            yield from placed(mlp, biased(c.flag("mlp_bias"), gated(d, f)))
            continue
        yield f"{mlp}.gate_weight", (count, d), 1
        yield TowerBuffer(f"{mlp}.router_bias", (count,))  # which balances how often each expert is taken
        yield from placed(f"{mlp}.experts.{{layer}}", weights(gated(d, wide)), count)
    given = c.size("adapter_in_dim")
    merged = given * c.size("adapter_merge_size") ** 2
    adapter: Shapes = {"ln_q": (given,), "mlp.0": (merged, merged), "mlp.2": (c.size("adapter_out_dim"), merged)}
    yield from placed(f"{path}.adapter", with_biases(adapter))
    yield from dots3_sound(whole)


def gated(d: int, f: int) -> Shapes:
    return {"fc1": (f, d), "fc3": (f, d), "fc2": (d, f)}


def dots3_sound(whole: Fields) -> Iterator[NamedShape]:
    """Whisper's encoder with gated layers, behind three convolutions over time and pitch."""
    stated, own = section(whole, "audio_config"), section(whole, "audio_config.whisper_config").stated
    a = Fields({**stated.stated, **own}, stated.defaults, SOUND_SPELLINGS)
    path = "audio_encoder.dots_encoder.speech_encoder"
    d, f, channels = a.sizes("hidden_size", "intermediate_size", "downsample_hidden_size")
    layer = replace(WHISPER_LAYER, mlp=(), bias=a.flag("attention_bias"), norm_bias=False).shapes(d, f)
    yield from placed(path, with_biases(three_convolutions(channels)))
    pitches = -(-a.size("feature_size") // 8)  # three strides of 2
    given = a.maybe("conv_output_size") or channels * pitches
    yield from placed(path, weights({"conv_out": (d, given), "layer_norm": (d,)}))
    mlp = with_biases({"fc1": (2 * f, d), "fc2": (d, f)})
    yield from placed(f"{path}.layers.{{layer}}", layer | mlp, a.size("num_hidden_layers"))
    out = a.size("adapter_out_dim")
    adapter: Shapes = {"proj.0": (d,), "proj.1": (out, d), "proj.3": (out, out)}
    yield from placed("audio_encoder.audio_adapter", with_biases(adapter))


SOUND: dict[str, Tower] = {
    "diffusion_gemma": images(lambda c, whole: clipped(c, gemma4_images(c, "model.encoder"))),  # the text's encoder
    "dots3_note": images(dots3_note, "audio_config"),
    "fun_asr_nano": by_sections(fun_asr, "audio_config"),
    "gemma3n": Tower(gemma3n, ("vision_config", "audio_config")),
    "gemma4": images(gemma4, "audio_config"),
    "gemma4_unified": images(gemma4_unified, "audio_config"),
    "glmasr": by_sections(glm_asr, "audio_config"),
    "granite_speech": by_sections(granite_speech, "encoder_config"),
    "granite_speech_plus": by_sections(granite_speech, "encoder_config"),
    "inkling_mm_model": images(inkling, "audio_config"),
    "moss_transcribe_diarize": by_sections(moss, "audio_config"),
    "nemo_speechlm": by_sections(nemo, "audio_config"),
    "nemotron_h_omni": images(nemotron, "audio_config", "sound_config"),
    "phi4_multimodal": images(phi, "audio_config"),
    "qwen2_5_omni_thinker": by_sections(omni2_5, "vision_config", "audio_config"),
    "qwen2_audio": by_sections(qwen2_audio, "audio_config"),
    "qwen3_asr": by_sections(qwen3_asr, "audio_config"),
    "qwen3_omni_moe_thinker": by_sections(omni3, "vision_config", "audio_config"),
    "vibevoice_asr": by_sections(vibevoice, "acoustic_tokenizer_encoder_config", "semantic_tokenizer_encoder_config"),
    "voxtral": by_sections(voxtral, "audio_config"),
    "voxtral_realtime": by_sections(voxtral_realtime, "audio_config"),
}
"""model_type of a wrapper -> its encoders."""
