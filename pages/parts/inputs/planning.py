"""The controls of a plan: the load or the training run, the targets, what may be used, prices; and of the map of
GPUs."""

from collections.abc import Callable, Sequence

import streamlit as st

from calc.formats import CACHE_FORMATS, WEIGHT_FORMATS
from calc.hardware import find_gpu
from calc.serving.engines import ENGINES
from calc.time import MAPPED, PLANNED, price_of
from pages.parts.inputs.control import choose, concerns, control, controls_in_drawer, drawer, faults, labelled, within
from pages.parts.inputs.control import number as control_number
from pages.parts.screen import caption, paragraph
from pages.parts.state.planned import Planned, TrainingPlanned, chosen_on_weigh, own_gpus, training_candidates
from pages.parts.state.scenario import Place, Scenario, places
from pages.parts.state.url import bind, change
from pages.parts.state.weighed import Answer
from pages.parts.state.widgets import show
from pages.parts.words import field, say
from presets import gpus

MOST_PRICES = 12
"""Prices in sight: those stated, then of the best plans."""
FORMATS: dict[str, tuple[str, ...]] = {"weight_formats": WEIGHT_FORMATS, "kv_formats": CACHE_FORMATS}
QUESTION = ("gpus", "global_batch", "sequence")
"""Fields that are set in the question on top; what is wrong with one is said here."""
BILLION = 1e9


def load(answer: Planned) -> None:
    """Users or requests."""
    known = places(("planning",))
    paragraph("**Load**")
    with st.grid(2, min_column_width=140, gap="small"):
        users = {known["users"]: None}  # requests a second stand for the users of the question
        number(known["requests_per_s"], lambda rate, place: change({place: rate} | ({} if rate is None else users)))
        number(known["think_s"])
    for name in ("users", "requests_per_s", "prompt", "output", "think_s"):
        faults(answer.error, known[name])


def targets(answer: Planned) -> None:
    known = places(("planning",))
    paragraph("**Targets**")
    with st.grid(2, min_column_width=140, gap="small"):
        rate(known["tpot_ms"])
        number(known["ttft_ms"])
        number(known["budget"])
        number(known["max_gpus"])
    for name in ("tpot_ms", "ttft_ms", "budget", "max_gpus"):
        faults(answer.error, known[name])


def rate(place: Place) -> None:
    """Tokens a second of a user; the scenario has the time of one."""
    ms = place.of(st.session_state.scenario)
    limits, now = within(0.01, 100_000, None if ms is None else round(1000 / ms, 2))
    st.number_input(
        field(place.name),
        format="%g",
        placeholder=say("any"),
        help=say("20 tokens/s are a time per output token (TPOT) of 50 ms."),
        value=None,
        **limits,
        **show("min_rate", now, lambda rate: change({place: rate and round(1000 / rate, 3)}), given=None),
    )


def number(place: Place, take: Callable[..., None] | None = None) -> None:
    """A number in whole steps that may be left open, or be anything above nothing."""
    least = 0.001 if place.option.open_below else None
    control_number(place, labelled(place), say("any"), step=1.0, least=least, take=take)


def hardware(answer: Answer) -> None:
    """GPUs that may be used."""
    all_of_them = [*own_gpus(answer.scenario), *gpus()]
    if answer.scenario.planning.purpose == "train":
        unchosen = say("The usual ones")
    else:
        unchosen = say("Those of Weigh") if chosen_on_weigh(answer.scenario) else say("All of the catalogue")
    chosen_of(places(("planning",))["plan_gpus"], all_of_them, unchosen, lambda name: find_gpu(name).name)
    control(places(("efficiencies",))["node"], answer.error)


def chosen_of(place: Place, options: Sequence[str], placeholder: str, called: Callable[[str], str] = str) -> None:
    """Control of a field that takes several of these options."""

    def take(chosen: list[str]) -> None:
        change({place: tuple(chosen)})

    shown = labelled(place) | show(place.name, list(place.of(st.session_state.scenario)), take, given="default")
    st.multiselect(options=options, format_func=called, placeholder=placeholder, **shown)


def formats(answer: Planned) -> None:
    """Controls of the acceptable formats of weights and cache."""
    known = places(("planning",))
    usual = {
        "weight_formats": answer.model.native,
        "kv_formats": answer.model.native_cache(answer.scenario.serving.engine),
    }
    for name, all_of_them in FORMATS.items():
        chosen_of(known[name], all_of_them, say("{format} (default)", format=usual[name]))


