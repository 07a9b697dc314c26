"""Tests of pages without a browser."""

from functools import cache

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import local_script_runner

from pages.parts import direct
from pages.parts.state import widgets


@pytest.fixture(autouse=True, scope="session")
def nothing_is_lost():
    """Without a browser no message is, however soon a run follows upon another; and runs are as quick as the app's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(widgets, "LANDS", 0)
        direct.quicken()
        yield


@pytest.fixture(autouse=True, scope="session")
def packages_are_read_once():
    """A server reads at its start which installed packages have components; a run without a server read all of them,
    which took longer than the page."""
    with pytest.MonkeyPatch.context() as patch:
        scan = cache(manifest_scanner.scan_component_manifests)
        patch.setattr(manifest_scanner, "scan_component_manifests", scan)
        yield


@pytest.fixture(autouse=True, scope="session")
def scripts_are_compiled_once():
    """A server compiles the script of a page once; a run without a server compiled it every time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_script_runner, "ScriptCache", cache(local_script_runner.ScriptCache))
        yield
