"""Every preset: our count beside the published one."""

from functools import cache

import streamlit as st

from pages.parts.state.published import of_preset
from pages.parts.words import say
from presets import models


def draw() -> None:
    columns = {
        "model": say("Model"),
        "computed": say("Computed"),
        "parts": say("Also in the file"),
        "what": say("What"),
        "published": say("Published"),
        "difference": say("Difference"),
        "source": say("Source"),
    }
    rows = published_totals()
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
            **{name: st.column_config.NumberColumn(columns[name], format="localized") for name in numbers},
        },
    )


@cache
def published_totals() -> list[dict[str, str | int]]:
    rows: list[dict[str, str | int]] = []
    for preset in models().values():
        architecture = of_preset(preset.id, None).architecture
        assert architecture is not None
        ours, published = architecture.parameters().total, preset.published
        rows.append(
            {
                "model": preset.id,
                "computed": ours,
                "parts": sum(part.count for part in published.plus),
                "what": "; ".join(part.what for part in published.plus),
                "published": published.total,
                "difference": published.difference(ours),
                "source": published.source,
            }
        )
    return rows
