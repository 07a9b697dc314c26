"""vision_config -> the image tower, where its class is known."""

from collections.abc import Mapping
from typing import Any

from calc.errors import ConfigError
from calc.fields import Fields, shown
from calc.vision import QwenVision, SiglipVision, VisionTower

SIGLIP = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "image_size": 224,
    "patch_size": 16,
    "num_channels": 3,
    "vision_use_head": True,
}
QWEN = {
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


def read_vision(config: Any) -> VisionTower | None:
    """The tower; None where there is none. One of a class that we do not know is left out, and named by `unknown`."""
    kind = vision_kind(config)
    if kind == "siglip_vision_model":
        c = Fields(config, SIGLIP, {})
        return SiglipVision(
            hidden=c.size("hidden_size"),
            intermediate=c.size("intermediate_size"),
            num_layers=c.size("num_hidden_layers"),
            image_size=c.size("image_size"),
            patch_size=c.size("patch_size"),
            channels=c.size("num_channels"),
            pooling_head=c.flag("vision_use_head"),
        )
    if kind is not None and kind.startswith(("qwen3_vl", "qwen3_5")):
        c = Fields(config, QWEN, {})
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
    return None


def vision_kind(config: Any) -> str | None:
    """The model_type of a vision_config; None without one."""
    if config is None:
        return None
    if not isinstance(config, Mapping):
        raise ConfigError(f"vision_config is {shown(config)}; it must be an object of fields.", "vision_config")
    kind = config.get("model_type")
    return kind if isinstance(kind, str) else "unknown"


def uncounted(config: Mapping[str, Any]) -> str | None:
    """The model_type of an image tower that is there and not counted."""
    kind = vision_kind(config.get("vision_config"))
    return kind if kind is not None and read_vision(config.get("vision_config")) is None else None
