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
PIXELS, PLAIN, GATED = "patch_embed.proj.weight", "mlp.linear_fc1.weight", "mlp.gate_proj.weight"
"""Matrices of Qwen's encoders: of a patch, and the first of a feed-forward."""


class Images(NamedTuple):
    """As many images or videos as a step has tokens for, at least the largest alone."""

    tokens: int = 0  # whose embeddings are there
    patches: int = 0  # that pass the encoder; 0 where its pass is not known


def profiled_images(architecture: Architecture, options: VLLMOptions, step_tokens: int, max_model_len: int) -> Images:
    """Those that profiling encodes, one item at least, however short requests are (`multimodal/encoder_budget.py`)."""
    family = habits(architecture)
    if architecture.vision is None or options.language_model_only or not family.item_tokens:
        return Images()
    spelled = family.spelled_video if not holds("videos count without timestamps", options) else 0
    longest = max(1, min(family.video_items, max_model_len // family.item_tokens))
    item = spelled or longest * family.item_tokens
    tokens = max(1, step_tokens // item) * item
    known = has(architecture.vision, PIXELS) and (has(architecture.vision, PLAIN) or has(architecture.vision, GATED))
    encoded = int(tokens / SPELLED_OUT) if spelled else tokens
    return Images(tokens, known * family.merged * encoded)


def image_bytes(architecture: Architecture, options: VLLMOptions, images: Images) -> int:
    """Bytes of images that are there while the language model passes, in 16 bits, whole on every rank: their
    embeddings, and with the first runner their pixels."""
    embeddings = images.tokens * architecture.hidden * habits(architecture).item_rows
    if architecture.vision is None or not images.patches or holds("the second runner", options):
        return 2 * embeddings
    return 2 * (embeddings + images.patches * shape_of(architecture.vision, PIXELS)[1])


def encoder_pass(tower: ListedTower, patches: int, tp: int) -> dict[str, int]:
    """Bytes of tensors that are alive in a layer of Qwen's encoders, in 16 bits (`Qwen3_VisionBlock`,
    `Qwen2_5_VisionBlock`, `Qwen2_5_VisionAttention`): in its attention, or in its feed-forward where that takes more;
    nothing where no image passes."""
    if not patches:
        return {}
    hidden, pixels = shape_of(tower, PIXELS)
    gated = has(tower, GATED)
    inner, _ = shape_of(tower, GATED if gated else PLAIN)
    heads = 3 * hidden + 2 * hidden + 2 * hidden + hidden  # projected, queries and keys apart, turned; the output
    return {
        "pixels of the images": 2 * patches * pixels,
        "positions, input, its norm and output": 2 * patches * 4 * hidden,
        "in attention or in the feed-forward": 2 * patches * max(heads, (3 if gated else 2) * inner) // tp,
    }


def has(tower: ListedTower, name: str) -> bool:
    return any(module.endswith(name) for module, *_ in tower.modules)


def shape_of(tower: ListedTower, name: str) -> tuple[int, int]:
    """Outputs and inputs of one of its matrices."""
    out, *inputs = next(shape for module, shape, _ in tower.modules if module.endswith(name))
    return out, prod(inputs)
