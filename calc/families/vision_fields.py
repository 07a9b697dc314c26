"""vision_config -> the vision encoder, where its class is known."""

from collections.abc import Mapping
from typing import Any

from calc.families.family_table import TOWERS
from calc.families.fields import Fields, section_of
from calc.families.tower_parts import Tower, defaults_of
from calc.model.vision import ListedTower

ENCODERS = ("vision_config", "audio_config")
"""Sections of a config that describe an encoder."""
ALIASES = {
    "d_model": "hidden_size",
    "encoder_ffn_dim": "intermediate_size",
    "encoder_layers": "num_hidden_layers",
    "in_chans": "in_channels",
    "init_pos_emb_height": "pos_emb_height",
    "init_pos_emb_width": "pos_emb_width",
    "vt_hidden_size": "hidden_size",
    "vt_intermediate_size": "intermediate_size",
    "vt_num_hidden_layers": "num_hidden_layers",
}


def read_vision(config: Mapping[str, Any]) -> ListedTower | None:
    """The encoder; None where there is none. One of a class that we do not know is left out; `uncounted` names it."""
    config = thinker(config)
    tower = tower_of(config)
    if tower is None:
        return None
    kinds = [encoder_kind(config, section) for section in tower.sections]
    if kinds and all(kind is None for kind in kinds):
        return None
    first = tower.sections[0] if kinds else ""
    section = config.get(first) if kinds else config
    own = Fields(section or {}, defaults_of(config["model_type"], first), ALIASES)
    whole = Fields(config, {"downsample_ratio": 0.5, **defaults_of(config["model_type"], "")}, {})
    vision = tower.read(own, whole)
    return None if vision is None else vision.model_copy(update={"wrapper": config["model_type"]})


def tower_of(config: Mapping[str, Any]) -> Tower | None:
    """Reader of a wrapper's encoders; None where none is known."""
    whole = config.get("model_type")
    return TOWERS.get(whole) if isinstance(whole, str) else None


def thinker(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of an omni model that reads images and sound; its speech part is not counted."""
    inner = config.get("thinker_config")
    return {**inner, "model_type": f"{config.get('model_type')}_thinker"} if isinstance(inner, Mapping) else config


def encoder_kind(config: Mapping[str, Any], field: str) -> str | None:
    """The model_type of an encoder's section; None without one."""
    tower = config.get(field)
    if tower is None:
        return None
    kind = section_of(tower, field).get("model_type")
    return kind if isinstance(kind, str) else "unknown"


def uncounted(config: Mapping[str, Any]) -> str | None:
    """The model_types of encoders for images and sound that are there and not counted."""
    counted, inner = read_vision(config), thinker(config)
    tower = tower_of(inner) if counted is not None else None
    left = [field for field in ENCODERS if tower is None or field not in tower.sections]
    return ", ".join(kind for field in left if (kind := encoder_kind(inner, field)) is not None) or None
