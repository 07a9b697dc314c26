"""python -m calc, as other programs rely on it."""

import io
import json
from contextlib import redirect_stderr, redirect_stdout

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli import main
from cli.command import parser
from presets import models


def run(capsys, *argv):
    try:
        status = main(argv)
    except SystemExit as stop:
        status = stop.code
    out = capsys.readouterr()
    return status, out.out, out.err


@pytest.mark.parametrize("name", ["a/.", "a/b.git", "a--b/c", "模型/名"])
def test_what_the_hub_could_not_call_a_model(capsys, name):
    status, out, err = run(capsys, name)
    assert (status, out) == (2, "")
    assert f"“{name}” is neither a preset nor a file" in err


def test_a_file_that_begins_with_a_byte_order_mark(capsys, tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama"}', encoding="utf-8-sig")
    status, _, err = run(capsys, str(path))
    assert (status, err) == (0, "")


def test_json_keeps_the_contract(capsys):
    status, out, err = run(capsys, "Qwen/Qwen2.5-3B", "--json")
    report = json.loads(out)
    assert (status, err) == (0, "")
    assert report["model"] == "Qwen/Qwen2.5-3B"
    assert report["parameters"] == {
        "total": 3_085_938_688,
        "active": 3_085_938_688,
        "components": {
            "embedding": 311_164_928,
            "attention": 339_830_784,
            "mlp": 2_434_793_472,
            "norms": 149_504,
        },
        "not_in_total": {"persistent_buffers": 0, "multi_token_prediction": 0, "vision": 0},
    }
    assert report["kv_cache"] == {
        "bytes_per_token": 36_864,
        "window_bytes": 0,
        "state_bytes": 0,
        "total": 301_989_888,
    }
    memory = report["memory"]
    assert memory["weights"] == 6_171_877_376
    assert memory["kv_cache"] == 301_989_888
    assert set(memory) == {
        "weights",
        "kv_cache",
        "activations",
        "overhead",
        "overhead_low",
        "overhead_high",
        "total",
    }
    verdict = report["verdicts"][0]
    assert {"gpu", "gpus", "verdict", "required", "usable", "spare", "max_context", "max_batch", "min_gpus"} < set(
        verdict
    )
    assert (verdict["gpu"], verdict["notes"]) == ("v100-sxm2-16gb", ["no native bf16: run fp16"])
    assert all(isinstance(sentence, str) for sentence in report["assumptions"])


def test_overrides(capsys):
    status, out, _ = run(capsys, "Qwen/Qwen2.5-3B", "--set", "num_key_value_heads=4", "--json")
    assert status == 0
    assert json.loads(out)["kv_cache"]["bytes_per_token"] == 2 * 36_864


def test_a_preset_however_its_letters_are_cased(capsys):
    small, exact = (run(capsys, name, "--json") for name in ("qwen/qwen2.5-3b", "Qwen/Qwen2.5-3B"))
    assert small == exact


def test_file_and_standard_input(capsys, tmp_path, monkeypatch):
    text = json.dumps(models()["openai-community/gpt2"].config)
    path = tmp_path / "config.json"
    path.write_text(text)
    assert json.loads(run(capsys, str(path), "--json")[1])["parameters"]["total"] == 124_439_808
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert json.loads(run(capsys, "-", "--json")[1])["parameters"]["total"] == 124_439_808


def test_readable_table(capsys):
    status, out, _ = run(capsys, "deepseek-ai/DeepSeek-V3", "--gpu", "h100-sxm", "--tp", "8", "--pp", "2")
    assert status == 0
    assert "671,026,404,352" in out
    assert "h100-sxm" in out
    assert "v100" not in out


def test_so_many_gpus_in_the_layout_that_does_best(capsys):
    """With TP 8 every GPU holds the whole latent cache, and 64 users have no room."""
    asked = ["deepseek-ai/DeepSeek-V3", "--gpu", "h200-sxm", "--batch", "64", "--context", "32768"]
    found = json.loads(run(capsys, *asked, "--num-gpus", "8", "--json")[1])
    by_hand = json.loads(run(capsys, *asked, "--dp", "8", "--ep", "8", "--json")[1])
    assert found == by_hand
    assert found["verdicts"][0]["verdict"] == "fits"
    assert "8 of each, DP 8 + EP 8" in run(capsys, *asked, "--num-gpus", "8")[1]


def test_a_gpu_of_your_own(capsys):
    own = "My card:48GiB:960GB/s:fp16=100"
    (verdict,) = json.loads(run(capsys, "Qwen/Qwen2.5-3B", "--gpu", own, "--json")[1])["verdicts"]
    assert (verdict["gpu"], verdict["verdict"], verdict["notes"]) == (own, "fits", ["no native bf16: run fp16"])


@pytest.mark.parametrize(
    "argv",
    [
        ("nobody/nothing",),
        ("Qwen/Qwen2.5-3B", "--frobnicate"),
        ("Qwen/Qwen2.5-3B", "--gpu", "h900"),
        ("Qwen/Qwen2.5-3B", "--weights", "fp3"),
        ("Qwen/Qwen2.5-3B", "--batch", "0"),
        ("Qwen/Qwen2.5-3B", "--batch", "many"),
        ("Qwen/Qwen2.5-3B", "--context", "-5"),
        ("Qwen/Qwen2.5-3B", "--tp", "3"),
        ("Qwen/Qwen2.5-3B", "--pp", "1000"),
        ("Qwen/Qwen2.5-3B", "--num-gpus", "0"),
        ("Qwen/Qwen2.5-3B", "--num-gpus", "37"),
        ("Qwen/Qwen2.5-3B", "--num-gpus", "2", "--train"),
        ("Qwen/Qwen2.5-3B", "--num-gpus", "2", "--tp", "4"),
        ("Qwen/Qwen2.5-3B", "--set", "num_kv_heads=4"),
        ("Qwen/Qwen2.5-3B", "--set", "num_key_value_heads"),
        ("Qwen/Qwen2.5-3B", "--set", "num_key_value_heads=3"),
        ("Qwen/Qwen2.5-3B", "--set", "model_type=llama"),
        ("Qwen/Qwen2.5-3B", "--bat", "3"),
        ("Qwen/Qwen2.5-3B", "--batch", "9" * 5000),
        ("Qwen/Qwen2.5-3B", "--engine", "x" * 5000),
        ("Qwen/Qwen2.5-3B", "--engine-version", "²"),
        ("Qwen/Qwen2.5-3B", "--gpu", "x" * 5000),
        ("x" * 5000,),
        ("\udcff",),
        (".",),
        (),
    ],
)
def test_errors_are_one_sentence(capsys, argv):
    is_one_sentence(*run(capsys, *argv))


def is_one_sentence(status, out, err):
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert err.endswith(".\n")
    assert len(err) < 700


@pytest.mark.parametrize("data", [b"\xff\xfe{", b"", b"[" * 10**6, b'{"model_type": "\\ud800"}', b" " * 2_000_000])
def test_files_that_are_no_config(capsys, tmp_path, monkeypatch, data):
    path = tmp_path / "config.json"
    path.write_bytes(data)
    is_one_sentence(*run(capsys, str(path)))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
    is_one_sentence(*run(capsys, "-"))


def test_whole_numbers_with_a_point(capsys, monkeypatch):
    """As some programs write them."""
    text = json.dumps(dict(models()["Qwen/Qwen2.5-3B"].config) | {"hidden_size": 2048.0})
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    status, out, _ = run(capsys, "-", "--json")
    assert (status, json.loads(out)["parameters"]["total"]) == (0, 3_085_938_688)


def test_nothing_that_is_echoed_steers_the_terminal(capsys):
    status, out, err = run(capsys, "\x1b[31mred\x1b]0;title\x07")
    assert status == 2
    assert "\x1b" not in out + err
    assert "\\x1b[31mred" in err


def test_a_standard_input_that_is_closed(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    is_one_sentence(*run(capsys, "-"))


VALUES = (
    "",
    "0",
    "1",
    "2",
    "3",
    "-1",
    "1024",
    "4097",
    "99999999999",
    "0.5",
    "nan",
    "bf16",
    "full",
    "llama",
    "a=1",
    "²",
)
NO_OTHER = {"-h", "--help"}  # prints and ends
OPTIONS = [
    action for action in parser()._actions if action.option_strings and not NO_OTHER & set(action.option_strings)
]
OPTION = st.sampled_from(OPTIONS).flatmap(
    lambda action: st.tuples(
        st.just(action.option_strings[0]),
        *([st.sampled_from([*VALUES, *map(str, action.choices or ())])] if action.nargs != 0 else []),
    )
)


@pytest.mark.slow
@pytest.mark.drawn
@given(st.sampled_from(list(models())), st.lists(OPTION, max_size=4))
def test_any_options_are_a_report_or_one_sentence(model, options):
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main([model, *(word for option in options for word in option)])
        except SystemExit as stop:
            status = stop.code
    if status == 0:
        assert out.getvalue()
        assert not err.getvalue()
    else:
        is_one_sentence(status, out.getvalue(), err.getvalue())


def test_an_unknown_family_as_llama(capsys, tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "nonesuch"}')
    assert run(capsys, str(path))[0] == 2
    status, out, _ = run(capsys, str(path), "--assume", "llama", "--json")
    report = json.loads(out)
    assert status == 0
    assert report["parameters"]["total"] == 6_738_415_616  # LlamaConfig's defaults are Llama-2-7B's sizes
    assert "read as a Llama-like decoder" in report["assumptions"][0]


def test_a_share_of_the_reader_s_own(capsys):
    """A decode step at batch 1 takes at least as long as the weights' bytes at the stated share of 3,350 GB/s."""
    asked = ("Qwen/Qwen3-8B", "--time", "--gpu", "h100-sxm", "--json")
    _, out, _ = run(capsys, *asked, "--share", "bandwidth=0.5/0.5/0.5")
    read = json.loads(out)["memory"]["weights"] - 2 * 151_936 * 4096  # the embedding is looked up
    step = json.loads(out)["time"]["decode"]["step_ms"]
    assert step["low"] > 1000 * read / (0.5 * 3.35e12)
    assert step["high"] < 1.25 * step["low"]  # what else has a range: host, attention


def test_a_share_of_the_reader_s_own_in_training(capsys):
    """A token takes at least six FLOPs for each weight, at the stated share of 989.5 TFLOPS."""
    asked = ("Qwen/Qwen3-8B", "--time", "--train", "--gpu", "h100-sxm", "--json")
    _, out, _ = run(capsys, *asked, "--share", "training_matmul=0.1/0.1/0.1")
    report = json.loads(out)
    weights = report["parameters"]["total"] - 151_936 * 4096  # the embedding is looked up
    assert report["time"]["tokens_per_s_per_gpu"]["high"] < 0.1 * 989.5e12 / (6 * weights)
    assert report["time"]["operations"][0]["bound"] == "compute"


@pytest.mark.parametrize(
    "argv",
    [
        ("Qwen/Qwen3-8B", "--share", "bandwidth=0.5/0.5/0.5"),
        ("Qwen/Qwen3-8B", "--time", "--train", "--share", "bandwidth=0.5/0.5/0.5"),
        ("Qwen/Qwen3-8B", "--time", "--share", "training_matmul=0.5/0.5/0.5"),
        ("Qwen/Qwen3-8B", "--train", "--share", "training_matmul=0.5/0.5/0.5"),
        ("Qwen/Qwen3-8B", "--time", "--share", "bandwidth=0.5"),
        ("Qwen/Qwen3-8B", "--time", "--share", "bandwidth=0.9/0.8/0.7"),
        ("Qwen/Qwen3-8B", "--time", "--share", "speed=0.7/0.8/0.9"),
    ],
)
def test_a_share_that_makes_no_sense(capsys, argv):
    is_one_sentence(*run(capsys, *argv))
