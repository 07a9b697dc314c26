"""vision_config -> the image tower, where its class is known."""

from collections.abc import Callable, Mapping
from typing import Any

from calc.errors import ConfigError
from calc.fields import Fields, shown
from calc.towers import (
    Gemma4Vision,
    InternVision,
    Llama4Vision,
    MiniMaxVision,
    MoonVision,
    PixtralVision,
    Qwen2Vision,
)
from calc.vision import QwenVision, SiglipVision, VisionTower


def siglip(c: Fields, whole: Fields) -> SiglipVision:
    return SiglipVision(
        hidden=c.size("hidden_size"),
        intermediate=c.size("intermediate_size"),
        num_layers=c.size("num_hidden_layers"),
        image_size=c.size("image_size"),
        patch_size=c.size("patch_size"),
        channels=c.size("num_channels"),
        pooling_head=c.flag("vision_use_head"),
    )


def qwen3(c: Fields, whole: Fields) -> QwenVision:
    return QwenVision(
        hidden=c.size("hidden_size"),
        intermediate=c.size("intermediate_size"),
        num_layers=c.size("depth"),
        channels=c.size("in_channels"),
        patch_size=c.size("patch_size"),
        temporal_patch_size=c.size("temporal_patch_size"),
        merge_size=c.size("spatial_merge_size"),
        positions=c.size("num_position_embeddings"),
        out_hidden=c.size("out_hidden_size"),
        deepstack=len(c.indices("deepstack_visual_indexes")),
    )


def qwen2(c: Fields, whole: Fields) -> Qwen2Vision:
    """Here `hidden_size` is the width of what the tower puts out."""
    hidden = c.size("embed_dim")
    return Qwen2Vision(
        hidden=hidden,
        intermediate=c.size("mlp_ratio") * hidden,
        num_layers=c.size("depth"),
        channels=c.size("in_channels"),
        patch_size=c.size("patch_size"),
        temporal_patch_size=c.size("temporal_patch_size"),
        merge_size=c.size("spatial_merge_size"),
        out_hidden=c.size("hidden_size"),
        gated=False,
    )


def qwen2_5(c: Fields, whole: Fields) -> Qwen2Vision:
    return Qwen2Vision(
        hidden=c.size("hidden_size"),
        intermediate=c.size("intermediate_size"),
        num_layers=c.size("depth"),
        channels=c.size("in_channels"),
        patch_size=c.size("patch_size"),
        temporal_patch_size=c.size("temporal_patch_size"),
        merge_size=c.size("spatial_merge_size"),
        out_hidden=c.size("out_hidden_size"),
        gated=True,
    )


def pixtral(c: Fields, whole: Fields) -> PixtralVision:
    return PixtralVision(
        hidden=c.size("hidden_size"),
        intermediate=c.size("intermediate_size"),
        num_layers=c.size("num_hidden_layers"),
        channels=c.size("num_channels"),
        patch_size=c.size("patch_size"),
        merge_size=whole.maybe("spatial_merge_size") or 2,
        projector_bias=whole.flag("multimodal_projector_bias"),
    )


def llama4(c: Fields, whole: Fields) -> Llama4Vision:
    return Llama4Vision(
        hidden=c.size("hidden_size"),
        intermediate=c.size("intermediate_size"),
        num_layers=c.size("num_hidden_layers"),
        channels=c.size("num_channels"),
        image_size=c.size("image_size"),
        patch_size=c.size("patch_size"),
        projector_in=c.size("projector_input_dim"),
        projector_out=c.size("projector_output_dim"),
        out_hidden=c.size("vision_output_dim"),
    )


def gemma4(c: Fields, whole: Fields) -> Gemma4Vision:
    return Gemma4Vision(
        hidden=c.size("hidden_size"),
        intermediate=c.size("intermediate_size"),
        num_layers=c.size("num_hidden_layers"),
        n_q=c.size("num_attention_heads"),
        n_kv=c.size("num_key_value_heads"),
        d_head=c.size("head_dim"),
        patch_size=c.size("patch_size"),
        positions=c.size("position_embedding_size"),
    )


def minimax(c: Fields, whole: Fields) -> MiniMaxVision:
    compression = c.get("img_token_compression_config")
    merging = c.within(compression) if isinstance(compression, Mapping) else c
    return MiniMaxVision(
        hidden=c.size("hidden_size"),
        intermediate=c.size("intermediate_size"),
        num_layers=c.size("num_hidden_layers"),
        channels=c.size("num_channels"),
        patch_size=c.size("patch_size"),
        temporal_patch_size=merging.maybe("temporal_patch_size") or c.size("temporal_patch_size"),
        merge_size=merging.maybe("spatial_merge_size") or c.size("spatial_merge_size"),
        projector_hidden=whole.maybe("projector_hidden_size") or 6144,
    )


def moon(c: Fields, whole: Fields) -> MoonVision:
    height, width = two(c, "merge_kernel_size")
    return MoonVision(
        hidden=c.size("hidden_size"),
        intermediate=c.size("intermediate_size"),
        num_layers=c.size("num_hidden_layers"),
        patch_size=c.size("patch_size"),
        positions=(c.size("pos_emb_height"), c.size("pos_emb_width")),
        merge=height * width,
    )


