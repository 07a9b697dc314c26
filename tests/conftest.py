"""How Hypothesis draws, and which worker runs what."""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "noisy machines", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("noisy machines")


def pytest_collection_modifyitems(items):
    """Whole files on one worker, whose tests share a server; and all browser tests on one, from the start: two browsers
    at once would wait for each other."""
    for item in items:
        file, _, _ = item.nodeid.partition("::")
        item.add_marker(pytest.mark.xdist_group("browser" if "browser" in item.fixturenames else file))
    items.sort(key=lambda item: "browser" not in item.fixturenames)
