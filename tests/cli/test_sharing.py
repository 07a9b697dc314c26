"""`weighbridge fits MODEL --gpu ID --share-with MODEL`."""

import json

import pytest

from cli import main

CHAT = ["fits", "Qwen/Qwen3-8B", "--gpu", "rtx-4090", "--context", "4096"]


def test_lines_and_status(capsys):
    assert main([*CHAT, "--share-with", "BAAI/bge-m3,context=512"]) == 0
    chat, embedder, left = capsys.readouterr().out.splitlines()
    assert chat.startswith("Qwen/Qwen3-8B: fits --gpu-memory-utilization 0.")
    assert embedder.startswith("BAAI/bge-m3: fits --gpu-memory-utilization 0.")
    assert left.startswith("1 x rtx-4090: ")
    assert left.endswith(" of 23.64 GiB are left on each.")
    assert main([*CHAT, "--share-with", "Qwen/Qwen3-8B"]) == 1
    assert "does not fit. It needs" in capsys.readouterr().out


def test_servers_that_take_turns(capsys):
    assert main([*CHAT, "--share-with", "Qwen/Qwen3-4B", "--sleep-level", "1"]) == 0
    *servers, _, host = capsys.readouterr().out.splitlines()
    assert all(" asleep." in line for line in servers)
    assert host.endswith(" GiB of host memory.")


def test_json(capsys):
    assert (
        main([*CHAT, "--json", "--num-gpus", "2", "--share-with", "BAAI/bge-m3,context=512,batch=2,weights=fp8"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["gpu"], found["gpus"]) == ("rtx-4090", 2)
    assert [each["model"] for each in found["servers"]] == ["Qwen/Qwen3-8B", "BAAI/bge-m3"]
    assert found["left"] == found["usable"] - sum(each["taken"] for each in found["servers"])


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--share-with", "BAAI/bge-m3,contxt=5"], "is not context=N"),
        (["--share-with", "BAAI/bge-m3,context"], "is not context=N"),
        (["--share-with", "BAAI/bge-m3,context=many"], "must be a whole number"),
        (["--share-with", "BAAI/bge-m3,weights=fp7"], "is not context=N"),
        (["--share-with", "BAAI/bge-m3,context=0"], "context"),
        (["--share-with", ""], "neither a preset nor a file"),
        (["--share-with", "BAAI/bge-m3", "--gpu", "l4"], "one kind"),
        (["--share-with", "BAAI/bge-m3", "--train"], "not training steps"),
        (["--share-with", "BAAI/bge-m3", "--engine", "transformers"], "under vLLM"),
    ],
)
def test_bad_questions(capsys, more, sentence):
    assert main([*CHAT, *more]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert sentence in said.err
    assert len(said.err.splitlines()) == 1
