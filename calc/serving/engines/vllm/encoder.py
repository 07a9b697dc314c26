"""Images and videos that vLLM passes through a vision encoder while profiling, before the language model
(`profile_run`).

Read in vLLM 0.33: how many tokens the largest image or video is, in each model's `ProcessingInfo` and dummy inputs;
what is alive in a layer of its encoder, in its module.
"""

from bisect import bisect_right
from math import isqrt, prod
from typing import NamedTuple

from calc.hardware.gpu import GPU
from calc.model.architecture import Architecture
from calc.model.vision import TEXT
from calc.serving.engines.vllm.options import VLLMOptions, holds

AS_LONG_AS_REQUESTS = 1 << 30
"""Frames of videos that only the longest request bounds."""
STATES = "states as wide as the encoder"


class EncoderLayer(NamedTuple):
    """An encoder's first matrices, by how their names end, and what is alive in one of its layers: states as wide as
    itself, which every rank has whole, and tensors of which a rank has its share."""

    pixels: str  # of a patch
    up: str  # of a feed-forward: its only one, or the gate
    attention: tuple[int, int]  # states; as wide as all heads
    feedforward: tuple[int, int]  # states; as wide as its inside: into the activation and out of it, gate and up apart
    projector: tuple[str, ...] = ()  # two more that widen each patch, before patches are merged
    divided: bool = True  # over tensor-parallel ranks
    frame: int = 0  # patches of a frame, where only as many pass together as a tenth of the GPU has room for
    reckoned: int = 0  # bytes of a patch by which that is decided


GATE, FC1 = "mlp.gate_proj.weight", "mlp.fc1.weight"
QWEN3 = EncoderLayer("patch_embed.proj.weight", "mlp.linear_fc1.weight", (4, 8), (4, 2))
"""Positions, input, its norm and output; projected (3), queries and keys together (2) and turned (2), the output
(`Qwen3_VisionBlock`)."""
QWEN2_5 = EncoderLayer("patch_embed.proj.weight", GATE, (4, 8), (4, 3))
"""Qwen3-VL's, with a gate (`Qwen2_5_VisionBlock`, `Qwen2_5_VisionAttention`)."""
QWEN2 = EncoderLayer("patch_embed.proj.weight", FC1, (3, 8), (3, 2))
"""Input, its norm and output (`Qwen2VisionBlock`, `Qwen2VisionAttention`)."""
GLM4 = EncoderLayer("patch_embed.proj.weight", GATE, (3, 10), (3, 3))
"""Positions, input and its norm; projected (3), each of them alone (3), queries and keys together (2) and turned (2)
(`Glm4vVisionBlock`)."""
GLM5 = EncoderLayer("patch_embed.proj.weight", GATE, (2, 12), (2, 3))
"""GLM-4.1V's without positions; queries and keys once more, before their norms (`Glm5NextVisionBlock`)."""
SIGLIP = EncoderLayer("embeddings.patch_embedding.weight", FC1, (3, 5), (4, 2))
"""Embeddings, input, its norm; behind attention also their sum. Projected (3), the values' mean and the output
(`models/siglip.py`)."""
IDEFICS = EncoderLayer("embeddings.patch_embedding.weight", FC1, (3, 5), (3, 2))
"""SigLIP's, embeddings being the input of the first layer alone (`models/idefics2_vision_model.py`)."""
INTERN = EncoderLayer("embeddings.patch_embedding.weight", FC1, (4, 4), (4, 2))
"""Embeddings, input, its norm and output; projected (3) and the values' mean (`models/intern_vit.py`)."""
INTERN_HF = INTERN._replace(pixels="patch_embeddings.projection.weight")
"""InternViT's (`models/interns1_vit.py`)."""
MOON3D = EncoderLayer("patch_embed.proj.weight", "mlp.fc0.weight", (4, 4), (4, 2))
"""InternViT's, queries and keys turned in place (`models/kimi_k25_vit.py`)."""
MOON = MOON3D._replace(attention=(3, 13), feedforward=(5, 2))
"""Queries and keys are complex numbers of 32 bits (4) and turned (4), while the projected (3) and the results (2) are
there; the output of attention stays (`models/moonvit.py: apply_rope`)."""
LLAMA4 = EncoderLayer("patch_embedding.linear.weight", FC1, (3, 13), (4, 2))
"""Kimi-VL's (`models/mllama4.py`, `rotary_embedding/llama4_vision_rope.py`)."""
PIXTRAL = EncoderLayer("patch_conv.weight", "feed_forward.gate_proj.weight", (4, 7), (6, 3))
"""Patches before and behind a norm, input and its norm; behind attention also its output and their sum. Projected (3),
queries and keys turned one after the other (4) (`PixtralHFTransformerBlock`)."""
GEMMA4 = EncoderLayer(
    "patch_embedder.input_proj.weight",
    "mlp.gate_proj.linear.weight",
    (3, 4),
    (4, 3),
    divided=False,
    frame=9 * 70,
    reckoned=4 * 10_240 * 8,
)
"""Embeddings, input, its norm; behind attention also their sum (transformers' class, whole on every rank;
`gemma4_mm.py: _encoder_chunk`)."""
GEMMA4_EMBEDDER = EncoderLayer("patch_dense.weight", "patch_dense.weight", (5, 0), (5, 0), divided=False)
"""No layers: the projected patches, both positions, their sum and its norm (`models/gemma4_unified.py`)."""
MINIMAX = EncoderLayer(
    "embeddings.patch_embedding.weight",
    FC1,
    (4, 4),
    (3, 2),
    projector=("multi_modal_projector.linear_1.weight", "multi_modal_projector.linear_2.weight"),
)
"""Embeddings, input, its norm and output; projected (3), turned in place, and the values' mean
(`minimax_m3/common/vision_tower.py`)."""


