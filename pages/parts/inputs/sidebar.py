"""The sidebar: the model, its sliders, and the sections of a page."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import gcd, lcm
from typing import Any, TypeVar

import streamlit as st
from sympy import divisors

from calc import Architecture, ConfigError
from calc.design import Slopes
from calc.families import override
from calc.serving.comparison import effect
from pages.parts.inputs.control import concerns, drawer, explain
from pages.parts.inputs.fields import (
    CONTROLS,
    EXPERTS,
    HEADS,
    HIDDEN,
    KV_HEADS,
    MULTIPLIERS,
    PER_TOKEN,
    RARE,
    Control,
    Switch,
    controlled,
    moved,
)
from pages.parts.inputs.model_picker import model_picker
from pages.parts.screen import paragraph, quiet_button
from pages.parts.state.query import GLOSSARY
from pages.parts.state.scenario import Scenario, places
from pages.parts.state.session import remembered
from pages.parts.state.url import change
from pages.parts.state.weighed import Answer
from pages.parts.state.widgets import show
from pages.parts.words import language, more, say, size, times, value

A = TypeVar("A", bound=Answer)
MOST = 64
"""Changed models that a session keeps."""


def with_cost(help_text: str, slopes: Slopes | None, name: str, now: int, step: int) -> str:
    """A help with what a step costs behind it; without that of a design that makes no sense."""
    slope = None if slopes is None else slopes.of(name, now, step)
    if slope is None:
        return help_text
    cost = say(
        "**+{step:,}**: **{parameters}** parameters, **{size}** of weights and KV cache.",
        step=slope.step,
        parameters=more(slope.parameters),
        size=more(slope.nbytes, size),
    )
    return f"{help_text}\n\n{cost}"


Room = tuple[Any, Callable[[A], None]]
"""A container of the sidebar, and the section that is drawn into it."""


def draw(answer: A, sections: Iterable[Callable[[A], None]]) -> None:
    """All inputs. A sentence about an impossible combination stands next to its control."""
    fill(outline(answer, sections), answer)


def outline(answer: A, sections: Iterable[Callable[[A], None]]) -> list[Room[A]]:
    """The inputs on which a slider has no effect, and between them rooms for the others. Each has a room with a key: a
    button that comes or goes in one of them moves no other, which would lose its sliders' focus while it is filled
    again."""
    rooms: list[Room[A]] = []
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute", key="brand"):
        st.markdown("### :material/scale: Weighbridge")
        rooms.append((st.container(key="room_reset", width="content"), reset_everything))
    with st.container(key="room_model"):
        model_picker(answer)
    for number, section in enumerate(sections):
        with st.container(key=f"room_{number}"):
            section(answer)
    if answer.model.published.settings:
        paragraph("**Architecture**")
        rooms.append((st.container(key="room_sliders"), sliders))
    st.page_link(GLOSSARY.script, label=say("Glossary"), icon=":material/menu_book:")
    return rooms


def fill(rooms: Iterable[Room[A]], answer: A) -> None:
    for room, section in rooms:
        with room:
            section(answer)


def dependencies(answer: Answer) -> object:
    """Values that the inputs outside these rooms depend on: all that is chosen but by sliders, what is wrong, the
    layout that is chosen, and with the engine's flags in sight the model, which sets some."""
    scenario, known = answer.scenario, places(("serving", "opened", "tab"), answer.scenario.serving.engine)
    for name in ("batch", "context", "opened", "tab"):
        scenario = known[name].put(scenario, None)
    moved = scenario.overrides if st.session_state.get("engine_drawer") else None
    return scenario.model_copy(update={"overrides": moved}), answer.error, answer.layout, language()


def reset_everything(answer: Answer) -> None:
    """The way back to the model as it was published under what is usual."""
    usual = answer.scenario.usual
    if answer.scenario == usual:
        st.empty()  # a room in which nothing was drawn at first would take nothing later
    else:
        quiet_button(
            say("Reset everything"),
            "reset_everything",
            "restart_alt",
            lambda: change(**{name: getattr(usual, name) for name in Scenario.model_fields}),
        )


