"""The smallest app with our scenario, address and widgets: two pages, sliders in a part that runs by itself, a box that
can be emptied outside it, presets and a reset."""

from functools import partial

import streamlit as st

from pages.parts import words
from pages.parts.inputs.sidebar import put
from pages.parts.state import url
from pages.parts.state.published import published
from pages.parts.state.query import TRAIN, WEIGH
from pages.parts.state.scenario import Scenario, places
from pages.parts.state.widgets import show

PRESETS = ("Qwen/Qwen3-14B", "Qwen/Qwen2.5-3B")
SLIDERS = ("num_hidden_layers", "hidden_size")
WHOLE = {WEIGH: ("batch", "tp"), TRAIN: ("accumulation",)}
EMPTY = {WEIGH: ("max_num_seqs",), TRAIN: ()}


def screen(here):
    scenario, known = url.current(here), places(here.uses)
    for model in PRESETS:
        st.button(model, key=f"choose_{model}", on_click=url.choose, args=(model,))
    usual = Scenario(source=scenario.source)
    st.button("Reset", key="reset", on_click=lambda: url.change(overrides={}, serving=usual.serving))
    for name in WHOLE[here]:
        st.number_input(name, min_value=1, **url.bind(known[name]))
    for name in EMPTY[here]:
        st.number_input(name, value=None, min_value=1, **url.bind(known[name], given=None))
    part(here, [scenario])


@st.fragment
def part(here, first):
    words.begin()
    scenario = first.pop() if first else url.current(here)
    own = published(scenario.source).settings
    now = own | scenario.overrides
    for name in SLIDERS:
        shown = show(f"field_{name}", now[name], put, name, own[name])
        st.slider(name, min_value=1, max_value=20_000, **shown)
    factor = round(now["intermediate_size"] / now["hidden_size"], 4)
    st.slider(
        "factor", min_value=0.0, max_value=9e9, step=0.125, **show("field_factor", factor, partial(widen, now, own))
    )
    boxes = {name: places(here.uses)[name].of(scenario) for name in WHOLE[here] + EMPTY[here]}
    st.markdown(f"{scenario.source.model} {[now[name] for name in SLIDERS]} {factor} {boxes}")


def widen(now, own, factor):
    put(round(factor * now["hidden_size"]), "intermediate_size", own["intermediate_size"])


url.arrive()
st.navigation(
    [
        st.Page(partial(screen, WEIGH), title="weigh", url_path="", default=True),
        st.Page(partial(screen, TRAIN), title="train", url_path="train"),
    ]
).run()
url.resume()
