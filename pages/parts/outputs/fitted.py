"""Maps of models that fit on GPUs; and a GPU's roofline with the passes of a model under it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import streamlit as st

from calc import ConfigError, Layout, Overhead, Workload
from calc.errors import Message
from calc.hardware import find_gpu, note, runs
from calc.serving import MOST_TOKENS
from calc.serving.engines import ENGINES
from calc.time import MAPPED, Array, Fitting
from pages.parts import words
from pages.parts.inputs.control import drawer, explain, several, vendor_and_form
from pages.parts.outputs import charts, plot, tables
from pages.parts.outputs.cards import limit
from pages.parts.outputs.tables import Column, Kind, identifier
from pages.parts.screen import alert, caption, leading_button
from pages.parts.state import fitted
from pages.parts.state.query import MACHINE, WEIGH
from pages.parts.state.scenario import Scenario, ServingChoice, Source
from pages.parts.state.url import change
from pages.parts.state.weighed import Answer
from pages.parts.words import say
from presets import gpus, models

MOST = 60
"""Rows of a map, unless all are asked for."""


def models_on_a_gpu(scenario: Scenario) -> None:
    """Presets that fit, by format, up to which context, and their speed."""
    engine = mapped_engine(scenario)
    choice, presets = scenario.hardware, models()
    fitting = fitted.models_on(choice.card, choice.cards, choice.length, engine)
    with st.grid(4, min_column_width=150, gap="small", key="map_filters"):
        makers = several(say("From"), "map_makers", sorted({name.partition("/")[0] for name in fitting.names}))
    rows = [
        row
        for row, name in enumerate(fitting.names)
        if fitting.max_context[row].max() > 0 and (not makers or name.partition("/")[0] in makers)
    ]
    caption(
        "{fit:,} of {n:,} presets fit {gpus:,} × {gpu} in some format, under the defaults of {engine} at the high "
        "end of the overhead; the largest first.",
        fit=sum(fitting.max_context.max(axis=1) > 0),
        n=len(fitting.names),
        gpus=choice.cards,
        gpu=find_gpu(choice.card).name,
        engine=ENGINES[engine].title,
    )
    lengths = [fitted.architectures()[name].max_positions for name in fitting.names]
    draw(scenario, fitting, rows, [presets[name].name for name in fitting.names], "models", lengths)
    link_to_machine(engine)


def mapped_engine(scenario: Scenario) -> Any:
    """The engine; of one that allocates as requests come a sentence why it has no map."""
    serving = scenario.serving
    if serving.engine not in MAPPED:
        explain(
            ConfigError(
                Message(
                    "No map for {engine}: it allocates as requests arrive, so the longest one depends on the others.",
                    engine=ENGINES[serving.engine].title,
                ),
                "engine",
                MAPPED,
            ),
            lambda near: change(serving=serving.with_engine(near)),
        )
        st.stop()
    return serving.engine


def model_on_gpus(answer: Answer) -> None:
    """One model on all GPUs."""
    if answer.error is not None:
        alert("error", "error", answer.error.message)
        return
    choice, engine = answer.scenario.hardware, mapped_engine(answer.scenario)
    kinds, fitting = fitted.of_scenario(answer, engine)
    with st.grid(4, min_column_width=150, gap="small", key="map_filters"):
        passes = vendor_and_form(kinds, "map_")
    passing = [row for row, gpu in enumerate(kinds) if passes(gpu)]
    rows = sorted(
        (row for row in passing if fitting.max_context[row].max() > 0), key=lambda row: -fitting.tokens_per_s[row].max()
    )
    caption(
        "{name} fits {fit:,} of {n:,} GPUs in some format ({gpus:,} of each), under the defaults of {engine} at "
        "the high end of the overhead; the fastest first.",
        name=answer.model.name,
        fit=len(rows),
        n=len(passing),
        gpus=choice.cards,
        engine=ENGINES[engine].title,
    )
    without(engine)
    lengths = [answer.architecture.max_positions] * len(kinds)
    draw(answer.scenario, fitting, rows, [gpu.name for gpu in kinds], "formats", lengths)
    link_to_machine(engine)


def without(engine: str) -> None:
    """The GPUs of the catalogue that have no row, and why."""
    support, known = ENGINES[engine].support, gpus().values()
    reasons = [say(why) for gpu in known if not runs(gpu, support) and (why := note(gpu, support))]
    if reasons:
        st.caption(
            say(
                "Left out: the {n:,} of {all:,} GPUs of the catalogue that {engine} does not run on.",
                n=len(reasons),
                all=len(known),
                engine=ENGINES[engine].title,
            ),
            help="\n".join(f"- {words.capitalized(reason)}" for reason in reasons),
        )


def link_to_machine(engine: str) -> None:
    """A note on an engine that may leave a part of a model on the host: where that is answered."""
    if not ENGINES[engine].offloads:
        return
    caption("Everything on the GPU. For experts or layers on the host, and for your own machine:")
    st.page_link(MACHINE.script, label=say("My machine"), icon=":material/computer:")


def draw(
    scenario: Scenario,
    fitting: Fitting,
    shown: list[int],
    names: Sequence[str],
    key: str,
    lengths: Sequence[int | None],
) -> None:
    """The map of some rows, and the same as a table, from which one is weighed. `lengths` are those that the models
    were made for."""
    if not shown:
        alert("info", "info", "Nothing fits.")
        return
    choice = scenario.hardware
    longest = fitting.max_context.max(axis=1)
    most = np.array([lengths[row] or longest[row] for row in range(len(names))])
    if choice.figure == "context":
        shown = sorted(shown, key=lambda row: (fitting.max_context[row] >= most[row]).all())
    if len(shown) > MOST and not st.toggle(say("All {n:,} rows", n=len(shown)), key=f"map_all_{key}"):
        shown = shown[:MOST]
    labels, formats, scale = [names[row] for row in shown], fitting.formats, None
    write = charts.short_tokens if choice.figure == "context" else words.figure
    title, figures = say("Tokens/s of one user"), fitting.tokens_per_s
    if choice.figure == "context":
        title, figures, scale = say("Longest context, tokens"), fitting.max_context, most[shown]
    elif not figures.any():
        alert("info", "info", "The model makes a vector or scores of each text, and no output tokens.")
        return
    st.header(title, anchor=False)
    if choice.figure == "context":
        caption(
            "Grey: the model's whole context. Orange: less, for lack of memory. Empty: it does not fit or does not run "
            "in this format. Rows that are grey in every format come last."
        )
    plot.draw(f"map_{key}", title, charts.heat_map(labels, formats, figures[shown], write, scale), tabled=True)
    with drawer(say("As a table"), f"map_table_{key}", icon=":material/table:") as is_open:
        if is_open:
            table(scenario, fitting, shown, names, key, title)


def table(
    scenario: Scenario, fitting: Fitting, shown: Sequence[int], names: Sequence[str], key: str, title: str
) -> None:
    """Context and speed of every format; a row that is clicked is weighed."""
    formats = list(enumerate(fitting.formats))
    columns = [Column("Name", lambda row: names[row])]
    contexts, speeds = fitting.max_context, fitting.tokens_per_s

    def tokens(n: int) -> int | str:
        return limit(None if n >= MOST_TOKENS else n)

    columns += [of_rows(Message("Context, {format}", format=it), contexts[:, i], "whole", tokens) for i, it in formats]
    columns += [of_rows(Message("Tokens/s, {format}", format=it), speeds[:, i], "one") for i, it in formats]
    opened = tables.pick(f"map_rows_{key}", title, columns, shown, id=lambda row: identifier(fitting.names[row]))
    for id, row in opened.items():
        leading_button(WEIGH, say("Weigh {name}", name=names[row]), f"card_{id}", taken, scenario, fitting, row, key)


def of_rows(label: Message, figures: Array, kind: Kind, write: Callable[[Any], Any] = lambda figure: figure) -> Column:
    """A column of the figures of a map's rows; empty where nothing fits."""
    return Column(label, lambda row: write(figures[row].item()) or None, kind)


