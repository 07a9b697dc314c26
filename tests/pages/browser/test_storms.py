"""A reader who is faster than the answers: nothing is lost, and what the page shows is what its address says."""

import re
from random import Random
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.pages.readers import go, search
from tests.pages.storm import presses, rest, seen, storm, watch

START = {"model": "Qwen/Qwen3-14B", "gpu": "h100-sxm"}
LAYERS, HIDDEN = "Layers", "Hidden size"
NOW = {LAYERS: ("num_hidden_layers", 40, 1), HIDDEN: ("hidden_size", 5120, 64)}
"""What each slider sets, where it stands and how far a key moves it."""


@pytest.fixture(scope="module")
def readers(profile):
    """One who moves sliders, and one who opens the same address afresh."""
    tabs = [watch(profile.new_page()) for _ in range(2)]
    yield tabs
    for tab in tabs:
        tab.close()


MORE = [
    pytest.param(*how, marks=pytest.mark.sweep)
    for how in ((600, 0), (300, 5), (60, 60), (100, 30), (40, 150), (200, 0))
]
"""Keys and the milliseconds between them: longer storms, and other paces. One without a pause is also in the storm on a
page that is left."""


def opened(page, address, path="", **query):
    page.goto(f"{address}/{path}?" + "&".join(f"{name}={value}" for name, value in (START | query).items()))
    drawn(page)


def drawn(page):
    page.get_by_text(re.compile(f"^{HIDDEN}")).first.wait_for()
    rest(page)


def said(page):
    """What the address says."""
    return dict(parse_qsl(urlsplit(page.url).query))


def at(page):
    """By how many steps each slider has moved, as the address says."""
    return {label: (int(said(page).get(name, usual)) - usual) // step for label, (name, usual, step) in NOW.items()}


def moved(steps):
    """What the address says after so many steps of each slider."""
    fields = {NOW[label][0]: NOW[label][1] + NOW[label][2] * number for label, number in steps.items() if number}
    return START | {name: str(value) for name, value in fields.items()}


def agrees(page, fresh):
    """Whether a page is what a fresh one at its address is."""
    fresh.goto(page.url)
    drawn(fresh)
    assert seen(page) == seen(fresh)


@pytest.mark.parametrize(("number", "pause"), [*MORE, (40, 30)])
def test_a_storm_on_two_sliders(readers, address, number, pause):
    """One after the other on the same page."""
    page, fresh = readers
    if not page.url.startswith(address):
        opened(page, address)
    storm(page, presses(Random(number), number, 15, now := at(page)), pause)
    rest(page)
    assert said(page) == moved(now)
    agrees(page, fresh)


def test_a_storm_on_a_number_box(readers, address):
    """Each of its keys runs the whole page, and the next comes while it runs."""
    page, fresh = readers
    opened(page, address, num_gpus="20")
    storm(page, presses(Random(1), 30, 15, now := {"How many of each": 0}), 20, ("ArrowDown", "ArrowUp"))
    rest(page)
    assert said(page) == START | {"num_gpus": str(20 + now["How many of each"])}
    agrees(page, fresh)


@pytest.mark.parametrize("pause", [0, pytest.param(40, marks=pytest.mark.sweep)])
def test_nothing_is_lost_when_a_page_is_left_in_the_middle(readers, address, pause):
    page, fresh = readers
    opened(page, address)
    storm(page, presses(Random(2), 20, 15, now := at(page)), pause)
    go(page, "Train")
    page.get_by_text("Training step", exact=True).nth(1).wait_for()
    rest(page)
    assert said(page) == moved(now)
    agrees(page, fresh)


@pytest.mark.parametrize(
    "act", ["back", *(pytest.param(act, marks=pytest.mark.sweep) for act in ("preset", "reset", "reload"))]
)
def test_what_else_comes_in_the_middle(readers, address, act):
    """It takes the sliders away that move, or not: the page goes by its address, and nothing else has changed."""
    page, fresh = readers
    opened(page, address)
    storm(page, presses(Random(3), 20, 15, at(page)), 25)
    if act == "back":  # before the first answer there is no step in the app to go back, and a new tab would leave it
        page.wait_for_url(re.compile("num_hidden_layers|hidden_size"), wait_until="commit")
    if act == "preset":
        search(page, "Model", "deepseek v3", "DeepSeek-V3")
    elif act == "reset":
        page.get_by_role("button", name="Reset everything").click()
    elif act == "back":
        page.go_back(wait_until="commit")
    else:
        page.reload()
        drawn(page)
    storm(page, presses(Random(4), 20, 15, {LAYERS: 0}), 25)
    rest(page)
    agrees(page, fresh)
    assert said(page).keys() <= {*START, "num_hidden_layers", "hidden_size"}
    assert (said(page)["model"] == START["model"]) == (act != "preset")
