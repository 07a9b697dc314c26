"""What vLLM passes through a vision encoder while profiling, before it passes the language model (`profile_run`)."""

from math import prod
from typing import NamedTuple

from calc.model.architecture import Architecture
from calc.model.towers.listed import ListedTower
from calc.serving.engines.vllm.habits import habits
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.engines.vllm.since import holds

SPELLED_OUT = 12.5
"""Tokens of a video's prompt for each that its encoder makes, as 0.12 counts them (`models/qwen3_vl.py`)."""
GATED = "mlp.gate_proj.weight"
"""The first matrix of a feed-forward with a gate."""


class Kind(NamedTuple):
    """An encoder's first matrices, by which it is told, and the states as wide as itself that are alive in a layer."""

    pixels: str  # of a patch
    plain: str  # of a feed-forward without a gate
    states: int  # all the time
    heads: int  # in its attention


QWEN = Kind("patch_embed.proj.weight", "mlp.linear_fc1.weight", states=4, heads=8)
"""Positions, input, its norm and output; projected (3), queries and keys apart (2) and turned (2), the output
(`Qwen3_VisionBlock`, `Qwen2_5_VisionBlock`, `Qwen2_5_VisionAttention`)."""
SIGLIP = Kind("embeddings.patch_embedding.weight", "mlp.fc1.weight", states=3, heads=5)
"""Embeddings, input and its norm; projected (3), the values' mean and the output (`models/siglip.py`)."""


def kind_of(tower: ListedTower) -> Kind | None:
    return next((kind for kind in (QWEN, SIGLIP) if has(tower, kind.pixels)), None)


class Images(NamedTuple):
    """As many images or videos as a step has tokens for, at least the largest alone."""

    tokens: int = 0  # whose embeddings are there
    patches: int = 0  # that pass the encoder; 0 where its pass is not known


def largest_item(architecture: Architecture, options: VLLMOptions, max_model_len: int) -> int:
    """Tokens that vLLM counts for the largest image or video of a request; 0 where none is encoded or it is not known
    (`multimodal/encoder_budget.py`)."""
    if architecture.vision is None or options.language_model_only or not (family := habits(architecture)).item_tokens:
        return 0
    spelled = family.spelled_video if not holds("videos count without timestamps", options) else 0
    return spelled or max(1, min(family.video_items, max_model_len // family.item_tokens)) * family.item_tokens


def profiled_images(architecture: Architecture, options: VLLMOptions, step_tokens: int, max_model_len: int) -> Images:
    """Those that profiling encodes, one item at least, however short requests are."""
    if architecture.vision is None or not (item := largest_item(architecture, options, max_model_len)):
        return Images()
    family = habits(architecture)
    tokens = max(1, step_tokens // item) * item
    encoded = int(tokens / SPELLED_OUT) if item == family.spelled_video else tokens
    return Images(tokens, family.merged * encoded if kind_of(architecture.vision) else 0)


def image_bytes(architecture: Architecture, options: VLLMOptions, images: Images) -> int:
    """Bytes of images that are there while the language model passes, in 16 bits, whole on every rank: their
    embeddings, and with the first runner their pixels."""
    if not images.tokens:
        return 0
    embeddings = images.tokens * architecture.hidden * habits(architecture).item_rows
    kind = None if architecture.vision is None else kind_of(architecture.vision)
    if architecture.vision is None or kind is None or holds("the second runner", options):
        return 2 * embeddings
    return 2 * (embeddings + images.patches * shape_of(architecture.vision, kind.pixels)[1])


def encoder_pass(tower: ListedTower, patches: int, tp: int) -> dict[str, int]:
    """Bytes of tensors that are alive in a layer of an encoder, in 16 bits: in its attention, or in its feed-forward
    where that takes more; nothing where no image passes."""
    kind = kind_of(tower)
    if not patches or kind is None:
        return {}
    hidden, pixels = shape_of(tower, kind.pixels)
    gated = has(tower, GATED)
    inner, _ = shape_of(tower, GATED if gated else kind.plain)
    return {
        "pixels of the images": 2 * patches * pixels,
        "positions, input, its norm and output": 2 * patches * kind.states * hidden,
        "in attention or in the feed-forward": 2
        * patches
        * max(kind.heads * hidden, (3 if gated else 2) * inner)
        // tp,
    }


def has(tower: ListedTower, name: str) -> bool:
    return any(module.endswith(name) for module, *_ in tower.modules)


def shape_of(tower: ListedTower, name: str) -> tuple[int, int]:
    """Outputs and inputs of one of its matrices."""
    out, *inputs = next(shape for module, shape, _ in tower.modules if module.endswith(name))
    return out, prod(inputs)