def taken(scenario: Scenario, fitting: Fitting, row: int, key: str) -> None:
    """A model of the map, or a GPU, in the first format that fits and as the map has it: in its layout, under the
    engine's defaults."""
    choice, engine = scenario.hardware, scenario.serving.engine
    form = int(np.argmax(fitting.max_context[row] > 0))
    length = min(choice.length, int(fitting.max_context[row, form]))
    chosen = {
        "workload": Workload(context=length),
        "weights": fitting.formats[form],
        "layout": fitting.layouts[row][form] or Layout(),
    }
    changes: dict[str, Any] = {
        "serving": ServingChoice().with_engine(engine).model_copy(update=chosen),
        "overhead": Overhead(),
    }
    if key == "formats":
        change(gpu=(fitting.names[row],), **changes)
    else:
        change(gpu=(choice.card,), source=Source(model=fitting.names[row]), overrides={}, **changes)


def roofline(answer: Answer) -> None:
    """Roofline of a GPU, with the passes of a model under it."""
    if answer.error is not None:
        alert("error", "error", answer.error.message)
        return
    choice, gpu = answer.scenario.hardware, find_gpu(answer.scenario.hardware.card)
    engine = mapped_engine(answer.scenario)
    precision = answer.model.precision(answer.scenario.serving)
    try:
        layout, points = fitted.points_on(answer, engine)
    except ConfigError as problem:
        explain(problem, lambda near: None)
        return
    caption(
        "{name} in {format} on {gpu}, {n:,} tokens of context, whether it fits or not. A pass under the slope waits "
        "for memory, one under a ceiling for arithmetic; points lie below by what kernels, links and the host cost.",
        name=answer.model.name,
        format=precision.weights,
        gpu=gpu.name,
        n=choice.length,
    )
    if layout.gpus > 1:
        caption("One rank of {layout}.", layout=words.layout(layout))
    head = [say("Pass"), say("FLOP per byte"), say("TFLOP/s"), say("Limited by")]
    rows = [[say(of.what), of.intensity, of.tflops, say(words.BOUNDS[of.bound])] for of in points]
    plot.draw("roofline", say("Roofline"), charts.roofline(gpu, points), rows=(head, rows))
