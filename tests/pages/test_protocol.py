"""What a reader, a browser and the server make of each other, however their messages meet: in the end the page is what
a fresh one at its address is, and what was moved is where it was moved to."""

from math import inf

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pages.parts import direct
from pages.parts.state import url, widgets
from tests.pages.wire import Browser, Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not direct.is_on(), reason="This is about the Streamlit that direct.py knows."),
]
SLIDERS = ("field_num_hidden_layers", "field_hidden_size")
BOXES = ("batch", "tp", "max_num_seqs", "accumulation")
MODEL = "Qwen/Qwen3-14B"
START = f"model={MODEL}&max_num_seqs=64"
DESIGN = {"num_hidden_layers": 40, "hidden_size": 5120}
USUAL = {"": DESIGN | {"batch": 1, "tp": 1, "max_num_seqs": None}, "train": DESIGN | {"accumulation": 1}}
"""What each page says where nothing was moved."""
few = st.integers(1, 12)


@pytest.fixture(autouse=True, scope="module")
def no_time_passes():
    """What is on its way arrives when a test says so, however long that takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(url, "ARRIVES", inf)
        patch.setattr(widgets, "LANDS", inf)
        yield


MOVES = st.one_of(
    st.tuples(st.just("move"), st.sampled_from(SLIDERS + BOXES), st.sampled_from([-64, -2, -1, 1, 2, 64])),
    st.tuples(st.just("move"), st.sampled_from(SLIDERS), st.sampled_from([-1, 1])),
)
TIME = st.one_of(
    st.tuples(st.just("ask"), st.none() | few),
    st.tuples(st.just("run")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("get"), st.none() | few),
)
VISITS = st.tuples(st.just("visit"), st.sampled_from(["", "train"]))
OTHERS = st.one_of(
    st.tuples(st.just("click"), st.sampled_from(["choose_Qwen/Qwen2.5-3B", f"choose_{MODEL}", "reset"])),
    st.tuples(st.just("move"), st.just("field_factor"), st.sampled_from([-0.125, 0.125])),
    st.tuples(st.just("empty"), st.just("max_num_seqs")),
    st.tuples(st.just("back")),
    VISITS,
)


LAYERS = "field_num_hidden_layers"
ASK, GET = ("ask", None), ("get", None)


def opened(path="", query=START):
    browser = Browser(Server(), path, query)
    browser.rest()
    return browser


def do(browser, act, *how):
    """One step of anybody."""
    if act == "ask":
        if browser.out:
            browser.server.ask(browser.out.pop(0), *how)
    elif act == "run":
        browser.server.run()
    else:
        return getattr(browser, act)(*how)


def agrees(browser):
    browser.rest()
    fresh = opened(browser.path, browser.query)
    assert browser.screen() == fresh.screen()
    assert browser.address()[1] == fresh.address()[1]


@pytest.mark.drawn
@given(st.lists(st.one_of(MOVES, TIME, TIME, OTHERS, st.just(("reconnect",))), max_size=40))
def test_a_page_is_what_a_fresh_one_at_its_address_is(acts):
    browser = opened()
    for act in acts:
        do(browser, *act)
    agrees(browser)


@pytest.mark.drawn
@given(st.lists(st.one_of(MOVES, MOVES, TIME, TIME, VISITS), max_size=40))
@example([("move", LAYERS, 1), ASK, ("run",), ("move", LAYERS, -1), ASK, ("run",)])  # the address on its way is old
@example(
    [("visit", "train"), ASK, ("move", LAYERS, 1), ("run",), ASK, ("move", LAYERS, 1), ("run",)]
)  # of the page left
@example([("visit", "train"), ASK, ("visit", ""), ("run",), ("move", LAYERS, 1)])  # and of the one that is back again
@example(
    [("visit", "train"), ("move", LAYERS, 1), ASK, ("run",), ("flush",), GET, ("move", "field_hidden_size", 1)]
)  # a move of the page left comes late, and the next one with it
@example([("visit", "train"), ("move", LAYERS, -1), ASK, ("run",), ("flush",), GET, ("move", LAYERS, 2)])
@example([("visit", "train"), ("move", LAYERS, 1), ASK, ("run",), ("flush",), GET, ("visit", ""), ("move", LAYERS, 2)])
@example([("visit", "train"), ("move", LAYERS, 1), ASK, ("run",), ("flush",), GET, ("visit", ""), ("move", "batch", 2)])
@example(
    [("visit", "train"), ASK, ("run",), ("flush",), GET, ("visit", ""), ASK, ("run",), ("move", "accumulation", 2)]
)
def test_what_was_moved_is_where_it_was_moved_to(acts):
    """Also where the page is left meanwhile; and nothing else has moved."""
    browser, moved = opened(), {"max_num_seqs": 64}
    for act in acts:
        value = do(browser, *act)
        if act[0] == "move" and value is not None:
            moved[act[1].removeprefix("field_")] = value
    agrees(browser)
    for path, usual in USUAL.items():
        browser.visit(path)
        agrees(browser)
        differs = {name: value for name, value in moved.items() if name in usual and value != usual[name]}
        assert {name: int(value) for name, value in browser.address()[1].items() if name != "model"} == differs


@pytest.mark.parametrize(("arrives", "goes_back"), [(0, True), (inf, False)])
def test_without_its_mark_back_is_told_by_time(monkeypatch, arrives, goes_back):
    """An address from before a move may be one that the browser had when it was moved."""
    monkeypatch.setenv(direct.DIRECT, "0")
    browser = opened()
    addresses = [browser.address()]
    browser.move(LAYERS, 1)
    browser.rest()
    addresses.append(browser.address())
    monkeypatch.setattr(url, "ARRIVES", arrives)
    browser.back()
    agrees(browser)
    assert browser.address() == addresses[not goes_back]
