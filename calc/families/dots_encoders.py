"""Encoders for images and sound of dots3-note.

Read in transformers 5.23, `modeling_dots3_note.py`; names as checkpoints have them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from calc.errors import ConfigError, Message
from calc.families.fields import MLP_KINDS, Fields
from calc.families.tower_parts import listed, numbers, section
from calc.model.tensor import Shapes
from calc.model.towers.listed import Layer, ListedTower, biased
from calc.model.towers.named_shapes import NamedShape, placed, weights, with_biases

IMAGES: Mapping[str, Any] = {
    "hidden_size": 1536,
    "intermediate_size": 4224,
    "num_hidden_layers": 42,
    "num_attention_heads": 24,
    "num_channels": 3,
    "patch_size": 14,
    "moe_intermediate_size": 2112,
    "num_local_experts": 64,
    "adapter_in_dim": 1536,
    "adapter_out_dim": 5120,
    "adapter_merge_size": 2,
}
PYRAMID = [-1] * 25 + [*range(4, 65, 4), 64]
"""Routed experts of each layer where a config says nothing of its layers; -1: a dense one."""
IMAGE_SPELLINGS = {"embed_dim": "hidden_size", "num_heads": "num_attention_heads", "use_bias": "attention_bias"}
SOUND: Mapping[str, Any] = {
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_hidden_layers": 32,
    "num_attention_heads": 20,
    "feature_size": 128,
    "downsample_hidden_size": 480,
    "attention_bias": True,
    "adapter_out_dim": 5120,
}
SOUND_SPELLINGS = {
    "whisper_adapter_out_dim": "adapter_out_dim",
    "adapter_output_size": "adapter_out_dim",
    "d_model": "hidden_size",
    "encoder_attention_heads": "num_attention_heads",
    "encoder_layers": "num_hidden_layers",
    "encoder_ffn_dim": "intermediate_size",
    "num_mel_bins": "feature_size",
}
"""Spellings of checkpoints -> the class's own; those of Whisper stand in a section of their own."""


def dots3_note(c: Fields, whole: Fields) -> ListedTower:
    c = Fields(c.stated, IMAGES, IMAGE_SPELLINGS)
    return listed(c, images(c), sound(whole), statistics=[router_biases(c)])


def experts(c: Fields) -> list[int]:
    """Routed experts of each layer; 0 in a dense one."""
    n, kinds = c.size("num_hidden_layers"), c.per_layer("mlp_layer_types", c.size("num_hidden_layers"), MLP_KINDS)
    if kinds is None or c.get("pyramid_num_routed") is not None:
        counts = numbers(Fields(c.stated, {"pyramid_num_routed": PYRAMID}, {}), "pyramid_num_routed", least=-1)
        if len(counts) != n:
            sentence = "{name} lists {listed:,} layers, but the model has {layers:,}."
            raise ConfigError(Message(sentence, name="pyramid_num_routed", listed=len(counts), layers=n))
        return [max(count, 0) for count in counts]
    own = [c.of_layer(i).size("num_local_experts") for i in range(n)]
    return [count if kind == "sparse" else 0 for kind, count in zip(kinds, own, strict=True)]


def images(c: Fields) -> Iterator[NamedShape]:
    """A transformer whose last layers route each patch to experts, more of them in each."""
    d, f, wide, p = (c.size(x) for x in ("hidden_size", "intermediate_size", "moe_intermediate_size", "patch_size"))
    bias, path, routed = c.flag("attention_bias"), "vision_encoder", experts(c)
    layer = Layer(
        qkv=("attn.qkv",),
        out="attn.proj",
        mlp=(),
        norms=("norm_1", "norm_2"),
        head_norms=("attn.q_norm", "attn.k_norm"),
        qkv_bias=bias,
        out_bias=bias,
        norm_bias=False,
    ).shapes(d, f, d_head=d // c.size("num_attention_heads"))
    yield from placed(f"{path}.patch_embed", with_biases({"proj": (d, c.size("num_channels"), p, p)}))
    yield from placed(path, weights({"patch_embed.norm": (d,), "post_trunk_norm": (d,)}))
    yield from placed(f"{path}.blocks.{{layer}}", layer, len(routed))
    for i, count in enumerate(routed):
        mlp = f"{path}.blocks.{i}.mlp"
        if not count:
            yield from placed(mlp, biased(c.flag("mlp_bias"), gated(d, f)))
            continue
        yield f"{mlp}.gate_weight", (count, d), 1
        yield from placed(f"{mlp}.experts.{{layer}}", weights(gated(d, wide)), count)
    given = c.size("adapter_in_dim")
    merged = given * c.size("adapter_merge_size") ** 2
    adapter: Shapes = {"ln_q": (given,), "mlp.0": (merged, merged), "mlp.2": (c.size("adapter_out_dim"), merged)}
    yield from placed(f"{path}.adapter", with_biases(adapter))


def gated(d: int, f: int) -> Shapes:
    return {"fc1": (f, d), "fc3": (f, d), "fc2": (d, f)}


def router_biases(c: Fields) -> Iterator[NamedShape]:
    """One for each expert, which balances how often it is taken."""
    for i, count in enumerate(experts(c)):
        if count:
            yield f"vision_encoder.blocks.{i}.mlp.router_bias", (count,), 1


def sound(whole: Fields) -> Iterator[NamedShape]:
    """Whisper's encoder with gated layers, behind three convolutions over time and pitch."""
    stated = section(whole, "audio_config").stated
    whisper = section(whole.within(stated), "whisper_config").stated
    a, path = Fields({**stated, **whisper}, SOUND, SOUND_SPELLINGS), "audio_encoder.dots_encoder.speech_encoder"
    d, f, channels = a.size("hidden_size"), a.size("intermediate_size"), a.size("downsample_hidden_size")
    layer = Layer(
        mlp=(),
        norms=("self_attn_layer_norm", "final_layer_norm"),
        qkv_bias=a.flag("attention_bias"),
        key_bias=False,
        out_bias=a.flag("attention_bias"),
        norm_bias=False,
    ).shapes(d, f)
    convolutions: Shapes = {"conv2d1": (channels, 1, 3, 3), "conv2d2": (channels, channels, 3, 3)}
    yield from placed(path, with_biases({**convolutions, "conv2d3": (channels, channels, 3, 3)}))
    pitches = -(-a.size("feature_size") // 8)  # three strides of 2
    given = a.maybe("conv_output_size") or channels * pitches
    yield from placed(path, weights({"conv_out": (d, given), "layer_norm": (d,)}))
    mlp = with_biases({"fc1": (2 * f, d), "fc2": (d, f)})
    yield from placed(f"{path}.layers.{{layer}}", layer | mlp, a.size("num_hidden_layers"))
    out = a.size("adapter_out_dim")
    adapter: Shapes = {"proj.0": (d,), "proj.1": (out, d), "proj.3": (out, out)}
    yield from placed("audio_encoder.audio_adapter", with_biases(adapter))
