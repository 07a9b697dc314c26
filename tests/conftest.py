"""How Hypothesis draws, and which worker runs what.

It draws the same in every run, so that a change is judged by what it changed; `pytest --hypothesis-profile explore`
draws anew, and ten times as much.
"""

import pytest
from hypothesis import HealthCheck, settings

PATIENT = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("every run", PATIENT, derandomize=True)
settings.register_profile("explore", PATIENT, max_examples=500)
settings.load_profile("every run")


def pytest_collection_modifyitems(items):
    """Whole files on one worker, whose tests share a server; and all browser tests on one, from the start: two browsers
    at once would wait for each other."""
    for item in items:
        file, _, _ = item.nodeid.partition("::")
        item.add_marker(pytest.mark.xdist_group("browser" if "browser" in item.fixturenames else file))
    items.sort(key=lambda item: "browser" not in item.fixturenames)
