"""`weighbridge log`: the exit status says whether a server started and whether ours agrees."""

import io
import json

import pytest

from cli import main
from presets import named_preset
from tests import EXAMPLES
from tests.calc.verify.test_logs import DIED, LOGS

LLAMA = ["--model", "meta-llama/Llama-3.1-8B"]
STARTED = (EXAMPLES / "startup.log").read_text(encoding="utf-8")


def logged(monkeypatch, text, *argv):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    return main(["log", "-", *argv])


def test_a_log_that_agrees(monkeypatch, capsys):
    """github.com/vllm-project/vllm/issues/10517: 14.9888 GiB of weights, 31,232 tokens"""
    assert logged(monkeypatch, STARTED, *LLAMA) == 0
    out = capsys.readouterr().out
    assert "14.99 GiB" in out
    assert "31,232" in out
    assert "Every figure that the log states agrees." in out


def test_a_log_of_another_model_differs(monkeypatch, capsys):
    assert logged(monkeypatch, STARTED, "--model", "Qwen/Qwen3-8B") == 3
    assert "The weights differ by" in capsys.readouterr().out


def test_a_log_of_a_server_that_died_says_why_and_the_flag_that_mends_it(monkeypatch, capsys):
    """github.com/vllm-project/recipes/pull/551"""
    assert logged(monkeypatch, LOGS["vllm-state-blocks"], "--model", "Qwen/Qwen3.6-27B") == 1
    out = capsys.readouterr().out
    assert "`max_num_seqs` is 1,024, and 856 blocks are left for recurrent states" in out
    assert "  --max-num-seqs 856\n" in out


@pytest.mark.parametrize("name", DIED)
def test_no_log_that_states_a_refusal_ends_well(monkeypatch, name):
    assert logged(monkeypatch, LOGS[name], "--model", "Qwen/Qwen3-0.6B") == 1


def test_the_same_as_json(tmp_path, capsys):
    file = tmp_path / "vllm.log"
    file.write_text(LOGS["vllm-state-blocks"], encoding="utf-8")
    assert main(["log", str(file), "--model", "qwen/qwen3.6-27b", "--json"]) == 1
    whole = json.loads(capsys.readouterr().out)
    assert (whole["status"], whole["model"], whole["changes"]) == (1, "Qwen/Qwen3.6-27B", ["--max-num-seqs 856"])
    assert whole["log"]["refusal"] == "state-blocks"
    assert whole["reason"].startswith("The server did not start")


def test_the_model_is_the_preset_that_the_log_names(monkeypatch, capsys):
    text = "LLM engine (v0.25.0) with config: model='/models/qwen3-0.6b/', max_seq_len=4096, \n"
    assert logged(monkeypatch, f"{text}Model loading took 1.12 GiB memory") == 0  # 596,049,920 weights, 2 bytes each
    assert capsys.readouterr().out.startswith("Qwen/Qwen3-0.6B")


@pytest.mark.parametrize(
    ("named", "preset"),
    [
        ("qwen/QWEN3-8b", "Qwen/Qwen3-8B"),
        ("/models/Qwen3-8B/", "Qwen/Qwen3-8B"),  # the study of that name has no checkpoint that a server could load
        ("/models/qwen3-0.6b", "Qwen/Qwen3-0.6B"),
        ("study/Qwen3-8B", "study/Qwen3-8B"),
        ("/m/mine", None),
        ("", None),
    ],
)
def test_a_folder_is_the_checkpoint_of_its_name(named, preset):
    assert named_preset(named) == preset


def test_buffers_of_llama_cpp(monkeypatch, capsys):
    text = "load_tensors:        CUDA0 model buffer size =  1000.00 MiB\n"
    assert logged(monkeypatch, text, "--model", "Qwen/Qwen3-8B") == 3
    assert "model on gpu0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "argv", "says"),
    [
        pytest.param("Nothing of an engine.", LLAMA, "No line of a vLLM or SGLang start-up log", id="no-log"),
        pytest.param("", LLAMA, "No line of a vLLM or SGLang start-up log", id="nothing"),
        pytest.param(STARTED, [], "The log does not name its model", id="no-model"),
        pytest.param(
            "LLM engine (v0.25.0) with config: model='/m/mine', \nModel loading took 1.12 GiB memory",
            [],
            "The log is of “/m/mine”, which is not a preset",
            id="no-preset",
        ),
        pytest.param(STARTED, ["--model", "no such model"], "neither a preset nor a file", id="unknown-model"),
        pytest.param("x" * 1_000_001, LLAMA, "The text is 1,000,001 characters long", id="too-long"),
    ],
)
def test_what_is_no_log_is_a_sentence(monkeypatch, capsys, text, argv, says):
    assert logged(monkeypatch, text, *argv) == 2
    out = capsys.readouterr()
    assert says in out.err
    assert out.out == ""


def test_a_file_that_is_not_there_is_a_sentence(capsys):
    assert main(["log", "no/such.log"]) == 2
    assert "can't be read" in capsys.readouterr().err
