"""Presets by words in any order, over id, maker, name and size."""

import re
from functools import cache

from presets import Preset, models

TUNED = frozenset("instruct it chat base hf thinking sft rl preview fp8 awq gptq gguf".split())
"""Words of names whose models have the sizes of the model without them: Qwen2.5-3B-Instruct is Qwen2.5-3B."""
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def find(text: str) -> list[Preset]:
    """Every preset that has all words, those first whose names they are and that are the shortest."""
    words = re.sub(r"[/\-_]", " ", text.lower()).split()
    asked = [word for word in words if word not in TUNED] or words
    found = [preset for preset in models().values() if asked and all(word in haystack(preset.id) for word in asked)]

    def order(preset: Preset) -> tuple[bool, int, str]:
        return squeezed(preset.name) != "".join(asked), len(preset.name), preset.id.lower()

    return sorted(found, key=order)


def exact(text: str) -> Preset | None:
    """The preset that a text names, by its id or its name, however it is spelled; or the only one with its words."""
    known = {squeezed(name): preset for preset in models().values() for name in (preset.name, preset.id)}
    kept = "".join(part for part in re.split(r"[\s\-_]+", text.lower()) if part not in TUNED)
    if (named := known.get(squeezed(text)) or known.get(squeezed(kept))) is not None:
        return named
    found = find(text)
    return found[0] if len(found) == 1 else None


@cache
def size(preset_id: str) -> str:
    """Parameters in short: 671B, 494M; nothing where nobody states them."""
    published = models()[preset_id].published
    if published is None:
        return ""
    billions = published.total / 1e9
    return f"{billions:.0f}B" if billions >= 10 else f"{billions:.1f}B" if billions >= 1 else f"{billions * 1e3:.0f}M"


@cache
def label(preset_id: str, *, maker: bool = True) -> str:
    """A preset in a list: its name, its size, whether it has experts, and its maker."""
    preset = models()[preset_id]
    weight = f"{size(preset.id)} {kind(preset)}".strip()
    return " · ".join(filter(None, (preset.name, weight, preset.id.partition("/")[0] if maker else "")))


def kind(preset: Preset) -> str:
    """What it is called where not all parameters are active."""
    settings = preset.config.get("text_config", preset.config)
    return "MoE" if any(settings.get(name) for name in EXPERTS) else ""


@cache
def haystack(preset_id: str) -> str:
    """What a word is looked for in."""
    preset = models()[preset_id]
    told = f"{preset.id} {preset.name} {size(preset.id)} {kind(preset)}".lower()
    return f"{told} {squeezed(preset.id)} {squeezed(preset.name)}"


def squeezed(name: str) -> str:
    """Without what people write between its parts."""
    return re.sub(r"[\s\-_]+", "", name.lower())