def sliders(answer: Answer) -> None:
    """One control for each config field of the model that decides a size."""
    published, now = answer.model.published.settings or {}, answer.model.settings or {}
    values = {**published, **now}  # fewer layers may read fewer fields

    slopes = answer.slopes
    controls = controlled(published)
    shared = shares_hidden_size(answer.model.config or {}, values)

    def draw(names: list[str]) -> None:
        """Two side by side, and below a pair what is wrong with one of them."""
        faulty = next((place for place, name in enumerate(names) if answer.error and answer.error.field == name), None)
        end = len(names) if faulty is None else faulty // 2 * 2 + 2
        with st.grid(2, min_column_width=140, gap="small"):
            for name in names[:end]:
                setting(name, controls[name], published[name], values, shared, slopes)
        if faulty is not None:
            assert answer.error is not None
            explain(answer.error, partial(put, name=names[faulty], original=published[names[faulty]]))
            draw(names[end:])

    draw([name for name in controls if name not in RARE])
    rare = [name for name in controls if name in RARE]
    changed = not answer.scenario.overrides.keys().isdisjoint(rare)
    if rare:
        with drawer(say("More sizes"), "sizes_drawer", opened=changed or concerns(answer.error, rare)) as is_open:
            if is_open:
                draw(rare)
    if overrides := answer.scenario.overrides:
        for name in overrides:
            original = published.get(name)
            help_text = say("Back to {value}", value=value(original))
            label = does(answer, name, original)
            quiet_button(label, f"reset_{name}", "undo", put, original, name, original, help=help_text)
        quiet_button(say("Reset all"), "reset_all", "undo", lambda: change(overrides={}))


def does(answer: Answer, name: str, original: Any) -> str:
    """KV heads 8 → 16: KV cache ×2, +75.50 M parameters; only the change where the model with it alone is not valid."""
    change = moved(name, original, answer.scenario.overrides[name])
    before, after, serving = answer.model.published.architecture, alone(answer, name), answer.scenario.serving
    if before is None or after is None:
        return change
    kv = answer.model.precision(serving).kv
    of_change = effect(before, after, serving.started(), kv, serving.workload.context)
    parameters = more(of_change.parameters)
    if of_change.cache in (None, 1):
        return say("{change}: {parameters} parameters", change=change, parameters=parameters)
    cache = times(of_change.cache)
    if not of_change.parameters:
        return say("{change}: KV cache {cache}", change=change, cache=cache)
    return say("{change}: KV cache {cache}, {parameters} parameters", change=change, cache=cache, parameters=parameters)


def setting(
    name: str, control: Control | Switch, original: Any, values: dict[str, Any], shared: bool, slopes: Slopes | None
) -> None:
    """One slider. `shared`: the heads share the hidden size."""
    key, now, label = f"field_{name}", values[name], say(control.label)
    if name in MULTIPLIERS:
        label = say("{label}: {width:,} wide", label=label, width=now)
    if now != original:
        label = say("{label} :orange-badge[changed]", label=label)
    if isinstance(control, Switch):
        st.toggle(label, help=say(control.help), width="stretch", **show(key, now, put, name, original))
    elif name in MULTIPLIERS:
        multiplier(label, name, control, original, values, slopes)
    elif options := choices(control, values, original, now, shared):
        step = next((option - now for option in options if option > now), control.step)
        st.select_slider(
            label,
            options,
            help=with_cost(say(control.help), slopes, name, now, step),
            **show(key, now, put, name, original, limits=tuple(options)),
        )
    else:
        control = on_grid(control, values, original, shared)
        low, high = control.span(original)
        low, high = min(low, now), max(high, now)
        st.slider(
            label,
            min_value=low,
            max_value=high,
            step=control.step,
            help=with_cost(say(control.help), slopes, name, now, control.step),
            **show(key, now, put, name, original, limits=(low, high, control.step)),
        )


