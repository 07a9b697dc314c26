"""The app in a process of its own, and a real Chromium to look at it; both are there as long as their tests run."""

import sys
from contextlib import AbstractContextManager

import pytest
from playwright.sync_api import expect

from tests import ROOT
from tests.browser import chromium, running

expect.set_options(timeout=60_000)
"""On a machine that does other things as well; nothing here is about time."""
DESK = {"width": 1440, "height": 1200}
FORGET = """
try {
  if (!sessionStorage.getItem("known")) {
    localStorage.clear();
    sessionStorage.clear();
    sessionStorage.setItem("known", "yes");
  }
} catch {}
"""
"""A test knows nothing of those before it, such as whether Streamlit's sidebar was open."""


def running_app(**environment: str) -> AbstractContextManager[str]:
    """The address of the app, run with these environment variables."""
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless=true", "--server.port={port}"]
    return running(command, ROOT, **environment)


@pytest.fixture(scope="package")
def address():
    with running_app() as where:
        yield where


@pytest.fixture(scope="package")
def browser():
    """Not longer, for Playwright's loop runs in this thread, where other tests have one of their own."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def profile(browser):
    """A reader's who has been here before and who wants no animations."""
    context = browser.new_context(viewport=DESK, reduced_motion="reduce")
    context.set_default_timeout(60_000)
    context.add_init_script(FORGET)
    yield context
    context.close()


@pytest.fixture(scope="package")
def tab(profile):
    """One for all: it has the app's scripts compiled, which is half the work of opening a page in a new one."""
    return profile.new_page()


@pytest.fixture
def page(profile, tab):
    """The tab as a new one would be. Whoever listens to it does so to the end."""
    yield tab
    tab.unroute_all(behavior="ignoreErrors")
    tab.evaluate("sessionStorage.clear()")
    tab.goto("about:blank")
    session = profile.new_cdp_session(tab)
    session.send("Page.resetNavigationHistory")
    session.detach()
    tab.set_viewport_size(DESK)
    tab.emulate_media(media="null", color_scheme="null")
    profile.clear_cookies()
    profile.clear_permissions()
