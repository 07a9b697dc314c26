"""My machine: the files of a model, what to type, and what runs on it."""

from types import SimpleNamespace

import pytest

from calc import Architecture
from calc.hardware.computer import Computer
from pages.parts.outputs import local as drawn
from pages.parts.state.local import LocalAnswer, candidates, mix_of, series
from pages.parts.state.query import MACHINE, WEIGH, decode, encode
from pages.parts.state.scenario import Scenario
from presets import models
from presets.hub import HubModel
from tests.pages.app import opened, page, rows, run, texts


@pytest.mark.parametrize(
    ("name", "mix", "exact"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M", True),
        ("Q8_0/Qwen3-8B-Q8_0-00001-of-00002.gguf", "Q8_0", True),
        ("qwen2.5-7b-instruct-q5_k_s.gguf", "Q5_K_S", True),
        ("Qwen3-30B-A3B-IQ3_XXS.gguf", "IQ3_XXS", True),
        ("Qwen3-30B-A3B-UD-Q4_K_XL.gguf", None, False),
        ("Qwen3-30B-A3B-UD-Q2_K.gguf", "Q2_K", False),
        ("gpt-oss-20b-MXFP4.gguf", "mxfp4", True),
        ("Qwen3-8B-BF16.gguf", "bf16", True),
        ("model.gguf", None, False),
    ],
)
def test_what_a_file_name_says(name, mix, exact):
    assert mix_of(name)[1:] == (mix, exact)


@pytest.mark.parametrize(
    ("name", "size", "tag", "mix", "exact"),
    [  # unsloth/Qwen3-30B-A3B-GGUF: bytes as the Hub lists them
        pytest.param("Qwen3-30B-A3B-Q4_K_M.gguf", 18_556_686_912, "Q4_K_M", "Q4_K_M", True, id="llama.cpp's"),
        pytest.param("Qwen3-30B-A3B-IQ4_NL.gguf", 17_310_782_016, "IQ4_NL", "IQ4_NL", True, id="importance matrix"),
        pytest.param("Qwen3-30B-A3B-IQ4_XS.gguf", 16_378_073_664, "IQ4_XS", "IQ4_XS", False, id="10 MB larger"),
        pytest.param("Qwen3-30B-A3B-Q4_K_M.gguf", 18_956_686_912, "Q4_K_M", "Q4_K_M", False, id="in name only"),
        pytest.param("Qwen3-30B-A3B-UD-IQ1_M.gguf", 9_666_859_584, "UD-IQ1_M", "IQ2_XXS", False, id="dynamic"),
    ],
)
def test_a_file_is_of_its_mix_by_its_size(name, size, tag, mix, exact):
    found = models()["Qwen/Qwen3-30B-A3B"]
    hub = HubModel(id="unsloth/Qwen3-30B-A3B-GGUF", revision="main", config=found.config, files={name: size})
    published = SimpleNamespace(hub=hub)
    architecture = Architecture.from_config(found.config)
    answer = LocalAnswer(Scenario(), SimpleNamespace(published=published, architecture=architecture), None)
    (row,) = answer.of_repository()
    assert (row.tag, row.run.file.weights, row.is_exact) == (tag, mix, exact)


def test_parts_of_a_file_are_one_and_a_projector_is_none():
    files = {"a-00001-of-00002.gguf": 5, "a-00002-of-00002.gguf": 7, "b.gguf": 3, "mmproj-F16.gguf": 2, "c.bin": 1}
    assert dict(series(files)) == {"a-00001-of-00002.gguf": 12, "b.gguf": 3}


def test_a_larger_machine_has_larger_candidates():
    small, large = candidates(Computer(ram_gib=16), 5), candidates(Computer(ram_gib=512), 5)
    assert len(small) == len(large) == 5
    assert small != large


