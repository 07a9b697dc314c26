"""How Hypothesis draws, and which tests come first.

It draws the same in every run, so that a change is judged by what it changed, and by night 300 examples instead of 40;
`pytest --hypothesis-profile explore` draws anew, and 500.
"""

import gc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

PATIENT = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("every run", PATIENT, derandomize=True)
settings.register_profile("nightly", PATIENT, derandomize=True, max_examples=300)
settings.register_profile("explore", PATIENT, max_examples=500)
settings.load_profile("every run")

BROWSER = Path(__file__).parent / "pages" / "browser"


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
        if item.path.parent == BROWSER:
            item.add_marker(pytest.mark.browser)
        if item.function in seen:
            item.add_marker(pytest.mark.further)
        seen.add(item.function)
    items.sort(key=lambda item: (not item.get_closest_marker("browser"), not item.get_closest_marker("slow")))