def shares_hidden_size(config: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """The width of a head is hidden size over query heads: the config states none."""
    return config.get("head_dim") is None and "qk_nope_head_dim" not in values


def first(control: Control, values: Mapping[str, Any]) -> int:
    """The value of the field that a control moves; 0 where the model has none."""
    return next((values[name] for name, other in CONTROLS.items() if other is control and values.get(name)), 0)


def choices(control: Control, values: Mapping[str, Any], original: int, now: int, shared: bool) -> list[int]:
    """The values of a number of heads, and what is chosen; none where they lie on an even grid. KV heads divide the
    query heads, up to multi-head attention; query heads are a multiple of the KV heads that divides a hidden size which
    they share."""
    heads, hidden = first(HEADS, values), first(HIDDEN, values)
    if control is KV_HEADS and 0 < heads <= HEADS.most:
        return sorted({*divisors(heads), now})
    if control is HEADS and shared and 0 < hidden <= HIDDEN.most:
        each, most = first(KV_HEADS, values) or 1, control.span(original)[1]
        return sorted({*(number for number in divisors(hidden) if number % each == 0 and number <= most), now})
    return []


def on_grid(control: Control, values: Mapping[str, Any], original: int, shared: bool) -> Control:
    """A control in steps that the model can take: query heads by the KV heads or output groups that they share, and
    without such, as experts, by the largest power of two up to a sixteenth of the model's own that divides it; a hidden
    size that heads share by whole heads. No more experts per token than there are."""
    per_token, experts = first(PER_TOKEN, values) or 1, first(EXPERTS, values) or PER_TOKEN.most
    step, least, most = control.step, control.least, control.most
    if control is HEADS:
        step = least = first(KV_HEADS, values) or values.get("o_groups") or sixteenth(original)
    elif control is HIDDEN and shared:
        step = least = lcm(step, first(HEADS, values) or 1)
    elif control is EXPERTS:
        step, least = sixteenth(original), per_token
    elif control is PER_TOKEN:
        most = experts
    return replace(control, least=least, step=step, most=most) if original % step == 0 else control


def sixteenth(original: int) -> int:
    return gcd(original, 1 << (original // 16 or 1).bit_length() - 1)


def multiplier(
    label: str, name: str, control: Control, original: int, values: dict[str, Any], slopes: Slopes | None
) -> None:
    """The width of the feed-forward as a multiple of the hidden size, in steps from the model's own."""
    hidden = values[MULTIPLIERS[name]]
    own, now = (round(width / hidden, 4) for width in (original, values[name]))
    low, high = min(round(0.125 + (own - 0.125) % 0.125, 4), now), max(16.0, now)

    def take(factor: float) -> None:
        put(control.multiple(factor, hidden), name, original)

    st.slider(
        label,
        min_value=low,
        max_value=high,
        step=0.125,
        format="%.4g",
        help=with_cost(say(control.help), slopes, name, values[name], control.multiple(0.125, hidden)),
        **show(f"field_{name}", now, take, limits=(low, high)),
    )


def put(chosen: Any, name: str, original: Any) -> None:
    """Change one field of the config; the model's own value is no change."""
    others = {field: current for field, current in st.session_state.scenario.overrides.items() if field != name}
    change(overrides=others if chosen == original else others | {name: chosen})


def alone(answer: Answer, name: str) -> Architecture | None:
    """The model with one change only: what is on screen, where there is no other."""
    about, overrides = answer.model.published, answer.scenario.overrides
    if len(overrides) == 1:
        return answer.model.architecture

    def build() -> Architecture | None:
        try:
            return Architecture.from_config(override(about.config or {}, {name: overrides[name]}))
        except ConfigError:
            return None

    key = str(about.name), id(about), name, overrides[name]
    return remembered("changed", key, build, lambda built: len(built) > MOST)
