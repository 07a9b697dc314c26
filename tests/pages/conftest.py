"""Tests of pages without a browser."""

import pytest

from pages.parts import direct
from pages.parts.state import widgets


@pytest.fixture(autouse=True, scope="session")
def nothing_is_lost():
    """Without a browser no message is, however soon a run follows upon another; and runs are as quick as the app's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(widgets, "LANDS", 0)
        direct.quicken()
        yield
