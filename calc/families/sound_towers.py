"""Encoders for sound alone, and what leads from them into a language model.

Read off the classes of transformers 5.23, `modeling_*.py` of each model_type.
"""

from collections.abc import Iterator
from dataclasses import replace

from calc.families.encoders import qformer
from calc.families.fields import Fields
from calc.families.image_projectors import two_matrices
from calc.families.tower_parts import PROJECTOR, Tower, batch_statistics, each, norms, numbers, section, separate
from calc.model.tensor import Shapes
from calc.model.towers.listed import TEXT, Layer, NamedShape, biased, placed, weights, with_biases

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
    yield from placed(f"model.{PROJECTOR}", linear)
    yield from placed(f"model.{PROJECTOR}", with_biases(norms(TEXT, "norm")))


def voxtral_realtime(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """A causal encoder with rotary positions and gated feed-forward."""
    d, f, path = c.size("hidden_size"), c.size("intermediate_size"), "audio_tower"
    wide = c.size("num_attention_heads") * c.size("head_dim")
    yield from placed(f"{path}.embedder", with_biases(two_convolutions(d, c.size("num_mel_bins"))))
    full = each("self_attn.{}_proj", (wide, d), "qv") | {"self_attn.o_proj": (d, wide), "mlp.down_proj": (d, f)}
    plain: Shapes = {"self_attn.k_proj": (wide, d), "mlp.gate_proj": (f, d), "mlp.up_proj": (f, d)}
    plain |= norms(d, "self_attn_layer_norm", "final_layer_norm")
    yield from placed(f"{path}.layers.{{layer}}", with_biases(full) | weights(plain), c.size("num_hidden_layers"))
    yield from placed(path, weights(norms(d, "norm")))
    frames = whole.maybe("downsample_factor") or 4
    yield from placed(PROJECTOR, weights(two_matrices(frames * d)))


def qwen3_asr(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    d = c.size("d_model")
    yield from convolved(c, "model.audio_tower")
    yield from placed(f"model.{PROJECTOR}", with_biases({"linear_1": (d, d), "linear_2": (c.size("output_dim"), d)}))


def convolved(c: Fields, path: str) -> Iterator[NamedShape]:
    """Three convolutions over time and pitch, each with a stride of 2, then Whisper's layers."""
    d, f, n, wide = c.sizes(*WHISPER_FIELDS, "downsample_hidden_size")
    front: Shapes = {"conv2d1": (wide, 1, 3, 3), "conv2d2": (wide, wide, 3, 3), "conv2d3": (wide, wide, 3, 3)}
    yield from placed(path, with_biases(front | norms(d, "ln_post")))
    yield f"{path}.conv_out.weight", (d, wide * -(-c.size("num_mel_bins") // 8)), 1
    yield from placed(f"{path}.layers.{{layer}}", replace(WHISPER_LAYER, key_bias=True).shapes(d, f), n)


def glm_asr(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Whisper's sizes with rotary positions."""
    d, f, path, heads = c.size("hidden_size"), c.size("intermediate_size"), "audio_tower", c.size("num_attention_heads")
    d_head = c.maybe("head_dim") or d // heads
    kv = (c.maybe("num_key_value_heads") or heads) * d_head
    yield from placed(path, with_biases(two_convolutions(d, c.size("num_mel_bins")) | norms(d, "norm")))
    layer: Shapes = {"self_attn.q_proj": (heads * d_head, d), "self_attn.v_proj": (kv, d)}
    layer |= {"self_attn.o_proj": (d, heads * d_head), "mlp.fc1": (f, d), "mlp.fc2": (d, f)}
    layer |= norms(d, "input_layernorm", "post_attention_layernorm")
    keys = weights({"self_attn.k_proj": (kv, d)})
    yield from placed(f"{path}.layers.{{layer}}", with_biases(layer) | keys, c.size("num_hidden_layers"))
    yield from placed(PROJECTOR, with_biases({"linear_1": (2 * TEXT, f), "linear_2": (TEXT, 2 * TEXT)}))


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
    yield from placed(f"model.{PROJECTOR}", with_biases({"linear_1": (middle, d), "linear_2": (out, middle)}))
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
    characters = c.size("output_dim")
    ends: Shapes = {"input_linear": (d, c.size("input_dim")), "out": (characters, d), "out_mid": (d, characters)}
    yield from placed("encoder", with_biases(ends))
    p = section(whole, "projector_config")
    q = p.size("hidden_size")
    yield from qformer(p, "projector.qformer")
    queries = (whole.maybe("window_size") or 15) // (whole.maybe("downsample_rate") or 5)
    yield "projector.query", (1, queries, q), 1
    yield from placed("projector", with_biases({"linear": (TEXT, q)}))


def granite_statistics(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    wide = c.size("hidden_dim") * c.size("conv_expansion_factor")
    yield from batch_statistics("encoder.layers.{layer}.conv.batch_norm", wide, c.size("num_layers"))


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
    d, f, heads = c.size("hidden_size"), c.size("intermediate_size"), c.size("num_attention_heads")
    d_head = c.maybe("head_dim") or d // heads
    q, k = heads * d_head, (c.maybe("num_key_value_heads") or heads) * d_head
    layer: Shapes = {"attn.out_proj": (d, q), "ffn.net.0": (f, d), "ffn.net.3": (d, f)} | norms(d, "norm1", "norm2")
    if qk_norm:
        layer |= norms(d_head, "attn.q_norm", "attn.k_norm")
    fused = weights({"attn.w_qkv": (2 * q + k, d)})
    yield from placed(path, with_biases(norms(d, "embed_norm", "final_norm")))
    yield from placed(f"{path}.layers.{{layer}}", with_biases(layer) | fused, c.size("num_hidden_layers"))


SOUND: dict[str, Tower] = {
    "fun_asr_nano": separate(fun_asr, "audio_config"),
    "glmasr": separate(glm_asr, "audio_config"),
    "granite_speech": separate(granite_speech, "encoder_config", statistics=granite_statistics),
    "granite_speech_plus": separate(granite_speech, "encoder_config", statistics=granite_statistics),
    "moss_transcribe_diarize": separate(moss, "audio_config"),
    "nemo_speechlm": separate(nemo, "audio_config"),
    "qwen2_audio": separate(qwen2_audio, "audio_config"),
    "qwen3_asr": separate(qwen3_asr, "audio_config"),
    "vibevoice_asr": separate(vibevoice, "acoustic_tokenizer_encoder_config", "semantic_tokenizer_encoder_config"),
    "voxtral": separate(voxtral, "audio_config"),
    "voxtral_realtime": separate(voxtral_realtime, "audio_config"),
}
"""model_type of a wrapper -> its encoders."""
