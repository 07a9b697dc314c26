"""Verify without a browser: an example of each kind of input, and the line that sums each up."""

import pytest

from calc.text import pack
from pages.parts import words
from presets import models
from tests import EXAMPLES
from tests.calc.verify.test_logs import DIED, LOGS
from tests.calc.verify.test_remedies import SGLANG
from tests.pages.app import components, newest, page, run, script, texts

INDEX = EXAMPLES / "model.safetensors.index.json"


def verify(choice, **query):
    return run(page("verify", **query).segmented_control(key="beside").set_value(choice))


def alerts(app):
    return texts([*app.success, *app.warning, *app.info, *app.error])


def tried(choice, file):
    return run(verify(choice).button(key=f"try_{file}").click())


@pytest.mark.parametrize(
    ("choice", "file", "summary"),
    [
        # 24 layers of 12 tensors, embedding and norm; the head that is printed too is the embedding's
        ("printed", "printed.txt", "All 290 tensors agree in name and shape."),
        ("file", "model.safetensors.index.json", "All 164 tensors agree in name."),  # 18 layers of 9
        ("log", "startup.log", "Every figure that the log states agrees."),
        ("log", "out_of_memory.log", "What differs most: **In use and asked for**."),
        ("measured", "measurement.json", "Of 30 sizes, "),
    ],
)
def test_an_example_of_each_kind_is_summed_up_in_one_line(choice, file, summary):
    app = tried(choice, file)
    first = alerts(app)[0]
    assert first.startswith(summary)
    assert not any("counted twice" in text for text in (*alerts(app), *texts(app.caption)))


def test_the_bytes_of_the_files_are_those_of_the_formats_that_the_config_states():
    """The index of gemma-2b counts a copy of the embedding as head too; in fp8 it would take less."""
    app = tried("file", "model.safetensors.index.json")
    assert any("it takes 5.64 GiB: +0.000%" in text for text in texts(app.caption))
    config = models()["google/gemma-2b"].config | {"quantization_config": {"quant_method": "fp8"}}
    app = verify("file", pasted=pack(config))
    run(app.file_uploader(key="table_file").set_value(("index.json", INDEX.read_bytes(), "application/json")))
    assert any("they are quantized otherwise" in text for text in alerts(app))


def test_an_out_of_memory_message_says_what_it_says():
    """github.com/vllm-project/vllm/issues/27508"""
    (stated,) = [text for text in texts(tried("log", "out_of_memory.log").caption) if text.startswith("Read from")]
    assert "PyTorch; in use 78.96 GiB; asked for 786.00 MiB; free 140.75 MiB" in stated


def test_what_differs_is_counted_in_the_first_line():
    app = verify("printed", model="Qwen/Qwen3-0.6B")
    run(app.text_area(key="printed").set_value("Model(\n  (embed_tokens): Embedding(151936, 896)\n)"))
    assert alerts(app)[0] == "310 tensors differ; 0 agree."


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        pytest.param(
            "en",
            "The server did not start: `max_num_seqs` is 1,024, and 856 blocks are left for recurrent states, of which "
            "each sequence takes one: short by 168.",
            id="en",
        ),
        pytest.param(
            "zh",
            "服务没有启动：`max_num_seqs` 为 1,024，而留给循环状态的块只有 856 个，每个序列占用一个：还差 168 个。",
            id="zh",
        ),
    ],
)
def test_a_log_of_a_server_that_died_says_what_was_short(monkeypatch, language, sentence):
    monkeypatch.setattr(words, "language", lambda: language)  # AppTest finds an option by its label, outside a session
    app = verify("log", model="Qwen/Qwen3.6-27B", lang=language)
    run(app.text_area(key="log").set_value(LOGS["vllm-state-blocks"]))
    assert texts(app.error) == [sentence]


