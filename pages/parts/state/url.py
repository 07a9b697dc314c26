"""The scenario and the language of this session and its address: the one module that touches `st.query_params`.

The scenario is written in two ways: `change`, called by a control with the fields that it sets, and `current`, which
reads an address. Widgets are views of it (widgets.py). A message of the browser says the address that it had, which the
server may have written anew since; of messages that wait for an answer the newest counts. So an address is read where
it can be the reader's alone:

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

A browser marks Back and forward (direct.py). Where one cannot read the mark, a run is that on a page if it says another
address than the newest, nothing was moved, and the newest was sent so long ago that the browser has had it.
"""

from collections.abc import Mapping
from time import monotonic
from typing import Any
from urllib.parse import urlencode, urlsplit

import streamlit as st

from calc.errors import Message, shown
from pages.parts import direct, words
from pages.parts.state import widgets
from pages.parts.state.published import forget, published
from pages.parts.state.query import GENERATION, WEIGH, Page, decode, encode, left_out, page_at, shareable
from pages.parts.state.scenario import Place, Scenario, Source

ADDRESSES = 1000
"""Addresses that a session remembers; what a browser says is never so old."""
ARRIVES = 2.0
"""Seconds after which a browser has the address that it was sent, on a slow line too."""
Address = tuple[str, frozenset[tuple[str, str]]]
"""The path of a page and its query."""


def arrive() -> None:
    """Note the address that a reader comes with, or goes back to, before the navigation is there to be clicked: whoever
    goes on to another page at once keeps the model. And the language that it says, before anything is. For the
    router."""
    state = st.session_state
    state.run_number = state.get("run_number", 0) + 1
    if not state.get("is_whole", True):
        state.cut = state.run_number - 1
    state.is_whole = False
    if "entered" not in state:
        state.entered, state.visits, state.written, state.is_fresh = {}, 0, False, True
        state.drawn_before = direct.drawn_before()
        state.had, state.sent = {_stated_address(): None}, monotonic()
        _note(state.get("language"))
    elif _is_back():
        state.written = True
        _note(None)
    words.begin()


def _is_back() -> bool:
    """Whether the address that the browser says is the reader's: Back, forward, or Back beyond a reload, to one that
    the session never had, of which the mark is lost where another message followed."""
    state, stated, params = st.session_state, _stated_address(), st.query_params.to_dict()
    is_led, is_marked = state.pop("led", False), direct.marked_as_back()
    is_here = "page" in state and stated[0] == state.page.path
    is_foreign = bool(params) and is_here and stated not in state.had
    if is_marked is not None or is_led or "page" not in state or not st.context.url:
        return bool(is_marked) or is_foreign
    if params == state.address:
        return not is_here and bool(params)
    if not is_here or stated not in state.had:
        return is_here or (stated in state.had and bool(params))
    return "moved" not in state and state.address is not None and monotonic() - state.sent > ARRIVES


def _stated_address() -> Address:
    """The address that the browser says."""
    return _address(_page(), st.query_params.to_dict())


def _page() -> Page:
    return page_at(urlsplit(st.context.url or "").path) or WEIGH


def _address(page: Page, params: Mapping[str, str]) -> Address:
    return page.path, frozenset(params.items())


def _note(language: str | None) -> None:
    """The page and the query that are to be read; None where there is nothing to read."""
    state, params, page = st.session_state, st.query_params.to_dict(), _page()
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
    st.session_state.is_whole = True
    if st.session_state.pop("is_fresh", None) and widgets.catch_up():
        st.rerun()


def current(page: Page) -> Scenario:
    """The scenario now, as the table above has it."""
    state, stated = st.session_state, st.query_params.to_dict()
    unread = _unread(page, stated)
    if unread is not None:
        _read(*unread)
    state.pop("unread", None)
    if page != state.get("page"):
        if unread is None or unread[0] != page:
            state.entered[page.path], state.address = state.scenario, None
        state.written = "page" in state
        state.page, state.visits = page, state.visits + 1
    planning = state.scenario.planning
    if page.purpose not in (None, planning.purpose):
        change(planning=planning.model_copy(update={"purpose": page.purpose}))
    if state.address is None:
        params = _params(state.scenario, page)
        state.address, state.written = params if shareable(params) else {}, True
        if unread is None or unread[0] != page:
            state.problems = []
    _remember(_address(page, stated), _address(page, state.address))
    if state.written or stated != state.address:
        st.query_params.from_dict(state.address)
    scenario: Scenario = state.scenario
    return scenario


