"""Presets by words in any order, over id, maker, name, size and date."""

import re
from functools import cache, lru_cache

from presets import Preset, models

TUNED = frozenset("instruct it chat base hf thinking sft rl preview fp8 awq gptq gguf".split())
"""Words of names whose models have the sizes of the model without them: Qwen2.5-3B-Instruct is Qwen2.5-3B."""
WORD = re.compile(r"(?<!\w)\d{4}-\d{2}(?!\w)|[^\s/_-]+")
DATE = re.compile(r"(19|20)\d{2}(-\d{2})?")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def find(text: str) -> list[Preset]:
    """Every preset that has all words: those first whose names they are, then the newest."""
    words = WORD.findall(text.lower())
    sought = [word for word in words if word not in TUNED] or words
    matching = [preset for preset in newest() if sought and all(has(preset, word) for word in sought)]
    return sorted(matching, key=lambda preset: squeezed(preset.name) != "".join(sought))


def has(preset: Preset, word: str) -> bool:
    """Whether a word is in its names, or a year or a month is that of its release."""
    return word in haystack(preset.id) or (DATE.fullmatch(word) is not None and preset.month.startswith(word))


@cache
def newest() -> tuple[Preset, ...]:
    """All presets, the newest first, and by id within a month."""
    return tuple(sorted(models().values(), key=lambda preset: preset.month, reverse=True))


@cache
def by_maker() -> tuple[str, ...]:
    """The ids of all presets by maker, the newest first within each."""
    return tuple(sorted((preset.id for preset in newest()), key=lambda preset_id: maker_of(preset_id).lower()))


def exact(text: str) -> Preset | None:
    """The preset that a text names, by its id or its name, however it is spelled; or the only one with its words."""
    known = {squeezed(name): preset for preset in models().values() for name in (preset.name, preset.id)}
    untuned = "".join(part for part in re.split(r"[\s\-_]+", text.lower()) if part not in TUNED)
    if (named := known.get(squeezed(text)) or known.get(squeezed(untuned))) is not None:
        return named
    matching = find(text)
    return matching[0] if len(matching) == 1 and DATE.fullmatch(text.strip()) is None else None


@lru_cache(maxsize=1024)
def size(preset_id: str) -> str:
    """Parameters in short: 671B, 494M; nothing where nobody states them."""
    published = models()[preset_id].published
    if published is None:
        return ""
    billions = published.total / 1e9
    return f"{billions:.0f}B" if billions >= 10 else f"{billions:.1f}B" if billions >= 1 else f"{billions * 1e3:.0f}M"


@lru_cache(maxsize=1024)
def label(preset_id: str, *, maker: bool = True) -> str:
    """A preset in a list: its name, its size, whether it has experts, its month, and its maker."""
    preset = models()[preset_id]
    weight = f"{size(preset.id)} {kind(preset)}".strip()
    return " · ".join(filter(None, (preset.name, weight, preset.month, maker_of(preset_id) if maker else "")))


def maker_of(preset_id: str) -> str:
    return preset_id.partition("/")[0]


def kind(preset: Preset) -> str:
    """What it is called where not all parameters are active."""
    settings = preset.config.get("text_config", preset.config)
    return "MoE" if any(settings.get(name) for name in EXPERTS) else ""


@lru_cache(maxsize=1024)
def haystack(preset_id: str) -> str:
    """What a word is looked for in."""
    preset = models()[preset_id]
    text = f"{preset.id} {preset.name} {size(preset.id)} {kind(preset)}".lower()
    return f"{text} {squeezed(preset.id)} {squeezed(preset.name)}"


def squeezed(name: str) -> str:
    """Without what people write between its parts."""
    return re.sub(r"[\s\-_]+", "", name.lower())
