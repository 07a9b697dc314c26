"""Encoders for sound, and those with one for images beside."""

from collections.abc import Iterator

from calc.errors import Frozen
from calc.model.tensor import Shapes
from calc.model.towers.image import NamedShape, Qwen2Vision, QwenVision, placed, weights, with_biases
from calc.model.towers.tower import Tower


class QwenAudio(Frozen):
    """Whisper's encoder, arXiv:2212.04356, in Qwen2.5-Omni, arXiv:2503.20215, and Qwen3-Omni, arXiv:2509.17765
    (transformers `modeling_qwen2_5_omni.py`, `modeling_qwen3_omni_moe.py`). Its positions are computed."""

    hidden: int
    intermediate: int
    num_layers: int
    mel_bins: int
    out_hidden: int
    downsample: int | None  # channels of Qwen3-Omni's three convolutions over time and pitch; None: Whisper's two

    def shapes(self) -> Iterator[NamedShape]:
        """Name, shape and number of layers that hold it, of each weight."""
        d, f, tower = self.hidden, self.intermediate, "audio_tower"
        layer: Shapes = {"self_attn.q_proj": (d, d), "self_attn.v_proj": (d, d), "self_attn.out_proj": (d, d)}
        layer |= {"fc1": (f, d), "fc2": (d, f), "self_attn_layer_norm": (d,), "final_layer_norm": (d,)}
        keys: Shapes = {"self_attn.k_proj": (d, d)}
        yield from placed(tower, with_biases({"ln_post": (d,)}))
        if self.downsample is None:
            front: Shapes = {"conv1": (d, self.mel_bins, 3), "conv2": (d, d, 3), "proj": (self.out_hidden, d)}
            yield from placed(tower, with_biases(front) | weights({"audio_bos_eos_token": (2, self.out_hidden)}))
            layer_weights = with_biases(layer) | weights(keys)
        else:
            c, pitches = self.downsample, -(-self.mel_bins // 8)  # three strides of 2
            front = {"conv2d1": (c, 1, 3, 3), "conv2d2": (c, c, 3, 3), "conv2d3": (c, c, 3, 3)}
            front |= {"proj1": (d, d), "proj2": (self.out_hidden, d)}
            yield from placed(tower, with_biases(front) | weights({"conv_out": (d, c * pitches)}))
            layer_weights = with_biases(layer | keys)
        yield from placed(f"{tower}.layers.{{layer}}", layer_weights, self.num_layers)


class OmniTowers(Tower):
    """An encoder for images and one for sound."""

    image: Qwen2Vision | QwenVision
    audio: QwenAudio

    def shapes(self, text_hidden: int) -> Iterator[NamedShape]:
        """Name, shape and number of layers that hold it, of each weight."""
        yield from self.image.shapes(text_hidden)
        yield from self.audio.shapes()
