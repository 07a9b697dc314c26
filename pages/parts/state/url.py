"""The scenario and the language of this session and its address: the one module that touches `st.query_params`.

The scenario is written in two ways: `change`, called by a control with the fields that it sets, and `current`, which
reads an address. Widgets are views of it (widgets.py). A message of the browser says the address that it had, which the
server may have written anew since; of messages that wait for an answer the newest counts, and is marked as Back only
where nothing followed. So an address is read where it can be the reader's alone:

| a run                                  | the scenario                             | the address                |
| -------------------------------------- | ---------------------------------------- | -------------------------- |
| is the first of a session              | is that of the address                   | is left as it is           |
| enters a page with a query of its own  | is that of the address                   | is sent                    |
| enters a page with none                | stays, with the reader's moves           | is sent                    |
| is Back or forward                     | is that of the address                   | is sent, behind any other  |
| is that, to a path without a query     | is what it was when the page was entered | is sent                    |
| is that, to the query of the page left | stays, with the reader's moves           | is sent                    |
| says one that the session never had    | is that of the address                   | is sent                    |
| is any other, whatever it says         | stays, with the reader's moves           | is sent once it is changed |

Fifth and sixth are steps that the navigation leaves in the history. A run that was cut short left what it had to read
in `unread`, and the next one reads it. A browser that is sent the address that it has does nothing.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from calc.errors import Message, shown
from pages.parts import words
from pages.parts.state import widgets
from pages.parts.state.published import forget, published
from pages.parts.state.query import GENERATION, PAGES, WEIGH, Page, decode, encode, left_out, shareable
from pages.parts.state.scenario import Place, Scenario, Source

ADDRESSES = 1000
"""That a session remembers; what a browser says is never so old."""


def arrive() -> None:
    """Note the address that a reader comes with, or goes back to, before the navigation is there to be clicked: whoever
    goes on to another page at once keeps the model. And the language that it says, before anything is. For the
    router."""
    state, context = st.session_state, get_script_run_ctx()
    is_back = context is not None and context.is_history_navigation
    if "entered" not in state:
        state.entered, state.visits, state.written, state.resumed = {}, 0, False, widgets.left_over()
        state.had = {_key(st.query_params.to_dict()): None}
        _note(state.get("language"))
    elif is_back or _is_foreign():
        state.written = True
        _note(None)
    words.begin()


def _is_foreign() -> bool:
    """Whether the browser says an address of this page that the session never had: Back beyond a reload, of which the
    mark is lost where another message followed."""
    state, params = st.session_state, st.query_params.to_dict()
    path = urlsplit(st.context.url or "").path.rstrip("/").rpartition("/")[2]
    return bool(params) and "page" in state and path == state.page.path and _key(params) not in state.had


def _key(params: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(params.items())


def _note(language: str | None) -> None:
    """The page and the query that are to be read; None where there is nothing to read."""
    state, params = st.session_state, st.query_params.to_dict()
    path = urlsplit(st.context.url or "").path.rstrip("/").rpartition("/")[2]
    page = next((page for page in PAGES if page.path == path), WEIGH)
    state.unread = None
    if "page" in state and page != state.page and params == state.address:
        change()
    elif not params and page.path in state.entered:
        change(**dict(state.entered[page.path]))
    else:
        state.unread = page, params
        state.language = params["lang"] if params.get("lang") in words.CATALOGUES else language


def resume() -> None:
    """A browser whose server was started again speaks up with its widgets as they were left and one of them moved. For
    the router, at its end."""
    if st.session_state.pop("resumed", None) and widgets.catch_up():
        st.rerun()


def current(page: Page) -> Scenario:
    """The scenario now, as the table above has it."""
    state, said = st.session_state, st.query_params.to_dict()
    found = _unread(page, said)
    if found is not None:
        _read(*found)
    state.pop("unread", None)
    if page != state.get("page"):
        if found is None or found[0] != page:
            state.entered[page.path], state.address = state.scenario, None
        state.written = "page" in state
        state.page, state.visits = page, state.visits + 1
    if state.address is None:
        params = _params(state.scenario, page)
        state.address, state.problems, state.written = params if shareable(params) else {}, [], True
    state.had.pop(_key(state.address), None)
    state.had[_key(state.address)] = None
    if len(state.had) > ADDRESSES:
        del state.had[next(iter(state.had))]
    if state.written or said != state.address:
        st.query_params.from_dict(state.address)
    scenario: Scenario = state.scenario
    return scenario


def _unread(page: Page, said: dict[str, str]) -> tuple[Page, dict[str, str]] | None:
    """The page and the query that this run is to read, if any."""
    state = st.session_state
    is_own = said and ("scenario" not in state or ("unread" not in state and page != state.page))
    return (page, said) if is_own else state.get("unread")


def _read(page: Page, params: dict[str, str]) -> None:
    state = st.session_state
    now = state.get("scenario", Scenario())
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
    state.address, state.problems = params, problems


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
    state.address = None


def choose(model: str, revision: str | None = None, file: str | None = None) -> None:
    """Another model, with its own values and the same workload; for callbacks."""
    change(source=Source(model=model, revision=revision, file=file), overrides={})


def speak(language: str) -> None:
    """Another language for the same numbers; for callbacks."""
    st.session_state.language = language
    st.session_state.address = None


def again() -> None:
    """Ask the Hub again, and read the address with what it says; for callbacks."""
    forget()
    state = st.session_state
    state.unread = state.page, state.address or _params(state.scenario, state.page)


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


def bind(place: Place, **how: Any) -> dict[str, Any]:
    """Arguments that make a widget the view of one field of the scenario; `how` is of `widgets.show`."""
    return widgets.show(place.name, how.pop("value", place.of(st.session_state.scenario)), _take, place, **how)


def _take(value: Any, place: Place) -> None:
    change({place: value})
