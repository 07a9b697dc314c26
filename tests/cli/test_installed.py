"""The installed package: `pip install .` gives the command `weighbridge` and the name `weighbridge.calc`."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from huggingface_hub.cli.extensions import ExtensionManifest

from tests import ROOT
from tests.browser import chromium, running
from tests.pages.every_page import faults

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the package is installed."""
    folder, clone = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("clone")
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in files.stdout.splitlines():
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            (clone / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", folder, clone], check=True)
    return folder


@pytest.fixture(scope="module")
def installed(folder):
    """A run of Python that sees nothing else of the project."""

    def run(*words):
        return subprocess.run(
            [sys.executable, *words], cwd=folder, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True
        )

    return run


@pytest.mark.parametrize(
    ("words", "text"),
    [
        pytest.param(["bin/weighbridge", "--help"], "Without a command: the dashboard", marks=pytest.mark.sweep),
        (["bin/weighbridge", "Qwen/Qwen2.5-3B"], "3,085,938,688"),
        pytest.param(["bin/weighbridge", "report", "Qwen/Qwen2.5-3B"], "3,085,938,688", marks=pytest.mark.sweep),
        pytest.param(
            ["bin/weighbridge", "plan", "Qwen/Qwen2.5-3B", "--users", "4"], "rtx-4090", marks=pytest.mark.sweep
        ),
        (["-m", "weighbridge.calc", "Qwen/Qwen2.5-3B"], "3,085,938,688"),
    ],
    ids=["help", "model", "report", "plan", "module"],
)
def test_what_is_installed(installed, words, text):
    done = installed(*words)
    assert done.stderr == ""
    assert text in done.stdout


def test_hf_takes_it_as_an_extension(folder, tmp_path):
    """`hf weighbridge MODEL` behind what `hf extensions install` leaves: it runs the console script of this name."""
    place = tmp_path / ".local" / "share" / "hf" / "extensions" / "hf-weighbridge"
    named = {"owner": "weighbridge", "repo": "hf-weighbridge", "short_name": "weighbridge", "type": "python"}
    script = str(folder / "bin" / "hf-weighbridge")
    named |= {"repo_id": "weighbridge/hf-weighbridge", "executable_path": script, "installed_at": datetime.now(UTC)}
    ExtensionManifest(**named).save(place)
    env = {"PYTHONPATH": str(folder), "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    command = [Path(sys.executable).with_name("hf"), "weighbridge", "Qwen/Qwen2.5-3B"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert "3,085,938,688" in done.stdout, done.stderr


def test_no_name_of_a_clone_is_left(installed):
    used = "weighbridge.cli.dashboard, weighbridge.pages.parts.words, sys"
    done = installed(
        "-c", f"from weighbridge.calc import report; import {used}; print(report.__module__, *sys.modules)"
    )
    assert done.stderr == ""
    first, *modules = done.stdout.split()
    assert first == "weighbridge.calc.serving.report"
    assert not {"calc", "cli", "pages", "presets"} & set(modules)


WITHOUT = "import sys; sys.modules.update(dict.fromkeys(['streamlit', 'plotly', 'pandas', 'starlette', 'uvloop']))"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("Qwen/Qwen2.5-3B", marks=pytest.mark.sweep),
        "plan Qwen/Qwen2.5-3B",
        pytest.param("fits Qwen/Qwen2.5-3B --gpu h100-sxm", marks=pytest.mark.sweep),
    ],
)
def test_the_command_line_needs_no_dashboard(installed, words):
    """`pip install weighbridge` without the extra of the dashboard."""
    done = installed("-c", f"{WITHOUT}; from weighbridge.cli.dashboard import main; sys.exit(main({words.split()}))")
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_dashboard_that_is_not_installed_is_named(installed):
    find = "import importlib.util as u; u.find_spec = lambda name: None"
    done = installed("-c", f"{find}; import sys; from weighbridge.cli.dashboard import main; sys.exit(main([]))")
    assert (done.stderr.strip(), done.returncode) == (
        "The dashboard is not installed: pip install 'weighbridge[app]' adds it.",
        2,
    )


def test_the_command_is_named(installed):
    done = installed("-c", "from importlib.metadata import entry_points as e; print(*e(name='weighbridge'))")
    assert "weighbridge.cli.dashboard:main" in done.stdout


@pytest.mark.sweep
def test_every_page_of_the_dashboard_opens(folder):
    """As .ci/docker-steps sees those of the image."""
    command = [sys.executable, "bin/weighbridge", "--headless", "--port={port}"]
    with running(command, folder, PYTHONPATH=str(folder)) as address, chromium() as browser:
        page = browser.new_page()
        page.set_default_timeout(60_000)
        assert list(faults(page, address)) == []
