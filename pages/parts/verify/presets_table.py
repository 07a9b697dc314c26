"""Every preset: our count beside the published one."""

from functools import cache

import streamlit as st

from pages.parts import words
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
        "date": say("Date"),
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
        published, beside = preset.published, preset.beside()
        if published is None:
            continue
        architecture = of_preset(preset.id, None).architecture
        assert architecture is not None
        ours, plus = architecture.parameters().total, sum(beside.values())
        rows.append(
            {
                "model": preset.id,
                "computed": ours,
                "parts": plus,
                "what": words.listed(say(words.IN_FILES[part]) for part in beside) if beside else "",
                "published": published.total,
                "difference": published.total - ours - plus,
                "source": published.source,
                "date": published.date,
            }
        )
    return rows
