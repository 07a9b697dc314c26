"""The app in a process of its own, and a real Chromium to look at it."""

import sys
from contextlib import AbstractContextManager

import pytest
from playwright.sync_api import expect

from pages.parts import direct
from pages.parts.state import widgets
from tests import ROOT
from tests.browser import running

expect.set_options(timeout=20_000)


def running_app(**environment: str) -> AbstractContextManager[str]:
    """The address of the app, run with these environment variables."""
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless=true", "--server.port={port}"]
    return running(command, ROOT, **environment)


@pytest.fixture(scope="session")
def address():
    with running_app() as where:
        yield where


@pytest.fixture(autouse=True, scope="session")
def nothing_is_lost():
    """Without a browser no message is, however soon a run follows upon another; and runs are as quick as the app's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(widgets, "LANDS", 0)
        direct.quicken()
        yield