def engine(answer: Planned) -> None:
    """Engine, and the share of a prompt that is cached."""
    planning, error, known = answer.scenario.serving, answer.error, places(("planning",))
    is_wrong = concerns(error, {"engine", "prefix_share", "prefill_decode"})
    with drawer(say("Engine"), "plan_engine_drawer", opened=is_wrong) as is_open:
        if not is_open:
            return
        engine_choice(answer.scenario)
        engines = places(("serving",))["engine"]
        faults(error, engines, lambda near: change(serving=planning.with_engine(near)))
        place = known["prefix_share"]
        limits, now = within(0, 0.99, place.of(answer.scenario))
        st.number_input(step=0.05, format="%g", **labelled(place), **limits, **bind(place, value=now))
        faults(error, place)
        control(known["prefill_decode"], error)


def engine_choice(scenario: Scenario, engines: Sequence[str] = PLANNED) -> None:
    """Choice among engines that set memory aside at start, or others."""
    chosen = scenario.serving.engine

    def take(engine: str | None) -> None:
        now = st.session_state.scenario.serving
        change(serving=now.with_engine(engine or now.engine))

    st.segmented_control(
        field("engine"),
        list(engines),
        format_func=lambda name: ENGINES[name].title,
        help=say("The engine that serves the model."),
        **show("engine", chosen if chosen in engines else None, take, given="default"),
    )


def prices(answer: Answer) -> None:
    """Controls of the reader's own prices of a GPU-hour, for the GPUs of the plans or those that may be used."""
    place = places(("planning",))["price"]
    with drawer(say("Prices"), "prices_drawer", opened=concerns(answer.error, {"price"})) as is_open:
        if not is_open or answer.error is not None:
            return
        stated = answer.scenario.cluster.prices
        if isinstance(answer, Planned):
            usable = [plan.gpu for plan in answer.plans.plans]
        else:
            usable = [gpu.id for gpu in training_candidates(answer.scenario)]
        shown = list(dict.fromkeys([*stated, *usable]))[:MOST_PRICES]
        for gpu in shown:
            listed = price_of(gpu)
            limits, now = within(0, 999_999, stated.get(gpu))
            st.number_input(
                find_gpu(gpu).name,
                step=0.1,
                format="%g",
                placeholder=say("no list price") if listed is None else say("list price: {usd}", usd=f"{listed:g}"),
                value=None,
                **limits,
                **show(f"price_{gpu}", now, _take_price, place, gpu, given=None),
            )
        caption("US dollars per GPU-hour. List prices are the median of a dated sample, shown below the plans.")


def _take_price(usd: float | None, place: Place, gpu: str) -> None:
    stated = dict(st.session_state.scenario.cluster.prices)
    others = tuple(f"{name}={price:g}" for name, price in stated.items() if name != gpu)
    change({place: others if usd is None else (*others, f"{gpu}={usd:g}")})


SECTIONS = (load, targets, hardware, formats, engine, prices)


def training_run(answer: TrainingPlanned) -> None:
    known = places(("planning",))
    paragraph("**Training run**")
    with st.grid(2, min_column_width=140, gap="small"):
        tokens(known["tokens"])
        number(known["micro_batch"])
    for name in ("tokens", *QUESTION, "micro_batch"):
        faults(answer.error, known[name])
    details = [known[name] for name in ("optimizer", "recipe")]
    controls_in_drawer(say("Optimizer and precision"), "run_drawer", details, answer.error)


def tokens(place: Place) -> None:
    """Tokens in billions; the scenario has single ones."""
    limits, now = within(1e-6, 1e9, place.of(st.session_state.scenario) / BILLION)
    st.number_input(
        say("Tokens to train on, billions"),
        format="%g",
        step=10.0,
        **limits,
        **show("billions", now, lambda billions: change({place: billions * BILLION})),
    )


def map_controls(scenario: Scenario) -> None:
    """The view; for the map of models and the roofline the GPU; the figure of a map; and the engine."""
    known, view = places(("hardware",)), scenario.hardware.view
    with st.container(horizontal=True, gap="medium", key="map_controls"):
        control(known["view"], None, label=say("Show"))
        if view != "roofline":
            control(known["figure"], None)
        engine_choice(scenario, MAPPED)
    if view == "models":
        with st.grid(3, min_column_width=150, gap="small"):
            card(scenario)
            for name in ("cards", "length"):
                control(known[name], None)
    elif view == "roofline":
        card(scenario)


def card(scenario: Scenario) -> None:
    """A GPU of the catalogue, or one of the reader's own."""
    place = places(("hardware",))["card"]
    choose(place, [*own_gpus(scenario), *gpus()], labelled(place), lambda name: find_gpu(name).name)
