"""How Hypothesis draws, which tests come first, and the browser of the browser tests.

It draws the same in every run, so that a change is judged by what it changed, and by night three times as much;
`pytest --hypothesis-profile explore` draws anew, and ten times as much.
"""

import gc

import pytest
from hypothesis import HealthCheck, settings

from tests.browser import chromium

PATIENT = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("every run", PATIENT, derandomize=True)
settings.register_profile("nightly", PATIENT, derandomize=True, max_examples=150)
settings.register_profile("explore", PATIENT, max_examples=500)
settings.load_profile("every run")


FORGET = """
try { if (!sessionStorage.getItem("known")) { localStorage.clear(); sessionStorage.setItem("known", "yes"); } } catch {}
"""
"""A new tab knows nothing of those before it, such as whether Streamlit's sidebar was open."""


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def profile(browser):
    """A reader's who has been here before, whose browser has the app's scripts compiled, and who wants no animations:
    a third less work for each page that is opened."""
    context = browser.new_context(viewport={"width": 1440, "height": 1200}, reduced_motion="reduce")
    context.set_default_timeout(20_000)
    context.add_init_script(FORGET)
    yield context
    context.close()


@pytest.fixture
def page(profile):
    page = profile.new_page()
    yield page
    page.close()
    profile.clear_cookies()
    profile.clear_permissions()


def pytest_collection():
    gc.disable()


def pytest_collection_finish():
    """Modules, presets and tests stay to the end. Looking through them for garbage, again and again, was a fifth of
    the time of tests of pages."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items):
    """Browser tests first and slow ones next, so that no worker is left with a long file at the end. Of each function,
    cases after the first are further ones."""
    seen = set()
    for item in items:
        if "browser" in item.fixturenames:
            item.add_marker(pytest.mark.browser)
        if item.function in seen:
            item.add_marker(pytest.mark.further)
        seen.add(item.function)
    items.sort(key=lambda item: (not item.get_closest_marker("browser"), not item.get_closest_marker("slow")))
