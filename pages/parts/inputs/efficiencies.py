"""The efficiencies of a plan's GPU, each with its source, to be edited."""

from typing import Any

import streamlit as st

from calc.time.efficiency import written_share
from calc.time.estimate import Estimate
from calc.time.plan_range import rows_of_plan
from pages.parts.inputs.drawer import drawer
from pages.parts.labels import EFFICIENCIES
from pages.parts.state.planned import Planned, Ranked
from pages.parts.state.scenario import Place, places
from pages.parts.state.url import change
from pages.parts.words import say

ENDS = ("low", "expected", "high")


def draw(answer: Planned, ranked: Ranked | None) -> None:
    """Those of the plan that is open; what is changed holds for every GPU, travels in the link, and counts on Weigh."""
    edits = answer.scenario.efficiencies.edits
    with drawer(say("Efficiencies"), "efficiencies_drawer", icon=":material/speed:") as is_open:
        if not is_open or ranked is None:
            return
        st.caption(
            say(
                "What kernels reach of the printed peaks of {gpu}, and the time that host and links add. A figure that "
                "you change holds for every GPU and travels in the link.",
                gpu=ranked.gpu.name,
            )
        )
        found = rows_of_plan(answer.plans.search, ranked.plan)
        usual = {name: row.value for name, row in found.items()}
        now = usual | edits
        place = places(("efficiencies",))["share"]
        key = f"efficiencies_{ranked.plan.gpu}_{'_'.join(answer.scenario.efficiencies.share)}"
        st.data_editor(
            [
                {"what": say(EFFICIENCIES[name]), **now[name].model_dump(), "mine": name in edits, "source": row.source}
                for name, row in found.items()
            ],
            key=key,
            hide_index=True,
            disabled=["what", "mine", "source"],
            on_change=_take,
            args=(place, key, now, usual),
            column_config=columns(),
        )
        st.button(
            say("Reset all"),
            key="efficiencies_reset",
            icon=":material/undo:",
            type="tertiary",
            disabled=not edits,
            on_click=lambda: change({place: ()}),
        )


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
    """Its ends follow the expected figure where they would cross it."""
    names = list(usual)
    stated = dict(st.session_state.scenario.efficiencies.edits)
    for index, cells in st.session_state[key]["edited_rows"].items():
        name = names[int(index)]
        low, expected, high = ({**now[name].model_dump(), **cells}[end] or 0.0 for end in ENDS)
        if "expected" in cells:
            low, high = min(low, expected), max(high, expected)
        expected = min(max(expected, low), max(low, high))
        stated[name] = Estimate(low=low, expected=expected, high=max(low, high))
    chosen = tuple(written_share(name, share) for name, share in stated.items() if share != usual[name])
    change({place: chosen})
