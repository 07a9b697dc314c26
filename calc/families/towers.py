"""vision_config -> the image tower, where its class is known."""

from collections.abc import Callable, Mapping
from typing import Any

from calc.errors import ConfigError, shown
from calc.families.encoder_towers import gemma3, idefics2, idefics3, lfm2_vl, llava, paligemma, qwen_audio
from calc.families.fields import Fields
from calc.families.tower_defaults import (
    GEMMA4,
    GLM4,
    IDEFICS2,
    IDEFICS3,
    INTERN,
    LLAMA4,
    MINIMAX,
    MLLAMA,
    MOON,
    PIXTRAL,
    QWEN2,
    QWEN2_5,
    QWEN3,
    QWEN3_VL,
    SIGLIP,
    SIGLIP2,
)
from calc.model.towers import VisionTower
from calc.model.towers.audio import OmniTowers
from calc.model.towers.image import (
    Gemma4Vision,
    Glm4Vision,
    InternVision,
    Llama4Vision,
    LlamaVision,
    MiniMaxVision,
    MoonVision,
    PixtralVision,
    Qwen2Vision,
    QwenVision,
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
        standardize=c.flag("standardize"),
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


def glm4(c: Fields, whole: Fields) -> Glm4Vision:
    return Glm4Vision(
        hidden=c.size("hidden_size"),
        intermediate=c.size("intermediate_size"),
        num_layers=c.size("depth"),
        channels=c.size("in_channels"),
        patches=(c.size("image_size") // c.size("patch_size")) ** 2,
        patch_size=c.size("patch_size"),
        temporal_patch_size=c.size("temporal_patch_size"),
        merge_size=c.size("spatial_merge_size"),
        out_hidden=c.size("out_hidden_size"),
        qkv_bias=c.flag("attention_bias"),
    )


def mllama(c: Fields, whole: Fields) -> LlamaVision:
    ratios = c.get("supported_aspect_ratios")
    return LlamaVision(
        hidden=c.size("hidden_size"),
        intermediate=c.size("intermediate_size"),
        num_layers=c.size("num_hidden_layers"),
        num_global_layers=c.size("num_global_layers"),
        channels=c.size("num_channels"),
        patches=(c.size("image_size") // c.size("patch_size")) ** 2,
        patch_size=c.size("patch_size"),
        tiles=c.size("max_num_tiles"),
        ratios=len(ratios) if isinstance(ratios, list) and ratios else 8,
        out_hidden=c.size("vision_output_dim"),
    )


def omni2_5(c: Fields, whole: Fields) -> OmniTowers:
    return OmniTowers(image=qwen2_5(c, whole), audio=qwen_audio(whole, convolved=False))


def omni3(c: Fields, whole: Fields) -> OmniTowers:
    return OmniTowers(image=qwen3(c, whole), audio=qwen_audio(whole, convolved=True))


def two(c: Fields, name: str) -> tuple[int, int]:
    """A height and a width, or one number for both."""
    value = c.get(name)
    pair = value if isinstance(value, list) and len(value) == 2 else [value, value]
    first, second = (c.within({name: side}).size(name) for side in pair)
    return first, second


ALIASES = {
    "in_chans": "in_channels",
    "init_pos_emb_height": "pos_emb_height",
    "init_pos_emb_width": "pos_emb_width",
    "vt_hidden_size": "hidden_size",
    "vt_intermediate_size": "intermediate_size",
    "vt_num_hidden_layers": "num_hidden_layers",
}
Reader = Callable[[Fields, Fields], VisionTower | None]
TOWERS: dict[str, tuple[Reader, dict[str, Any]]] = {
    "gemma3": (gemma3, SIGLIP),
    "gemma4": (gemma4, GEMMA4),
    "glm46v": (glm4, GLM4),
    "glm4v": (glm4, GLM4),
    "glm4v_moe": (glm4, GLM4),
    "idefics2": (idefics2, IDEFICS2),
    "idefics3": (idefics3, IDEFICS3),
    "internvl": (intern, INTERN),
    "kimi_k25": (moon, MOON),
    "lfm2_vl": (lfm2_vl, SIGLIP2),
    "llama4": (llama4, LLAMA4),
    "llava": (llava, {}),
    "llava_next": (llava, {}),
    "llava_onevision": (llava, {}),
    "minimax_m3_vl": (minimax, MINIMAX),
    "mistral3": (pixtral, PIXTRAL),
    "mllama": (mllama, MLLAMA),
    "paligemma": (paligemma, SIGLIP),
    "qwen2_5_omni_thinker": (omni2_5, QWEN2_5),
    "qwen2_5_vl": (qwen2_5, QWEN2_5),
    "qwen2_vl": (qwen2, QWEN2),
    "qwen3_5": (qwen3, QWEN3),
    "qwen3_5_moe": (qwen3, QWEN3),
    "qwen3_omni_moe_thinker": (omni3, QWEN3_VL),
    "qwen3_vl": (qwen3, QWEN3_VL),
    "qwen3_vl_moe": (qwen3, QWEN3_VL),
    "smolvlm": (idefics3, IDEFICS3),
}
"""model_type of the whole -> how its tower is read, and what its class assumes."""


def read_vision(config: Mapping[str, Any]) -> VisionTower | None:
    """The tower; None where there is none. One of a class that we do not know is left out; `uncounted` names it."""
    config = thinker(config)
    kind = vision_kind(config)
    whole = config.get("model_type")
    if kind is None or not isinstance(whole, str) or whole not in TOWERS:
        return None
    read, defaults = TOWERS[whole]
    return read(Fields(config["vision_config"], defaults, ALIASES), Fields(config, {"downsample_ratio": 0.5}, {}))


def thinker(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of an omni model that reads images and sound; what speaks beside it is not counted."""
    inner = config.get("thinker_config")
    return {**inner, "model_type": f"{config.get('model_type')}_thinker"} if isinstance(inner, Mapping) else config


def vision_kind(config: Mapping[str, Any], field: str = "vision_config") -> str | None:
    """The model_type of a vision_config; None without one."""
    tower = config.get(field)
    if tower is None:
        return None
    if not isinstance(tower, Mapping):
        raise ConfigError(f"{field} is {shown(tower)}; it must be an object of fields.", field)
    kind = tower.get("model_type")
    return kind if isinstance(kind, str) else "unknown"


def uncounted(config: Mapping[str, Any]) -> str | None:
    """The model_types of towers for images and sound that are there and not counted."""
    tower, inner = read_vision(config), thinker(config)
    image = vision_kind(inner) if tower is None else None
    sound = None if isinstance(tower, OmniTowers) else vision_kind(inner, "audio_config")
    return " and ".join(kind for kind in (image, sound) if kind is not None) or None
