"""The catalogue of GPUs as a table that can be searched, sorted and filtered; and GPUs of the reader's own, whose
figures the link carries as text."""

import streamlit as st

from calc import ConfigError
from calc.errors import Message
from calc.hardware import GPU, Dtype, custom_gpu, find_gpu, runs
from calc.serving.engines import ENGINES
from calc.time import price_of
from calc.units import GIB
from pages.parts import words
from pages.parts.inputs.control import several, vendor_and_form
from pages.parts.outputs import frame, tables
from pages.parts.outputs.tables import Column
from pages.parts.screen import alert, caption, heading, leading_button, quiet_button
from pages.parts.state.query import HARDWARE, WEIGH
from pages.parts.state.scenario import Scenario, places
from pages.parts.state.url import change, remove
from pages.parts.words import say
from presets import gpus

DECISIVE = 9  # columns in sight without a click
PEAKS: tuple[Dtype, ...] = ("bf16", "fp8", "fp4")  # of a GPU of the reader's own


def chosen() -> list[GPU]:
    """GPUs that pass the filters, the newest first, of a year by bandwidth."""
    known = sorted(gpus().values(), key=lambda gpu: (gpu.year or 0, gpu.bandwidth_gb_s), reverse=True)
    with st.grid(4, min_column_width=150, gap="small", key="catalogue_filters"):
        passes = vendor_and_form(known, "")
        engines = several(say("Engine"), "runs", list(ENGINES), lambda name: ENGINES[name].title)
        least = st.number_input(say("Memory, at least (GB)"), min_value=0, value=0, step=8, key="least_memory")
    return [
        gpu
        for gpu in known
        if passes(gpu) and all(runs(gpu, ENGINES[engine].support) for engine in engines) and gpu.memory_gb >= least
    ]


def table(shown: list[GPU]) -> None:
    """A row a GPU; rows that are clicked can be weighed."""
    picked = tables.opened("catalogue")
    names = tuple(gpu.id for gpu in shown if gpu.id in picked)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        most = tables.in_sight("catalogue_columns", DECISIVE)
        is_plural = len(names) > 1
        label = say("Weigh on these {n:,} GPUs", n=len(names)) if is_plural else say("Weigh on this GPU")
        leading_button(WEIGH, label, "weigh_on", lambda: change(gpu=names), disabled=not names)
    tables.pick("catalogue", say("GPUs"), columns(), shown, id=lambda gpu: gpu.id, most=most, several=True)


def columns() -> list[Column]:
    """Columns, `DECISIVE` of them first; cells of unknown figures stay empty."""
    dense = Message("Dense peak of the matrix units.")

    def peak(dtype: Dtype) -> Column:
        label = Message("{dtype}, TOPS", dtype=dtype) if dtype == "int8" else Message("{dtype}, TFLOPS", dtype=dtype)
        return Column(label, lambda gpu: gpu.tflops.get(dtype), "figure", dense)

    return [
        Column("GPU", "name"),
        Column("Form", lambda gpu: say(words.FORMS[gpu.form])),
        Column("Year", lambda gpu: f"{gpu.year}"),
        Column("Memory, GB", "memory_gb", "figure"),
        Column("Bandwidth, GB/s", "bandwidth_gb_s", "figure"),
        peak("bf16"),
        peak("fp8"),
        Column("Price per hour", lambda gpu: price_of(gpu.id), "dollars", "Median of a dated sample of list prices."),
        Column("Specification", lambda gpu: tables.secure(gpu.sources.get("specification")), "link"),
        Column("Vendor", "vendor"),
        Column("Usable, GiB", lambda gpu: gpu.usable_bytes / GIB, "two", "Memory that a process can expect to get."),
        peak("fp16"),
        peak("fp4"),
        peak("int8"),
        Column("Link, GB/s", "link_gb_s", "figure", "GPU to GPU, both directions together."),
        Column("Topology", lambda gpu: None if gpu.topology is None else say(words.TOPOLOGIES[gpu.topology])),
        Column("PCIe", "pcie"),
        Column("Capability", "capability"),
        Column("Power, W", "tdp_w", "whole"),
        Column(
            "Engines", lambda gpu: ", ".join(engine.title for engine in ENGINES.values() if runs(gpu, engine.support))
        ),
        # a memory may be that of another GPU with the same
        Column("Memory observed", lambda gpu: tables.secure(gpu.sources.get("memory")), "link"),
        Column("Id in links", "id"),
    ]


def own_gpus(scenario: Scenario) -> None:
    """The form, and the GPUs that came of it."""
    with st.form("own_gpu", border=True):
        with st.grid(4, min_column_width=150, gap="small"):
            st.text_input(say("Name"), key="own_name", placeholder=say("My GPU"), max_chars=40)
            quantity(say("Memory (GiB)"), "own_memory", 24.0)
            quantity(say("Bandwidth (GB/s)"), "own_bandwidth", 1000.0)
            quantity(say("Link, both directions (GB/s)"), "own_link", None)
            for dtype in PEAKS:
                quantity(say("Peak in {dtype}, dense (TFLOPS)", dtype=dtype), f"own_{dtype}", None)
        st.form_submit_button(say("Add"), key="own_add", icon=":material/add:", on_click=add_own_gpu)
    problem: ConfigError | None = st.session_state.pop("own_gpu_problem", None)
    if problem is not None:
        alert("error", "error", problem.message)
    for number, text in enumerate(scenario.gpu):
        if text not in gpus():
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                st.markdown(f"**{find_gpu(text).name}** `{text}`")
                quiet_button(say("Remove"), f"own_remove_{text}", "delete", remove, places(("gpu",))["gpu"], number)


def quantity(label: str, key: str, value: float | None) -> None:
    st.number_input(label, min_value=0.0, max_value=1e6, value=value, step=1.0, format="%g", key=key)


def add_own_gpu() -> None:
    """Into the scenario, where it has a verdict on Weigh and is among the GPUs of plans."""
    state = st.session_state
    peaks = {dtype: state[f"own_{dtype}"] for dtype in PEAKS if state[f"own_{dtype}"] is not None}
    name = state.own_name.strip() or say("My GPU")
    try:
        gpu = custom_gpu(name, state.own_memory or 0.0, state.own_bandwidth or 0.0, peaks, state.own_link)
    except ConfigError as problem:
        state.own_gpu_problem = problem
        return
    change(gpu=tuple(dict.fromkeys((*state.scenario.gpu, gpu.id))))


scenario = frame.without_model(HARDWARE)
shown = chosen()
caption(
    "{n:,} GPUs; a figure without a source stays out. Click one row or several to weigh on these GPUs.", n=len(shown)
)
table(shown)
heading("A GPU of your own")
caption("It is part of the link, has a verdict on Weigh, and is among the GPUs of plans.")
own_gpus(scenario)
