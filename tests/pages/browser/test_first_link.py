"""The first link that a fresh process is asked for, and a reader's first: the right page with the right navigation.

By night, but for one of a fresh process that is in test_hub.py; test_language.py has the ways on a reader's first page.
"""

import pytest
from playwright.sync_api import expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from pages.parts.state.query import AREAS
from tests.pages.browser.conftest import DESK, running_app
from tests.pages.readers import ways

pytestmark = pytest.mark.sweep

VIEWS = {page.path: page for area in AREAS for page in area.pages}


@pytest.fixture
def page(browser):
    """Of a reader who was never here."""
    context = browser.new_context(viewport=DESK)
    yield context.new_page()
    context.close()


def follow(page, address, path):
    frames = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: frames.append(frame)))
    page.goto(f"{address}/{path}?model=Qwen/Qwen2.5-3B")
    (views,) = (area.pages for area in AREAS if VIEWS[path] in area.pages)
    expect(ways(page)).to_have_count(len(AREAS) + (len(views) if len(views) > 1 else 0))
    expect(page.locator(".st-key-current_view, .st-key-current_place").last).to_contain_text(str(VIEWS[path].title))
    alone = {"accuracy": "measured figures", "hardware": "GPUs"}  # which are about no model
    title = alone.get(path, "Qwen2.5-3B")
    expect(page.get_by_role("heading", level=1)).to_contain_text(title)
    kinds = {ForwardMsg.FromString(frame).WhichOneof("type") for frame in frames}
    assert "navigation" in kinds
    assert "page_not_found" not in kinds


def test_first_link_of_a_fresh_process(page):
    """Of the first page; of another in test_hub.py: Streamlit knows no more of a page than whether it is the first."""
    with running_app() as address:
        follow(page, address, "")


@pytest.mark.parametrize("path", [pytest.param(path, id=path or "weigh") for path in VIEWS])
def test_first_link_of_a_reader(page, address, path):
    follow(page, address, path)