class MediaItem(NamedTuple):
    """The largest image or video of a request: so many equal parts."""

    tokens: int  # of a part, as vLLM counts them
    patches: int = 0  # of a part, with any that stand for a whole image
    encoder: EncoderLayer | None = None  # that they pass, where its pass is known
    least: int = 1  # parts of the largest image
    most: int = 1  # parts of the largest video, where the longest request has room for them
    reserved: int = 0  # tokens of a request that a video leaves to an image
    videos: tuple[int, ...] = ()  # parts of any video, ascending, where not every number is one

    def parts(self, max_model_len: int) -> int:
        """Parts of the largest image or video of a request of that length."""
        room = (max_model_len - self.reserved) // self.tokens
        longest = bisect_right(self.videos, room)
        return max(self.least, self.videos[longest - 1] if longest else min(self.most, room))


QWEN_PAIR = MediaItem(16_384, 4 * 16_384, QWEN2_5, most=7)  # of up to 14 frames, two together; 12,845,056 pixels
QWEN3_IMAGE = MediaItem(16_384, 4 * 16_384, QWEN3)  # 16,777,216 pixels in patches of 16 x 16
TILE = MediaItem(256, 32 * 32 + 1, INTERN, least=13, most=AS_LONG_AS_REQUESTS, reserved=13 * 256)
"""InternVL's: an image is 12 tiles of 448 x 448 and a small one of the whole, a frame of a video is one
(`models/internvl.py`)."""
SLICES = MediaItem(72 + 9 * 64, 10 * 12 * 96, IDEFICS, most=16, reserved=72 + 9 * 64)
"""MiniCPM-V's: an image or frame of 448 x 4032 is nine slices of 448 x 448 and a small one of the whole, of 168 x 1344,
to which all are padded; 16 patches a token (`models/minicpmv4_6.py`)."""
GLM_IMAGE = 78 * 78
"""Tokens of an image of 2184 x 2184 pixels in patches of 14 x 14, 4 a token: of 9,633,792 for two frames."""
GLM_VIDEO = MediaItem(
    tokens=1,
    patches=4,
    encoder=GLM4,
    least=GLM_IMAGE,
    reserved=GLM_IMAGE,
    videos=tuple(sorted({(n + 1) // 2 * min(GLM_IMAGE, isqrt(60_000 // n) ** 2) for n in range(1, 601)})),
)
"""GLM-4.1V's and GLM-4.5V's: n frames, two together, share 47,040,000 pixels (`models/glm4_1v.py:
_get_max_video_frames`)."""
GLM_SPELLED = MediaItem(30_000 + 320 * 7 + 2, 4 * 30_000, GLM5)
"""A video and its 320 timestamps: "with a budget of 32242 tokens, and profiled with 1 video items" of public logs
(`models/glm4_1v.py: get_mm_max_tokens_per_item`)."""
ITEMS: dict[str, MediaItem] = {
    "gemma3": MediaItem(256, 64 * 64, SIGLIP),  # models/gemma3_mm.py: an image, without pan and scan
    # models/gemma4_mm.py: a video of 32 frames of 70 tokens and 8 more
    "gemma4": MediaItem(32 * 78, 32 * GEMMA4.frame, GEMMA4),
    "gemma4_unified": MediaItem(32 * 78, 32 * 70, GEMMA4_EMBEDDER),
    "glm46v": GLM_SPELLED._replace(encoder=GLM4),
    "glm4v": GLM_VIDEO,
    "glm4v_moe": GLM_VIDEO,
    "glm5_next": GLM_SPELLED,
    "internvl": TILE._replace(encoder=INTERN_HF),
    "internvl_chat": TILE,
    # models/kimi_k25.py: 3000 x 3000 pixels, made 1794 x 1794 and padded; seven in 32,768 tokens of a public log
    "kimi_k25": MediaItem(65 * 65, 130 * 130, MOON3D),
    # kimi_k3/common/mm_preprocess.py; "with a budget of 16817 tokens" of a public log. Twelve heads do not divide over
    # eight ranks: an image is on one of them
    "kimi_k3": MediaItem(67 * 251, 4 * 67 * 251, MOON3D._replace(divided=False)),
    # models/kimi_vl.py: 1024 x 1024 pixels, made 897 x 897 (in_token_limit 4096) and padded
    "kimi_vl": MediaItem(33 * 33, 66 * 66, MOON),
    # models/mllama4.py: 16 tiles of 336 x 336 and a small one of the whole; three in 8,192 tokens of a public log
    "llama4": MediaItem(17 * 144, 17 * (24 * 24 + 1), LLAMA4),
    "minicpmv4_6": SLICES,
    "minicpmv4_7": SLICES,
    # minimax_m3/common/mm_preprocess.py: two frames of 896 x 672, of 500
    "minimax_m3_vl": MediaItem(24 * 32, 4 * 24 * 32, MINIMAX, most=250),
    "mistral3": MediaItem(55 * 55, 110 * 110, PIXTRAL),  # models/mistral3.py: 1540 x 1540; two in 8,192 of a public log
    "qwen2_vl": QWEN_PAIR._replace(encoder=QWEN2),  # models/qwen2_vl.py
    "qwen2_5_vl": QWEN_PAIR,
    "qwen3_vl": QWEN3_IMAGE,
    "qwen3_vl_moe": QWEN3_IMAGE,
    "qwen3_5": QWEN3_IMAGE,
    "qwen3_5_moe": QWEN3_IMAGE,
}
"""model_type of a wrapper -> its largest image or video, by its processor; those of Qwen also by "Encoder cache will be
initialized with a budget of .. tokens" of public logs."""
SPELLED_OUT = dict.fromkeys(("qwen3_vl", "qwen3_vl_moe"), MediaItem(153_600, 4 * 12_288, QWEN3))
"""A video with its timestamps, by which vLLM before 0.13 counted (`models/qwen3_vl.py`)."""


class Images(NamedTuple):
    """Images or videos that a step has tokens for, at least the largest alone."""

    largest: int = 0  # tokens of the largest one; 0 where none is encoded or it is not known
    tokens: int = 0  # of all, whose embeddings are there
    patches: int = 0  # that pass the encoder at once; 0 where its pass is not known
    resident_bytes: int = 0  # while the language model passes, in 16 bits, whole on every rank


def item_of(architecture: Architecture, options: VLLMOptions) -> MediaItem | None:
    """The largest image or video of a model's requests; None where none is encoded or it is not known."""
    if architecture.vision is None or options.language_model_only:
        return None
    wrapper = architecture.vision.wrapper
    spelled = SPELLED_OUT.get(wrapper) if not holds("videos count without timestamps", options) else None
    return spelled or ITEMS.get(wrapper)


class Sizes(NamedTuple):
    """Widths of an encoder whose pass is known."""

    encoder: EncoderLayer
    pixels: int  # of a patch
    hidden: int
    inner: int
    projector: tuple[int, ...]  # what its matrices put out
    deepstack: int  # elements of a patch that go into the language model's first layers, from its own on


def sizes_of(architecture: Architecture) -> Sizes | None:
    """The encoder that images pass; None where its pass is not known, or its matrices are named otherwise."""
    tower = architecture.vision
    item = None if tower is None else ITEMS.get(tower.wrapper)
    if tower is None or item is None or item.encoder is None:
        return None
    encoder, shapes = item.encoder, []
    for end in (encoder.pixels, encoder.up, *encoder.projector):
        shape = next((shape for name, shape, _ in tower.modules if name.endswith(end)), None)
        if shape is None:
            return None
        shapes.append(shape)
    (hidden, *pixels), (inner, *_), *behind = shapes
    outputs = tuple(architecture.hidden if out == TEXT else out for out, *_ in behind)
    deepstack = tower.deepstack * architecture.hidden * item.tokens // item.patches
    return Sizes(encoder, prod(pixels), hidden, inner, outputs, deepstack)


def largest_item(architecture: Architecture, options: VLLMOptions, max_model_len: int) -> int:
    """Tokens that vLLM counts for the largest image or video of a request; 0 where none is encoded or it is not known
    (`multimodal/encoder_budget.py`)."""
    item = item_of(architecture, options)
    return item.parts(max_model_len) * item.tokens if item else 0


def profiled_images(
    architecture: Architecture, options: VLLMOptions, gpu: GPU, step_tokens: int, sequences: int, max_model_len: int
) -> Images:
    """Images or videos that profiling encodes: what a step has tokens for and so many requests may hold, at least one
    (`MultiModalBudget._get_max_items`). Their embeddings stay, and with the first runner their pixels."""
    item = item_of(architecture, options)
    if item is None or architecture.vision is None:
        return Images()
    sizes = sizes_of(architecture)
    parts = item.parts(max_model_len)
    size = parts * item.tokens
    items = max(1, min(step_tokens // size, sequences * max(1, max_model_len // size)))
    embeddings = items * size * architecture.hidden * (1 + architecture.vision.deepstack)
    if sizes is None:
        return Images(size, items * size, 0, 2 * embeddings)
    patches = items * parts * item.patches
    pixels = 0 if holds("the second runner", options) else patches * sizes.pixels
    frame, together = sizes.encoder.frame, patches
    if frame:
        frames = gpu.memory_bytes // 10 // (frame * sizes.encoder.reckoned)
        together = min(patches, (max(1, frames) if holds("frames pass together", options) else 1) * frame)
    return Images(size, items * size, together, 2 * (embeddings + pixels))


def encoder_pass(architecture: Architecture, patches: int, tp: int) -> dict[str, int]:
    """Bytes of tensors that are alive in a layer of an encoder, in 16 bits: in its attention, in its feed-forward or in
    its projector, whichever takes most; nothing where no image passes."""
    sizes = sizes_of(architecture) if patches else None
    if sizes is None:
        return {}
    encoder, element = sizes.encoder, 2 * patches  # bytes of one element of each patch
    ranks, within = tp if encoder.divided else 1, "in attention or in the feed-forward"
    stages = [
        {STATES: element * (states * sizes.hidden + sizes.deepstack), within: element * times * width // ranks}
        for (states, times), width in ((encoder.attention, sizes.hidden), (encoder.feedforward, sizes.inner))
    ]
    if sizes.projector:
        middle, out = (element * width for width in sizes.projector)
        out *= 2 if ranks > 1 else 1  # summed over ranks into another tensor
        stages.append({STATES: element * sizes.hidden, "in the projector": middle // ranks + max(middle // ranks, out)})
    widest = max(stages, key=lambda stage: sum(stage.values()))
    return {"pixels of the images": element * sizes.pixels} | widest
