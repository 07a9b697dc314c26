"""Every preset: our count beside the published one."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

import streamlit as st

from pages.parts import words
from pages.parts.state.published import of_preset
from pages.parts.words import say
from presets import Preset, Published, models


def draw() -> None:
    columns = {
        "model": say("Model"),
        "computed": say("Computed"),
        "parts": say("Also in the file"),
        "what": say("What"),
        "published": say("Published"),
        "difference": say("Difference"),
        "source": say("Source"),
        "date": say("Date"),
    }
    presets = [(preset, preset.published) for preset in models().values()]
    rows = [row(preset, published, totals()[preset.id]) for preset, published in presets if published is not None]
    agreeing = sum(row["difference"] == 0 for row in rows)
    st.metric(
        say("Presets whose published total is met to the last parameter"),
        say("{n} of {all}", n=agreeing, all=len(rows)),
    )
    numbers = ("computed", "parts", "published", "difference")
    st.dataframe(
        rows,
        hide_index=True,
        key="preset_totals",
        height=600,
        column_config={
            **columns,
            "what": st.column_config.TextColumn(columns["what"], width=190),
            "source": st.column_config.LinkColumn(columns["source"], display_text=say("open")),
            **{name: st.column_config.NumberColumn(columns[name], format="localized") for name in numbers},
        },
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


def row(preset: Preset, published: Published, ours: int) -> dict[str, str | int]:
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
