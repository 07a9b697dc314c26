"""A line on settings that a page takes from another one, or leaves there: nothing chosen is dropped in silence."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import streamlit as st

from calc import Overhead, Workload
from calc.hardware import find_gpu
from pages.parts import words
from pages.parts.state.planned import Planned, chosen_on_weigh
from pages.parts.state.scenario import PlanChoice, Scenario, ServingChoice, places
from pages.parts.state.url import change
from pages.parts.state.weighed import Answer
from pages.parts.words import say


def on_plan(answer: Planned) -> None:
    """Settings that a plan takes from Weigh, those that it leaves there, and the load there where it differs."""
    scenario = answer.scenario
    taken, work = list(taken_from_weigh(scenario)), scenario.serving.workload
    if taken:
        text = say("From Weigh: {what}.", what=words.listed(taken))
        offer(text, say("Without these"), "without_weigh", partial(leave, scenario))
    left_on_weigh(layout_of_a_server(scenario))
    if scenario.planning.needs == PlanChoice().needs and work != Workload():
        asks = say("Weigh asks about {n:,} sequences of {context:,} tokens.", n=work.batch, context=work.context)
        offer(asks, say("Plan for that"), "load_of_weigh", partial(take_load, scenario))


def on_gpus(scenario: Scenario) -> None:
    """Settings of Weigh that a map leaves there."""
    choice, left = scenario.serving, []
    if choice.num_gpus is not None:
        left.append(say("{n:,} GPUs", n=choice.num_gpus))
    if scenario.hardware.view != "roofline" and choice.kv is not None:
        left.append(say("KV cache in {kv}", kv=choice.kv))
    if scenario.efficiencies.share:
        left.append(say("efficiencies"))
    if scenario.efficiencies.node != Scenario().efficiencies.node:
        left.append(say("nodes of {n:,} GPUs", n=scenario.efficiencies.node))
    left_on_weigh([*flags_of_a_server(scenario), *layout_of_a_server(scenario), *left])


def left_on_weigh(what: Sequence[str]) -> None:
    """A line on settings that change nothing here."""
    if what:
        st.caption(say("Left on Weigh, without effect here: {what}.", what=words.listed(what)))


def flags_of_a_server(scenario: Scenario) -> list[str]:
    """Flags that are stated for one server, as a link has them."""
    flags = (place for place in places(("serving",), scenario.serving.engine).values() if "options" in place.path)
    stated = ((place, value) for place in flags if (value := place.of(scenario)) != place.option.default)
    return [f"`{place.name}={place.written(value)}`" for place, value in stated]


def layout_of_a_server(scenario: Scenario) -> list[str]:
    """Layout and overhead that are stated for one server."""
    choice, settings = scenario.serving, []
    if choice.layout.gpus > 1:
        settings.append(words.layout(choice.layout))
    if scenario.overhead != Overhead():
        settings.append(say("overhead"))
    return settings


def offer(text: str, label: str, key: str, take: Callable[[], None]) -> None:
    """A line, and the button that acts on it."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(text, width="content")
        st.button(label, key=key, type="tertiary", on_click=take)


def taken_from_weigh(scenario: Scenario) -> Iterator[str]:
    planning, serving = scenario.planning, scenario.serving
    if not planning.plan_gpus and (chosen := chosen_on_weigh(scenario)):
        yield ", ".join(find_gpu(name).name for name in chosen)
    if serving.num_gpus is not None and serving.num_gpus < planning.max_gpus:
        yield say("{n:,} GPUs at most", n=serving.num_gpus)
    if serving.weights is not None and not planning.weight_formats:
        yield say("Weights in {weights}", weights=serving.weights)
    if serving.kv is not None and not planning.kv_formats:
        yield say("KV cache in {kv}", kv=serving.kv)
    yield from flags_of_a_server(scenario)


def leave(scenario: Scenario) -> None:
    options = ServingChoice().with_engine(scenario.serving.engine).options
    serving = scenario.serving.model_copy(update={"num_gpus": None, "weights": None, "kv": None, "options": options})
    change(gpu=Scenario().gpu, serving=serving)


def take_load(scenario: Scenario) -> None:
    """So many users, each with a prompt and an answer that fill the context."""
    work = scenario.serving.workload
    output = work.generated if 1 < work.generated < work.context else min(512, work.context - 1)
    needs = {"users": work.batch, "requests_per_s": None, "prompt": work.context - output, "output": output}
    planning = scenario.planning
    change(planning=planning.model_copy(update={"needs": planning.needs.model_copy(update=needs)}))


def on_train(answer: Answer) -> None:
    """GPUs that Weigh has several of, where the step runs on one."""
    choice: ServingChoice = answer.scenario.serving
    training: Any = answer.scenario.training
    if choice.num_gpus is None or choice.num_gpus == 1 or training.layout.gpus > 1:
        return
    spread = training.model_copy(update={"layout": training.layout.model_copy(update={"dp": choice.num_gpus})})
    text = say("Weigh has {n:,} GPUs of each; this step runs on one.", n=choice.num_gpus)
    offer(text, say("Spread over {n:,}", n=choice.num_gpus), "gpus_of_weigh", partial(change, training=spread))
