"""The efficiencies of a plan's GPU, each with its source, to be edited."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from calc import GPU
from calc.time import EfficiencyRow, Estimate, without_effect, written_share
from pages.parts.inputs.control import drawer
from pages.parts.labels import EFFICIENCIES
from pages.parts.screen import caption, quiet_button
from pages.parts.state.scenario import Place, places
from pages.parts.state.url import change
from pages.parts.state.weighed import Answer
from pages.parts.words import say

ENDS = ("low", "expected", "high")


def draw(answer: Answer, gpu: GPU, rows: Mapping[str, EfficiencyRow], *, training: bool) -> None:
    """Table of a GPU's efficiencies; an edit holds for every GPU, travels in the link, and counts on Weigh, of training
    on Train."""
    edits = answer.scenario.cluster.efficiencies
    idle(answer, training=training)
    with drawer(say("Efficiencies"), "efficiencies_drawer", icon=":material/speed:") as is_open:
        if not is_open:
            return
        caption(
            "Shares of the printed peaks of {gpu} that kernels reach, and the time that host and links add. A figure "
            "that you change holds for every GPU and is part of the link.",
            gpu=gpu.name,
        )
        usual = {name: row.value for name, row in rows.items()}
        now = {**usual, **edits}
        place = places(("efficiencies",))["share"]
        key = f"efficiencies_{gpu.id}_{'_'.join(answer.scenario.efficiencies.share)}"
        st.data_editor(
            [
                {"what": say(EFFICIENCIES[name]), **now[name].model_dump(), "mine": name in edits, "source": row.source}
                for name, row in rows.items()
            ],
            key=key,
            hide_index=True,
            disabled=["what", "mine", "source"],
            on_change=_take,
            args=(place, key, now, usual),
            column_config=columns(),
        )
        quiet_button(say("Reset all"), "efficiencies_reset", "undo", lambda: change({place: ()}), disabled=not edits)


def idle(answer: Answer, *, training: bool) -> None:
    """A sentence on what the link states and the page does not use."""
    sentence = without_effect(answer.scenario.cluster.efficiencies, training=training)
    if sentence is not None:
        caption(sentence)


def node(answer: Answer) -> None:
    """A line on nodes of another size than usual, which a plan was made for, and the way back."""
    place = places(("efficiencies",))["node"]
    if (gpus := place.of(answer.scenario)) == place.option.default:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(say("Speed on nodes of {n:,} GPUs.", n=gpus), width="content")
        quiet_button(say("Reset"), "node_reset", "undo", change, {place: place.option.default})


def columns() -> dict[str, Any]:
    number = st.column_config.NumberColumn
    return {
        "what": say("What"),
        "low": number(say("Low"), min_value=0.0, format="%g"),
        "expected": number(say("Expected"), min_value=0.0, format="%g"),
        "high": number(say("High"), min_value=0.0, format="%g"),
        "mine": st.column_config.CheckboxColumn(say("Yours"), width=60),
        "source": st.column_config.LinkColumn(say("Source"), display_text=say("open")),
    }


def _take(place: Place, key: str, now: dict[str, Estimate], usual: dict[str, Estimate]) -> None:
    """Take edits; low and high follow an expected figure that would cross them."""
    names = list(usual)
    stated = dict(st.session_state.scenario.cluster.efficiencies)
    for index, cells in st.session_state[key]["edited_rows"].items():
        name = names[int(index)]
        low, expected, high = ({**now[name].model_dump(), **cells}[end] or 0.0 for end in ENDS)
        if "expected" in cells:
            low, high = min(low, expected), max(high, expected)
        expected = min(max(expected, low), max(low, high))
        stated[name] = Estimate(low=low, expected=expected, high=max(low, high))
    chosen = tuple(written_share(name, share) for name, share in stated.items() if share != usual.get(name))
    change({place: chosen})
