"""What a release builds: the same commit gives the same wheel wherever and whenever it is built, in few bytes, and from
the archive of the source too; from what is locked by hash, by actions of stated commits, on a base image of a stated
digest."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from hashlib import sha256

import pytest
import yaml

from tests import ROOT

BUILD = "import setuptools.build_meta as b, sys; print(getattr(b, sys.argv[1])(sys.argv[2]))"
MOST_BYTES = 4_000_000


def copied(folder):
    """A clone as it is here, with times of its own."""
    listing = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    return folder


def built(what, source, target):
    """The wheel or the archive of the source."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1800000000"}
    words = [sys.executable, "-W", "ignore", "-c", BUILD, what, str(target)]
    done = subprocess.run(words, cwd=source, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built("build_wheel", copied(tmp_path_factory.mktemp("clone")), tmp_path_factory.mktemp("dist"))


@pytest.mark.slow
def test_the_same_commit_gives_the_same_wheel(wheel, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    again = built("build_wheel", copied(tmp_path / "elsewhere"), tmp_path)
    assert sha256(again.read_bytes()).digest() == sha256(wheel.read_bytes()).digest()


@pytest.mark.slow
def test_the_wheel_is_small(wheel):
    assert wheel.stat().st_size < MOST_BYTES


@pytest.mark.slow
def test_the_archive_of_the_source_gives_the_same_wheel(wheel, tmp_path):
    (tmp_path / "clone").mkdir()
    archive = built("build_sdist", copied(tmp_path / "clone"), tmp_path)
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    again = built("build_wheel", tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path)
    assert sha256(again.read_bytes()).digest() == sha256(wheel.read_bytes()).digest()


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt", "requirements-release.txt"])
def test_whatever_is_installed_has_a_hash(name):
    entries = re.split(r"\n(?=\S)", (ROOT / name).read_text())
    packages = [entry for entry in entries if not entry.startswith("#")]
    assert packages
    assert [entry for entry in packages if "==" not in entry or "--hash=sha256:" not in entry] == []


@pytest.mark.parametrize("file", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda file: file.stem)
def test_actions_are_those_of_a_commit(file):
    """A tag or a branch is whatever its owner makes of it."""
    used = re.findall(r"uses: (\S+)", file.read_text())
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)] == []


def test_the_version_is_in_the_changelog():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(), re.M)


@pytest.mark.parametrize("digest", [f"sha256:{'0' * 64}", ""])
def test_a_release_is_built_on_the_digest_of_its_base(tmp_path, digest):
    """The step of the workflow, before a registry that says which digest the tag has, or none."""
    (tag,) = re.findall(r"^ARG BASE=(python:3\.11\.\d+-slim-\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    steps = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]["image"]["steps"]
    names = [step.get("name", step.get("id")) for step in steps]
    base, image = names.index("The base image by its digest"), names.index("image")
    assert base < image
    assert steps[image]["with"]["build-args"] == "BASE=${{ env.BASE }}"
    docker = tmp_path / "docker"
    docker.write_text(
        f'#!/bin/sh\n[ "$*" = "buildx imagetools inspect {tag} --format {{{{.Manifest.Digest}}}}" ] && echo {digest}\n'
    )
    docker.chmod(0o755)
    told = tmp_path / "env"
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_ENV": str(told)}
    words = ["bash", "-eo", "pipefail", "-c", steps[base]["run"]]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode == 0) == bool(digest)
    assert not digest or told.read_text() == f"BASE={tag}@{digest}\n"
