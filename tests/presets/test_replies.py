"""Answers of the Hub that replicas share: processes that ask at the same time ask the Hub once."""

import json
import os
import subprocess
import sys

import pytest

from presets import hub, replies
from tests import ROOT
from tests.hub_server import COMMIT, TOKEN
from tests.hub_server import hub as running
from tests.presets.test_hub import point_at

CONFIG = {"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 2}
ASK = "import sys; from presets.hub import fetch; print(fetch(sys.argv[1]).config['hidden_size'])"


@pytest.fixture
def server(monkeypatch, tmp_path):
    repositories = {name: {"config.json": json.dumps(CONFIG).encode()} for name in ("org/slow", "org/model")}
    with running(repositories) as server:
        point_at(monkeypatch, server.endpoint)
        monkeypatch.setattr(hub.constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        monkeypatch.setenv(replies.FOLDER, str(tmp_path / "replies"))
        yield server


@pytest.mark.slow
def test_three_processes_ask_the_hub_once(server, tmp_path):
    environment = os.environ | {"HF_ENDPOINT": server.endpoint, "HF_HOME": str(tmp_path / "home")}
    words = {"cwd": ROOT, "env": environment, "stdout": subprocess.PIPE, "text": True}
    subprocess.run([sys.executable, "-c", ASK, "org/model"], check=True, **words)
    alone = len(server.tokens_seen)
    processes = [subprocess.Popen([sys.executable, "-c", ASK, "org/slow"], **words) for _ in range(3)]
    assert [process.communicate(timeout=100)[0] for process in processes] == 3 * ["1024\n"]
    assert len(server.tokens_seen) == 2 * alone


def test_an_answer_is_as_good_as_new_for_a_minute(server, monkeypatch):
    first = hub.fetch("org/model")
    assert first.revision == COMMIT
    requests = len(server.tokens_seen)
    assert hub.fetch("org/model") == first
    assert len(server.tokens_seen) == requests
    monkeypatch.setattr(replies, "FRESH", -1.0)
    assert hub.fetch("org/model") == first
    assert len(server.tokens_seen) > requests


def test_what_a_token_opens_is_not_shared(server, tmp_path):
    hub.fetch("org/model", token=TOKEN)
    assert not (tmp_path / "replies").exists()


def test_a_damaged_answer_is_asked_for_again(server, tmp_path):
    first = hub.fetch("org/model")
    (file,) = (tmp_path / "replies").glob("*.json")
    file.write_text("{", encoding="utf-8")
    assert hub.fetch("org/model") == first


def test_a_folder_that_can_not_be_written_shares_nothing(server, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv(replies.FOLDER, str(tmp_path / "file" / "below"))
    assert hub.fetch("org/model").config["hidden_size"] == 1024


def test_the_oldest_goes_where_there_is_no_more_room(tmp_path):
    client = tmp_path / "hf"
    (client / "models--a--b" / "blobs").mkdir(parents=True)
    (client / "models--a--b" / "blobs" / "x").write_bytes(bytes(600))
    for age, name in enumerate(("new.json", "old.json")):
        (tmp_path / name).write_bytes(bytes(300))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    (tmp_path / "abc.lock").touch()
    os.utime(client / "models--a--b", (1e9 - 9, 1e9 - 9))
    replies.trim(tmp_path, client, 1_000_000)
    assert (client / "models--a--b").exists()
    replies.trim(tmp_path, client, 700)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["abc.lock", "hf", "new.json", "old.json"]
    assert list(client.iterdir()) == []
    replies.trim(tmp_path, client, 400)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["abc.lock", "hf", "new.json"]


def test_files_elsewhere_stay(tmp_path):
    client, folder = tmp_path / "hf", tmp_path / "replies"
    (client / "models--a--b").mkdir(parents=True)
    folder.mkdir()
    replies.trim(folder, client, 0)
    assert (client / "models--a--b").exists()