def test_the_machine_is_in_the_link():
    machine = Computer(my_gpus=("rtx-3090", "rtx-3060-12gb"), ram_gib=64, system_gib=6)
    scenario = Scenario(machine=machine)
    params = encode(scenario, MACHINE)
    assert params == {"my_gpus": "rtx-3090,rtx-3060-12gb", "ram_gib": "64", "system_gib": "6"}
    assert decode(params, MACHINE, Scenario(), lambda source: {})[0].machine == machine
    assert encode(scenario, WEIGH) == {}
    without = Scenario(machine=Computer(my_gpus=()))
    assert decode(encode(without, MACHINE), MACHINE, Scenario(), lambda source: {})[0].machine.my_gpus == ()


@pytest.mark.slow
def test_a_30b_a3b_on_a_12_gb_card(monkeypatch):
    """Which file, where it lies, what to type; a click on a row of presets opens its files."""
    monkeypatch.setattr(drawn, "FEW", 2)
    monkeypatch.setattr(drawn, "HEAT_CONTEXTS", (4096, 16_384))
    app = opened(page("machine", model="Qwen/Qwen3-30B-A3B", context="16384"), "local_heat_drawer", "local_columns")
    assert ":orange[runs in Q4_K_M]" in app.title[0].value
    assert "Use Q4_K_M" in texts(app.markdown)[0]
    files = rows(app, "local_files")
    (usual,) = (row for row in files if row["File"] == "Q4_K_M")
    assert usual["Placement"].startswith("experts of")
    assert usual["On GPUs, GiB"] < 12
    assert usual["On the host, GiB"] < 28
    sizes = [row["Size, GiB"] for row in files]
    assert sizes == sorted(sizes, reverse=True)
    command = texts(app.code)[0]
    assert "--n-cpu-moe" in command
    assert "--ctx-size 16384" in command
    app.session_state.scenario = app.session_state.scenario.model_copy(update={"machine": Computer(my_gpus=())})
    app.session_state.touched = True
    run(app)
    assert "all on the host" in texts(app.markdown)[0]


@pytest.mark.slow
def test_on_a_mac_mlx_is_offered_too(monkeypatch):
    """The largest format that fits, with its commands; nothing of it on another machine."""
    monkeypatch.setattr(drawn, "FEW", 1)
    mac = run(page("machine", model="Qwen/Qwen3-8B", my_gpus="apple-m3-pro"))
    assert any("Use mlx-community/Qwen3-8B-8bit" in text for text in texts(mac.markdown))
    assert "mlx_lm.server \\\n  --model mlx-community/Qwen3-8B-8bit" in texts(mac.code)
    other = run(page("machine", model="Qwen/Qwen3-8B", my_gpus="rtx-4090"))
    assert not any("mlx" in text for text in texts(other.code))


def test_learned_positions_are_all_that_a_sequence_has():
    """GPT-2 has a row for each of 1,024 tokens (its config.json, n_positions): as on Weigh they are the length where
    nobody asked for one, and no more can be asked for."""
    link = {"model": "openai-community/gpt2", "my_gpus": "rtx-4090"}
    usual, asked = page("machine", **link), page("machine", context="1024", **link)
    assert any("at 1,024 tokens of context" in text for text in texts(usual.caption))
    assert rows(usual, "local_files") == rows(asked, "local_files")
    refused = page("machine", context="2048", **link)
    assert any("learned positions for 1,024 tokens" in text for text in texts(refused.error))


@pytest.mark.parametrize("card", ["br100", "tpu-v4"])
def test_a_card_on_which_llama_cpp_does_not_run_is_refused_as_on_weigh(card):
    """docs/build.md of llama.cpp names no backend for Biren's cards, nor for TPUs."""
    refused = texts(page("machine", model="Qwen/Qwen3-8B", my_gpus=card).error)
    (verdict,) = texts(page(model="Qwen/Qwen3-8B", engine="llamacpp", weights="Q4_K_M", gpu=card).error)
    assert f"{verdict}." in refused
