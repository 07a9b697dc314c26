"""vision_config -> the vision encoder, where its class is known."""

from collections.abc import Mapping
from typing import Any

from calc.errors import ConfigError, Message, shown
from calc.families.family_table import TOWERS
from calc.families.fields import Fields
from calc.model.towers import VisionTower
from calc.model.towers.audio import OmniTowers

ALIASES = {
    "in_chans": "in_channels",
    "init_pos_emb_height": "pos_emb_height",
    "init_pos_emb_width": "pos_emb_width",
    "vt_hidden_size": "hidden_size",
    "vt_intermediate_size": "intermediate_size",
    "vt_num_hidden_layers": "num_hidden_layers",
}


def read_vision(config: Mapping[str, Any]) -> VisionTower | None:
    """The encoder; None where there is none. One of a class that we do not know is left out; `uncounted` names it."""
    config = thinker(config)
    kind = vision_kind(config)
    whole = config.get("model_type")
    tower = TOWERS.get(whole) if isinstance(whole, str) else None
    if kind is None or tower is None:
        return None
    own = Fields(config["vision_config"], tower.defaults, ALIASES)
    return tower.read(own, Fields(config, {"downsample_ratio": 0.5}, {}))


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
        message = Message("{field} is {value}; it must be an object of fields.", field=field, value=shown(tower))
        raise ConfigError(message, field)
    kind = tower.get("model_type")
    return kind if isinstance(kind, str) else "unknown"


def uncounted(config: Mapping[str, Any]) -> str | None:
    """The model_types of encoders for images and sound that are there and not counted."""
    tower, inner = read_vision(config), thinker(config)
    image = vision_kind(inner) if tower is None else None
    sound = None if isinstance(tower, OmniTowers) else vision_kind(inner, "audio_config")
    return ", ".join(kind for kind in (image, sound) if kind is not None) or None
