"""The scenario and the language of this session and its address: the one module that touches `st.query_params`.

The scenario is written in two ways: `change`, called by a control with the fields that it sets, and `current`, which
reads the address when a reader arrives, and when they go back or forward. Widgets are views of it (widgets.py).
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import streamlit as st
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.runtime.scriptrunner import get_script_run_ctx

from calc.errors import Message, shown
from pages.parts import words
from pages.parts.state.published import forget, published
from pages.parts.state.query import GENERATION, PAGES, WEIGH, Page, decode, encode, left_out, shareable
from pages.parts.state.scenario import Place, Scenario, Source
from pages.parts.state.widgets import hear, show


def arrive() -> None:
    """Note the address that a reader comes with, before the navigation is there to be clicked: whoever goes on to
    another page at once keeps the model. And the language that an address says, before anything is. For the router."""
    state = st.session_state
    if st.query_params.get("lang") in words.CATALOGUES and not state.get("touched"):
        state.language = st.query_params["lang"]
    heard = hear()
    if "arrival" not in state:
        state.left_over = heard
        path = urlsplit(st.context.url or "").path.rstrip("/").rpartition("/")[2]
        page = next((page for page in PAGES if page.path == path), WEIGH)
        state.arrival = page, st.query_params.to_dict()


def resume() -> None:
    """What a reader did before this process knew them: a browser whose server was started again speaks up with its
    widgets as they were left and one of them moved, which nothing here could hear yet. For the router, at its end."""
    widgets, context = st.session_state.pop("left_over", None), get_script_run_ctx()
    st.session_state.resumed = bool(widgets)
    if widgets and context is not None:
        context.session_state.on_script_will_rerun(WidgetStates(widgets=widgets))
        st.rerun()


def current(page: Page) -> Scenario:
    """The scenario now; read from the address on the first run and when the reader goes back or forward."""
    state, params = st.session_state, st.query_params.to_dict()
    if "scenario" not in state:
        if params:
            _read(page, params)
        else:
            _read(*state.get("arrival", (page, params)))
            _write(page)
    elif state.pop("touched", False) or (page != state.page and params in ({}, state.written)):
        # The navigation drops the query string; and the next page's first stands in the history under this one's path.
        if page != state.page:
            state.entered = page, state.scenario
        state.problems = []
        _write(page)
    elif not params and state.get("entered", (None,))[0] == page:
        # Back to the path alone, which the navigation may leave in the history before its query string follows.
        state.scenario, state.problems = state.entered[1], []
        _write(page)
    elif params != state.written and _is_chosen():
        _read(page, params)
    state.page = page
    scenario: Scenario = state.scenario
    return scenario


def _is_chosen() -> bool:
    """Whether an address is the reader's: that of a link, or one they go back to. A browser that says what else they
    did may say the address as it was before the server wrote it."""
    context = get_script_run_ctx()
    return not st.session_state.acted or (context is not None and context.is_history_navigation)


def _read(page: Page, params: dict[str, str]) -> None:
    state = st.session_state
    now = state.get("scenario", Scenario())
    state.written = params
    lang = params.get("lang", "en")
    state.scenario, problems = decode({name: params[name] for name in params if name != "lang"}, page, now, _settings)
    if lang not in words.CATALOGUES:
        some = ", ".join(words.CATALOGUES)
        problems.append(left_out("lang", lang, Message("{name} is one of {some}", name="lang", some=some)))
    for name in st.query_params:
        if (times := len(st.query_params.get_all(name))) > 1:
            problems.append(
                Message("The link says {name} {n:,} times; the last one counts.", name=shown(name), n=times)
            )
    state.problems = problems


def _write(page: Page) -> None:
    state = st.session_state
    state.written = _params(state.scenario, page)
    if not shareable(state.written):
        state.written = {}
    if st.query_params.to_dict() != state.written:
        st.query_params.from_dict(state.written)


def _params(scenario: Scenario, page: Page) -> dict[str, str]:
    """The query string of a page, with the language where a link or the reader said one."""
    language = st.session_state.get("language")
    return encode(scenario, page) | ({"lang": language} if language else {})


def _settings(source: Source) -> Mapping[str, Any]:
    return published(source).settings or {}


def change(changes: Mapping[Place, Any] | None = None, **parts: Any) -> None:
    """Set fields of the scenario, or whole parts of it; for callbacks."""
    state = st.session_state
    state.scenario = state.scenario.model_copy(update=parts)
    for place, value in (changes or {}).items():
        state.scenario = place.put(state.scenario, value)
    state.touched = True


def choose(model: str, revision: str | None = None, file: str | None = None) -> None:
    """Another model, with its own values and the same workload; for callbacks."""
    change(source=Source(model=model, revision=revision, file=file), overrides={})


def speak(language: str) -> None:
    """Another language for the same numbers; for callbacks."""
    st.session_state.language = language
    st.session_state.touched = True


def again() -> None:
    """Ask the Hub again, and read the address with what it says; for callbacks."""
    forget()
    st.session_state.written = None


def problems() -> list[Message]:
    """Sentences about the parts of the link that made no sense."""
    found: list[Message] = st.session_state.problems
    return found


def link(scenario: Scenario, page: Page) -> str | None:
    """The address of a page of this scenario, with the generation of its defaults; None where it is too long."""
    params = _params(scenario, page) | GENERATION
    if not shareable(params):
        return None
    here = urlsplit(st.context.url or "")
    return here._replace(path=here.path or "/", query=urlencode(params, safe="/,:="), fragment="").geturl()


def bind(place: Place, key: str | None = None) -> dict[str, Any]:
    """Arguments that make a widget the view of one field of the scenario."""
    key = key or place.name
    return show(key, place.of(st.session_state.scenario), _take, place, key)


def _take(place: Place, key: str) -> None:
    change({place: st.session_state[key]})
