"""MoonViT, arXiv:2504.07491, in Moonshot's models that transformers has no class for."""

from collections.abc import Iterator

from calc.families.encoder_towers import PROJECTOR
from calc.families.encoders import moonvit
from calc.families.family import Tower
from calc.families.fields import Fields
from calc.families.tower_defaults import MOON
from calc.families.tower_parts import two
from calc.families.tower_shapes import images
from calc.model.tensor import Shapes
from calc.model.towers.listed import TEXT, biased
from calc.model.towers.named_shapes import NamedShape, placed, weights

K3 = MOON | {"hidden_size": 1024, "qkv_hidden_size": 1536, "intermediate_size": 4096}


def kimi_vl(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Kimi-VL: Kimi K2.5's encoder and projector (vLLM `kimi_vl.py`)."""
    height, width = two(c, "merge_kernel_size")
    d, merged = c.size("hidden_size"), c.size("hidden_size") * height * width
    matrices: Shapes = {"pre_norm": (d,), "linear_1": (merged, merged), "linear_2": (TEXT, merged)}
    yield from moonvit(c, bias=True)
    yield from placed(PROJECTOR, biased(True, matrices))


def kimi_k3(c: Fields, whole: Fields) -> Iterator[NamedShape]:
    """Kimi K3: attention wider than the layers, no biases, and a norm behind the projector (the index of its files)."""
    height, width = two(c, "merge_kernel_size")
    merged = c.size("hidden_size") * height * width
    yield from moonvit(c, bias=False)
    matrices: Shapes = {"proj.0": (merged, merged), "proj.2": (TEXT, merged), "post_norm": (TEXT,)}
    yield from placed("mm_projector", weights(matrices))


MOON_TOWERS: dict[str, Tower] = {"kimi_k3": images(kimi_k3, K3), "kimi_vl": images(kimi_vl, MOON)}
"""model_type of a wrapper -> its tower."""
