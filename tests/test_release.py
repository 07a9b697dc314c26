"""What a release builds: the same commit gives the same wheel wherever and whenever it is built, in few bytes, and from
the archive of the source too."""

import os
import subprocess
import sys
import tarfile
from hashlib import sha256

import pytest

from tests import ROOT

pytestmark = pytest.mark.slow
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


def test_the_same_commit_gives_the_same_wheel(wheel, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    again = built("build_wheel", copied(tmp_path / "elsewhere"), tmp_path)
    assert sha256(again.read_bytes()).digest() == sha256(wheel.read_bytes()).digest()


def test_the_wheel_is_small(wheel):
    assert wheel.stat().st_size < MOST_BYTES


def test_the_archive_of_the_source_gives_the_same_wheel(wheel, tmp_path):
    (tmp_path / "clone").mkdir()
    archive = built("build_sdist", copied(tmp_path / "clone"), tmp_path)
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    again = built("build_wheel", tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path)
    assert sha256(again.read_bytes()).digest() == sha256(wheel.read_bytes()).digest()
