"""Every preset: our count and the published one."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import streamlit as st

from pages.parts import words
from pages.parts.outputs import tables
from pages.parts.outputs.tables import Column
from pages.parts.state.published import of_preset
from pages.parts.words import say
from presets import Preset, Published, models


def draw() -> None:
    presets = [(preset, preset.published) for preset in models().values()]
    rows = [row(preset, published, totals()[preset.id]) for preset, published in presets if published is not None]
    agreeing = sum(row["difference"] == 0 for row in rows)
    st.metric(
        say("Presets whose published total is met to the last parameter"),
        say("{n} of {all}", n=agreeing, all=len(rows)),
    )
    tables.draw(
        "preset_totals",
        say("All presets"),
        [
            Column(say("Model"), "model", "name"),
            Column(say("Computed"), "computed", "whole"),
            Column(say("Also in the file"), "parts", "whole"),
            Column(say("Published"), "published", "whole"),
            Column(say("Difference"), "difference", "whole"),
            tables.source(),
            Column(say("Date"), "date"),
            Column(say("What"), "what"),
        ],
        rows,
    )


@cache
def totals() -> Mapping[str, int]:
    """Our count of every preset whose total somebody published."""
    counts = {}
    for preset in models().values():
        architecture = of_preset(preset.id, None).architecture
        if preset.published is not None and architecture is not None:
            counts[preset.id] = architecture.parameters().total
    return MappingProxyType(counts)


def row(preset: Preset, published: Published, ours: int) -> dict[str, Any]:
    """A preset whose total somebody published: parameters computed, and those that only its file has."""
    auxiliary = preset.auxiliary_parts()
    plus = sum(auxiliary.values())
    return {
        "model": preset.id,
        "computed": ours,
        "parts": plus,
        "what": words.listed(say(words.IN_FILES[part]) for part in auxiliary) if auxiliary else "",
        "published": published.total,
        "difference": published.total - ours - plus,
        "source": published.source,
        "date": published.date,
    }
