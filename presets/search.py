"""Presets as a list has them: each with its label, and the words by which `pages/scripts/question.js` looks for it."""

import re
from functools import cache, lru_cache

from presets import Preset, models

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


@cache
def newest() -> tuple[Preset, ...]:
    """All presets, the newest first, and by id within a month."""
    return tuple(sorted(models().values(), key=lambda preset: preset.month, reverse=True))


@lru_cache(maxsize=1024)
def size(preset_id: str) -> str:
    """Parameters in short: 671B, 494M; nothing where nobody states them."""
    published = models()[preset_id].published
    if published is None:
        return ""
    billions = published.total / 1e9
    return f"{billions:.0f}B" if billions >= 10 else f"{billions:.1f}B" if billions >= 1 else f"{billions * 1e3:.0f}M"


@lru_cache(maxsize=1024)
def label(preset_id: str) -> str:
    """A preset in a list: its name, its size, whether it has experts, its month, and its maker."""
    preset = models()[preset_id]
    weight = f"{size(preset.id)} {kind(preset)}".strip()
    return " · ".join(filter(None, (preset.name, weight, preset.month, preset_id.partition("/")[0])))


def kind(preset: Preset) -> str:
    """Mark of a mixture of experts: MoE, or empty."""
    settings = preset.config.get("text_config", preset.config)
    return "MoE" if any(settings.get(name) for name in EXPERTS) else ""


@lru_cache(maxsize=1024)
def haystack(preset_id: str) -> str:
    """Searchable text of a preset."""
    preset = models()[preset_id]
    text = f"{preset.id} {preset.name} {size(preset.id)} {kind(preset)}".lower()
    return f"{text} {squeezed(preset.id)} {squeezed(preset.name)}"


def squeezed(name: str) -> str:
    """Name without what people write between its parts."""
    return re.sub(r"[\s\-_]+", "", name.lower())
