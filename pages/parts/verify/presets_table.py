"""Every preset: our count beside the published one."""

from functools import cache

import streamlit as st

from pages.parts.state.published import of_preset
from pages.parts.words import listed, say
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
    rows = [row(name, ours) for name, ours in totals().items()]
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
def totals() -> dict[str, int]:
    """Our count of every preset."""
    known = {name: of_preset(name, None).architecture for name in models()}
    return {name: architecture.parameters().total for name, architecture in known.items() if architecture is not None}


def row(name: str, ours: int) -> dict[str, str | int]:
    published = models()[name].published
    return {
        "model": name,
        "computed": ours,
        "parts": sum(part.count for part in published.plus),
        "what": listed(say(part.what) for part in published.plus) if published.plus else "",
        "published": published.total,
        "difference": published.difference(ours),
        "source": say(published.source),
    }