@pytest.mark.parametrize("name", DIED)
def test_no_log_that_states_a_refusal_is_green(name):
    app = verify("log", model="Qwen/Qwen3-0.6B")
    run(app.text_area(key="log").set_value(LOGS[name]))
    assert len(app.error) == 1
    assert not app.success


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(LOGS["vllm-state-blocks"], {"max_num_seqs": "856"}, id="state-blocks"),
        pytest.param(LOGS["vllm-refuses"], {"context": "50512"}, id="length"),
        pytest.param(
            f"LLM engine (v0.28.0) with config: tensor_parallel_size=2, max_seq_len=4096, \n{LOGS['vllm-no-cache']}",
            {"tp": "2", "context": "4096"},
            id="as it ran",
        ),
        pytest.param(
            "LLM engine (v0.28.0) with config: speculative_config=SpeculativeConfig(method='mtp', model='m', "
            f"num_spec_tokens=2), max_seq_len=4096, \n{LOGS['vllm-no-cache']}",
            {"speculative": "mtp", "num_speculative_tokens": "2"},
            id="with what it guessed by",
        ),
        # 60 GiB and a request of Qwen3.6-27B, 0.5 of 8,192 tokens and about 1 of states, of the 78.00 that are free
        pytest.param(SGLANG, {"engine": "sglang", "mem_fraction_static": "0.79", "gpu": "a100-sxm-80gb"}, id="SGLang"),
    ],
)
def test_the_least_change_is_one_click_into_weigh(text, said):
    app = verify("log", model="Qwen/Qwen3.6-27B")
    run(app.text_area(key="log").set_value(text))
    run(app.button(key="remedy_0").click())
    assert said.items() <= dict(app.query_params).items()


TRACEBACK = """Traceback (most recent call last):
  File "/usr/lib/python3.12/site-packages/trl/trainer/grpo_trainer.py", line 10, in _compute_loss
    loss = ...
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.42 GiB. GPU 4 has a total capacity of 39.56 GiB of \
which 1.05 GiB is free."""


@pytest.mark.parametrize(
    ("language", "phase"),
    [
        pytest.param("en", "in the forward pass or the loss of the update", id="English"),
        pytest.param("zh", "更新的前向或损失计算中", id="Chinese"),
    ],
)
def test_a_trainer_s_traceback_says_its_phase(monkeypatch, language, phase):
    monkeypatch.setattr(words, "language", lambda: language)  # AppTest finds an option by its label, outside a session
    app = verify("log", model="Qwen/Qwen3-0.6B", lang=language)
    run(app.text_area(key="log").set_value(TRACEBACK))
    (error,) = texts(app.error)
    assert phase in error
    assert "1.42 GiB" in error
    assert not components(app, "weighbridge_rows")


def test_a_log_calibrates_and_is_gone_by_one_click():
    """0.35 GiB outside PyTorch: github.com/vllm-project/vllm/issues/10517"""
    app = tried("log", "startup.log")
    run(app.button(key="calibrate").click())
    line = ":material/tune: Overhead from a log of vLLM: Libraries, NCCL 0.35 GiB."
    assert line in texts(app.markdown)
    app.query_params.clear()  # as the navigation does
    weigh = run(app.switch_page(script("weigh")))
    assert line in texts(weigh.markdown)
    assert dict(weigh.query_params).items() >= {"libraries": "0.35-0.35", "overhead_log": "vLLM"}.items()
    run(weigh.button(key="remove_calibration").click())
    assert line not in texts(weigh.markdown)
    assert not {"libraries", "overhead_log"} & dict(weigh.query_params).keys()


def test_a_link_carries_what_a_log_calibrated_and_its_name_is_only_a_text():
    app = page(libraries="0.07-0.07", overhead_log="vLLM 0.25, [a](https://example.com)")
    (line,) = [text for text in texts(app.markdown) if "Overhead from a log of " in text]
    assert r"\[a\](" in line


def test_a_link_that_names_a_log_without_its_figures_says_nothing_of_it():
    """It was an exception."""
    assert not [text for text in texts(page(overhead_log="vLLM 0.25").markdown) if "Overhead from a log" in text]


def test_an_end_that_the_reader_moves_is_not_the_logs():
    app = page("weigh", "overhead_drawer", libraries="0.07-0.07", overhead_log="vLLM 0.25")
    run(newest(app.slider, "range_libraries").set_value((0.1, 0.2)))
    assert "overhead_log" not in app.query_params