def intern(c: Fields, whole: Fields) -> InternVision:
    (height, width), (tall, wide) = two(c, "image_size"), two(c, "patch_size")
    ratio = whole.get("downsample_ratio")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        raise ConfigError(f"downsample_ratio is {shown(ratio)}; it must be a number such as 0.5.", "downsample_ratio")
    return InternVision(
        hidden=c.size("hidden_size"),
        intermediate=c.size("intermediate_size"),
        num_layers=c.size("num_hidden_layers"),
        channels=c.size("num_channels"),
        patches=(height // tall) * (width // wide),
        patch_size=tall,
        qkv_bias=c.flag("attention_bias"),
        qk_norm=c.flag("use_qk_norm"),
        norm_bias=c.get("norm_type") == "layer_norm",
        merge=int(1 / ratio) ** 2,
    )


def two(c: Fields, name: str) -> tuple[int, int]:
    """A height and a width, or one number for both."""
    value = c.get(name)
    pair = value if isinstance(value, list) and len(value) == 2 else [value, value]
    first, second = (c.within({name: side}).size(name) for side in pair)
    return first, second


SIGLIP = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
    "vision_use_head": True,
}
QWEN3 = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "in_channels": 3,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "num_position_embeddings": 2304,
    "out_hidden_size": 3584,
    "deepstack_visual_indexes": None,
}
QWEN3_VL = QWEN3 | {"deepstack_visual_indexes": [8, 16, 24]}
QWEN2 = {
    "depth": 32,
    "embed_dim": 1280,
    "hidden_size": 3584,
    "mlp_ratio": 4,
    "in_channels": 3,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
}
QWEN2_5 = {"intermediate_size": 3420, "out_hidden_size": 3584} | QWEN2
PIXTRAL = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_channels": 3,
    "patch_size": 16,
}
LLAMA4 = {
    "hidden_size": 768,
    "intermediate_size": 5632,
    "num_hidden_layers": 34,
    "num_channels": 3,
    "image_size": 448,
    "patch_size": 14,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
    "vision_output_dim": 7680,
}
GEMMA4 = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 16,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "head_dim": 64,
    "patch_size": 16,
    "position_embedding_size": 10240,
}
MINIMAX = {
    "hidden_size": 1280,
    "intermediate_size": 5120,
    "num_hidden_layers": 32,
    "num_channels": 3,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
}
MOON = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "patch_size": 14,
    "pos_emb_height": 64,
    "pos_emb_width": 64,
    "merge_kernel_size": [2, 2],
}
INTERN = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_channels": 3,
    "image_size": [448, 448],
    "patch_size": [14, 14],
    "attention_bias": False,
    "use_qk_norm": False,
    "norm_type": "layer_norm",
}
ALIASES = {
    "in_chans": "in_channels",
    "init_pos_emb_height": "pos_emb_height",
    "init_pos_emb_width": "pos_emb_width",
    "vt_hidden_size": "hidden_size",
    "vt_intermediate_size": "intermediate_size",
    "vt_num_hidden_layers": "num_hidden_layers",
}
Reader = Callable[[Fields, Fields], VisionTower]
TOWERS: dict[str, tuple[Reader, dict[str, Any]]] = {
    "gemma3": (siglip, SIGLIP),
    "gemma4": (gemma4, GEMMA4),
    "internvl": (intern, INTERN),
    "kimi_k25": (moon, MOON),
    "llama4": (llama4, LLAMA4),
    "minimax_m3_vl": (minimax, MINIMAX),
    "mistral3": (pixtral, PIXTRAL),
    "qwen2_5_vl": (qwen2_5, QWEN2_5),
    "qwen2_vl": (qwen2, QWEN2),
    "qwen3_5": (qwen3, QWEN3),
    "qwen3_5_moe": (qwen3, QWEN3),
    "qwen3_vl": (qwen3, QWEN3_VL),
    "qwen3_vl_moe": (qwen3, QWEN3_VL),
}
"""model_type of the whole -> how its tower is read, and what its class assumes."""


def read_vision(config: Mapping[str, Any]) -> VisionTower | None:
    """The tower; None where there is none. One of a class that we do not know is left out; `uncounted` names it."""
    kind = vision_kind(config)
    whole = config.get("model_type")
    if kind is None or not isinstance(whole, str) or whole not in TOWERS:
        return None
    read, defaults = TOWERS[whole]
    return read(Fields(config["vision_config"], defaults, ALIASES), Fields(config, {"downsample_ratio": 0.5}, {}))


def vision_kind(config: Mapping[str, Any]) -> str | None:
    """The model_type of a vision_config; None without one."""
    vision = config.get("vision_config")
    if vision is None:
        return None
    if not isinstance(vision, Mapping):
        raise ConfigError(f"vision_config is {shown(vision)}; it must be an object of fields.", "vision_config")
    kind = vision.get("model_type")
    return kind if isinstance(kind, str) else "unknown"


def uncounted(config: Mapping[str, Any]) -> str | None:
    """The model_type of an image tower that is there and not counted."""
    return vision_kind(config) if read_vision(config) is None else None