def _remember(*addresses: Address) -> None:
    """Note addresses that the browser said or is sent, the newest last."""
    state = st.session_state
    if addresses[-1] != next(reversed(state.had)):
        state.sent = monotonic()
    for address in addresses:
        state.had.pop(address, None)
        state.had[address] = None
    while len(state.had) > ADDRESSES:
        del state.had[next(iter(state.had))]
    state.pop("moved", None)


def _unread(page: Page, stated: dict[str, str]) -> tuple[Page, dict[str, str]] | None:
    """The page and the query that this run is to read, if any."""
    state = st.session_state
    is_own = stated and ("scenario" not in state or ("unread" not in state and page != state.page))
    return (page, stated) if is_own else state.get("unread")


def _read(page: Page, params: dict[str, str]) -> None:
    state = st.session_state
    now = state.get("scenario", Scenario())
    lang = params.get("lang", "en")
    own = {name: params[name] for name in params if name != "lang"}
    state.scenario, problems = decode(own, page, now, lambda source: published(source).settings or {})
    if lang not in words.CATALOGUES:
        some = ", ".join(words.CATALOGUES)
        problems.append(left_out("lang", lang, Message("{name} is one of {some}", name="lang", some=some)))
    for name in st.query_params:
        if (times := len(st.query_params.get_all(name))) > 1:
            problems.append(
                Message("The link says {name} {n:,} times; the last one counts.", name=shown(name), n=times)
            )
    state.address, state.problems = params, problems


def _params(scenario: Scenario, page: Page, *, for_programs: bool = False) -> dict[str, str]:
    """The query string of a page, with the language where a link or the reader said one."""
    language = st.session_state.get("language")
    return encode(scenario, page, for_programs=for_programs) | ({"lang": language} if language else {})


def lead(page: Page) -> None:
    """Take the reader to another page, with the scenario as it is."""
    st.session_state.led = True
    st.switch_page(page.script)


def way(scenario: Scenario, page: Page, label: str, icon: str | None = None) -> None:
    """A link to a page with a scenario of its own."""
    st.page_link(page.script, label=label, icon=f":material/{icon or page.icon}:", query_params=encode(scenario, page))


def change(changes: Mapping[Place, Any] | None = None, **parts: Any) -> None:
    """Set fields of the scenario, or whole parts of it; for callbacks."""
    state = st.session_state
    state.moved = True
    state.scenario = state.scenario.model_copy(update=parts)
    for place, value in (changes or {}).items():
        state.scenario = place.put(state.scenario, value)
    state.address = None


def add(place: Place, other: Any, most: int) -> None:
    """One more in a list of the scenario that has room for it; for callbacks."""
    change({place: (*place.of(st.session_state.scenario), other)[:most]})


def remove(place: Place, number: int) -> None:
    """One of a list of the scenario away; for callbacks."""
    known = place.of(st.session_state.scenario)
    change({place: known[:number] + known[number + 1 :]})


def choose(model: str, revision: str | None = None, file: str | None = None) -> None:
    """Another model, with its own values and the same workload; for callbacks."""
    change(source=Source(model=model, revision=revision, file=file), overrides={})


def speak(language: str) -> None:
    """Another language for the same numbers; for callbacks."""
    state = st.session_state
    state.language, state.address, state.moved = language, None, True


def again() -> None:
    """Ask the Hub again, and read the address with what it says; for callbacks."""
    forget()
    state = st.session_state
    state.moved = True
    state.unread = state.page, state.address or _params(state.scenario, state.page)


def problems() -> list[Message]:
    """Sentences about the parts of the link that made no sense."""
    messages: list[Message] = st.session_state.problems
    return messages


def link(scenario: Scenario, page: Page, *, for_programs: bool = False) -> str | None:
    """The address of a page of this scenario, with the generation of its defaults; None where it is too long.
    `for_programs`: with what their answer depends on alone."""
    params = _params(scenario, page, for_programs=for_programs) | GENERATION
    if not shareable(params):
        return None
    here = urlsplit(st.context.url or "")
    return here._replace(path=here.path or "/", query=urlencode(params, safe="/,:="), fragment="").geturl()


def program_link(scenario: Scenario, page: Page) -> str | None:
    """The address of the JSON that a page of this scenario shows; None where there is none, or it is too long."""
    address = link(scenario, page, for_programs=True)
    if page.answers_at is None or address is None:
        return None
    there = urlsplit(address)
    return there._replace(path=f"{there.path.removesuffix(page.path).rstrip('/')}/api/{page.answers_at}").geturl()


def bind(place: Place, **how: Any) -> dict[str, Any]:
    """Arguments that make a widget the view of one field of the scenario; `how` is of `widgets.show`."""
    return widgets.show(
        place.name, how.pop("value", place.of(st.session_state.scenario)), lambda chosen: change({place: chosen}), **how
    )
