"""The controls of serving: workload, formats, engine, layout, overhead."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from calc import ConfigError, Range
from calc.formats import WEIGHT_FORMATS, WeightFormat
from calc.serving.engines import ENGINES
from pages.parts import words
from pages.parts.inputs import sidebar
from pages.parts.inputs.control import control, explain, faults, help_of, ranged, reset, within
from pages.parts.inputs.draft import draft_model
from pages.parts.inputs.drawer import concerns, drawer
from pages.parts.inputs.slopes import Costs, costs
from pages.parts.state.scenario import Place, ServingChoice, places
from pages.parts.state.url import bind, change
from pages.parts.state.weighed import Answer, Weighed
from pages.parts.state.widgets import show
from pages.parts.words import field, say, tokens

CONTEXTS = [2**power for power in range(7, 21)]
BATCHES = [2**power for power in range(11)]
MOST = {"cuda_context": 4.0, "libraries": 6.0, "cuda_graphs": 8.0, "fragmentation": 20.0}
"""Where the slider of a part of the overhead ends."""


def workload(answer: Answer) -> None:
    choice, known = answer.scenario.serving, of_serving(answer)
    batch, context, cost = known["batch"], known["context"], costs(answer)
    st.markdown(say("**Workload**"))
    st.select_slider(
        field("batch"),
        sorted({*BATCHES, choice.workload.batch}),
        help=cost.of_batch(
            say("Requests that are answered at the same time; each has its own KV cache."), choice.workload.batch
        ),
        **bind(batch),
    )
    context_length(answer, context, cost)
    faults(answer.error, batch)
    reset("workload", (batch, context))


def context_length(answer: Answer, context: Place, cost: Costs) -> None:
    """The tokens of a sequence: a slider with a mark at the length that the model was made for, and no further where
    its positions are learned. A design that makes no sense keeps the marks: a browser says back the text of one."""
    architecture, chosen = answer.model.architecture or answer.model.published.architecture, context.of(answer.scenario)
    made_for = architecture and architecture.max_positions
    stops = {*CONTEXTS, made_for or chosen}
    if architecture is not None and (most := architecture.learned_positions) is not None:
        stops = {stop for stop in stops if stop <= most}
        chosen = most if chosen == context.option.default else chosen

    def labelled(n: int) -> str:
        return say("{n}, as trained", n=tokens(n)) if n == made_for else tokens(n)

    st.select_slider(
        field("context"),
        sorted({*stops, chosen}),
        format_func=labelled,
        help=cost.of_context(help_of(context.option) or "", chosen),
        **show(context.name, chosen, lambda n: change({context: n}), limits=(labelled(chosen),)),
    )
    if made_for:
        st.caption(trained_for(made_for, chosen, learned=bool(architecture and architecture.positions)))
    faults(answer.error, context)


def trained_for(most: int, chosen: int, *, learned: bool) -> str:
    """How far the model reads, and whether the context passes that."""
    if learned:
        return say("Learned positions for {most:,} tokens; none beyond.", most=most)
    if chosen > most:
        return say(":orange[Trained for {most:,} tokens, not for {context:,}.]", most=most, context=chosen)
    return say("Trained for {most:,} tokens.", most=most)


def gpus(answer: Weighed) -> None:
    """Which GPUs, how many of each, and the layout over them where the reader wants another."""
    sidebar.gpu_picker(answer)
    known, choice = of_serving(answer), answer.scenario.serving
    count = known["num_gpus"]
    limits, now = within(1, count.option.most, choice.num_gpus or choice.layout.gpus, whole=True)
    st.number_input(
        field(count.name),
        help=help_of(count.option),
        **limits,
        **show(count.name, now, _take_count, count),
    )
    faults(answer.error, count)
    if answer.error is None and answer.report.scenario.layout.gpus > 1:
        chosen = words.layout(answer.report.scenario.layout)
        st.caption(
            say("Layout: {layout}, by hand", layout=chosen)
            if choice.by_hand is not None
            else say("Layout: {layout}, the one that does best", layout=chosen)
        )
    layout(answer)
    spread = [place for place in known.values() if "layout" in place.path]
    reset("gpus", [*places(("gpu",)).values(), count, *spread])


def _take_count(count: int, place: Place) -> None:
    """So many GPUs, in the layout that does best."""
    spread = [other for other in places(("serving",)).values() if "layout" in other.path]
    change({place: None if count == 1 else count} | {other: other.option.default for other in spread})


def formats(answer: Answer) -> None:
    """How weights and cache are stored."""
    known = of_serving(answer)
    weight_format(known["weights"], answer.model.native)
    control(known["kv"], answer.error, answer.model.native_cache(answer.scenario.serving.engine))
    reset("formats", (known["weights"], known["kv"]))


def weight_format(place: Place, usual: str, key: str = "weights", label: str | None = None) -> None:
    """A format of weights; the usual one is no choice."""
    chosen: Any = place.of(st.session_state.scenario) or usual
    st.selectbox(
        label or field("weights"),
        WEIGHT_FORMATS,
        format_func=lambda name: format_label(name, usual),
        help=help_of(place.option),
        **show(key, chosen, _take_format, place, usual, limits=(format_label(chosen, usual),), options=WEIGHT_FORMATS),
    )


def format_label(name: WeightFormat, usual: str) -> str:
    """A format in a list: its name, its group with what it is, and which engines compute with it."""
    engines = [kind.title for kind in ENGINES.values() if kind.keeps(name)]
    runs = "" if len(engines) == len(ENGINES) else f" · {', '.join(engines)}"
    label = f"{name} · {words.storage(name)}{runs}"
    return say("{format} (default)", format=label) if name == usual else label


def _take_format(chosen: WeightFormat, place: Place, usual: str) -> None:
    change({place: None if chosen == usual else chosen})


def engine(answer: Weighed) -> None:
    """Which engine, and its flags."""
    choice, error = answer.scenario.serving, answer.error
    flags = {place.name: place for place in of_serving(answer).values() if "options" in place.path}
    with drawer(say("Engine"), "engine_drawer", opened=concerns(error, {"engine", "generated", *flags})) as is_open:
        if not is_open:
            return
        st.segmented_control(
            field("engine"),
            list(ENGINES),
            required=True,
            format_func=lambda name: ENGINES[name].title,
            help=say("What serves the model; each engine has flags of its own."),
            **show("engine", choice.engine, _take_engine, given="default"),
        )
        if concerns(error, {"engine"}) and error is not None:
            explain(error, lambda near: change(serving=choice.with_engine(near)))
        usual = defaults(answer)
        for name, place in flags.items():
            if name == ENGINES[choice.engine].draft_option:
                draft_model(place, answer)
            elif name != "language_model_only" or answer.has_vision:
                control(place, error, usual.get(name))
        control(of_serving(answer)["generated"], error)
        reset("engine", [of_serving(answer)["generated"], *flags.values()])


def _take_engine(engine: str) -> None:
    now: ServingChoice = st.session_state.scenario.serving
    change(serving=now.with_engine(engine))


def defaults(answer: Weighed) -> Mapping[str, Any]:
    """What the engine sets for the GPU that is on screen, where a flag leaves it open."""
    choice, architecture = answer.scenario.serving, answer.model.architecture
    if architecture is None:
        return {}
    try:
        started = choice.started()
    except ConfigError:
        return {}
    limits = started.limits(choice.workload, answer.scenario.first_gpu(), architecture, choice.layout)
    named = {
        started.step_option: limits.step_tokens,
        started.sequences_option: limits.sequences,
        started.share_option: limits.share,
    }
    return {name: limit for name, limit in named.items() if name is not None}


def layout(answer: Weighed) -> None:
    """How the model is spread over GPUs."""
    spread = [place for place in of_serving(answer).values() if "layout" in place.path]
    names = {place.name for place in spread}
    with drawer(say("Layout by hand"), "layout_drawer", opened=concerns(answer.error, names)) as is_open:
        if is_open:
            for place in spread:
                control(place, answer.error)


def overhead(answer: Weighed) -> None:
    """What no formula closes, as ranges."""
    with drawer(say("Overhead"), "overhead_drawer", opened=concerns(answer.error, MOST)) as is_open:
        if is_open:
            ranges(answer.usual_overhead)


def ranges(usual: Mapping[Any, Range]) -> None:
    """A slider with two ends for each part of the overhead that the engine has."""
    for name, place in places(("overhead",)).items():
        if name in usual:
            ranged(place, usual[name], MOST.get(name, 4.0))
    reset("overhead", places(("overhead",)).values())


def of_serving(answer: Answer) -> Mapping[str, Place]:
    return places(("serving",), answer.scenario.serving.engine)


SECTIONS = (workload, gpus, formats, engine, overhead)
