"""The controls of serving: workload, formats, engine, layout, overhead."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from calc import ConfigError, Range
from calc.formats import GGUF, LABELS, WeightFormat
from calc.serving.engines import ENGINES
from pages.parts import words
from pages.parts.inputs.control import concerns, control, controls_in_drawer, default, drawer, ranged, reset
from pages.parts.inputs.second_model import drafts, second_model
from pages.parts.state.scenario import Place, places
from pages.parts.state.weighed import Answer, Weighed
from pages.parts.words import say

MOST = {"cuda_context": 4.0, "libraries": 6.0, "cuda_graphs": 8.0, "fragmentation": 20.0}
"""End of a slider, by part of the overhead."""


def spread(answer: Weighed) -> None:
    """The layout over several GPUs, which the reader may want another of."""
    choice = answer.scenario.serving
    if answer.error is None and answer.report.scenario.layout.gpus > 1:
        chosen = words.layout(answer.report.scenario.layout)
        st.caption(
            say("Layout: {layout}, by hand", layout=chosen)
            if choice.by_hand is not None
            else say("Layout: {layout}, the best one", layout=chosen)
        )
    degrees = [place for place in of_serving(answer).values() if "layout" in place.path]
    controls_in_drawer(say("Layout by hand"), "layout_drawer", degrees, answer.error)
    reset("layout", degrees)


def cache_format(answer: Answer) -> None:
    """The control of the KV cache's format."""
    place = of_serving(answer)["kv"]
    control(place, answer.error, answer.model.native_cache(answer.scenario.serving.engine))
    reset("cache_format", [place])


def format_label(name: WeightFormat) -> str:
    """A format in a list: its name, its group with what it is, and which engines compute with it."""
    engines = [kind.title for kind in ENGINES.values() if kind.keeps(name)]
    runs = "" if len(engines) == len(ENGINES) else f" · {', '.join(engines)}"
    return f"{name} · {say(LABELS.get(name, GGUF))}{runs}"


def engine(answer: Answer) -> None:
    """The flags of the engine."""
    choice, error = answer.scenario.serving, answer.error
    flags = {place.name: place for place in of_serving(answer).values() if "options" in place.path}
    with drawer(say("Engine flags"), "engine_drawer", opened=concerns(error, {"generated", *flags})) as is_open:
        if not is_open:
            return
        usual, architecture = defaults(answer), answer.model.architecture
        for name, place in flags.items():
            if name == ENGINES[choice.engine].draft_option:
                known: tuple[str, ...] = ()
                if architecture is not None:
                    known = drafts(choice.engine, architecture.vocab, architecture.parameters().total)
                second_model(place, answer, known, default(None))
            elif name != "language_model_only" or (architecture and architecture.vision):
                control(place, error, usual.get(name))
        control(of_serving(answer)["generated"], error)
        reset("engine", [of_serving(answer)["generated"], *flags.values()])


def defaults(answer: Answer) -> Mapping[str, Any]:
    """Values that the engine sets for the GPU on screen where a flag is left open, by flag."""
    choice, architecture = answer.scenario.serving, answer.model.architecture
    if architecture is None:
        return {}
    try:
        started = choice.started()
    except ConfigError:
        return {}
    limits = started.limits(choice.workload, answer.scenario.first_gpu(), architecture, choice.layout)
    named = {
        started.step_option: limits.stated_step,
        started.sequences_option: limits.sequences,
        started.share_option: limits.share,
    }
    return {name: limit for name, limit in named.items() if name is not None}


def overhead(answer: Answer) -> None:
    """Controls of the overhead, as ranges."""
    ranges(answer.usual_overhead, answer.error)


def ranges(usual: Mapping[Any, Range], error: ConfigError | None) -> None:
    """A slider with two ends for each part of the overhead that the engine has, in a drawer."""
    with drawer(say("Overhead"), "overhead_drawer", opened=concerns(error, MOST)) as is_open:
        if is_open:
            for name, place in places(("overhead",)).items():
                if name in usual:
                    ranged(place, usual[name], MOST.get(name, 4.0))
            reset("overhead", places(("overhead",)).values())


def of_serving(answer: Answer) -> Mapping[str, Place]:
    return places(("serving",), answer.scenario.serving.engine)


SECTIONS = (spread, cache_format, engine, overhead)
