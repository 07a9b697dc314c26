"""Compare without a browser."""

import pytest

from pages.parts.state.scenario import configuration
from tests.pages.app import metrics, page, run, texts
from tests.pages.test_attention import row

OTHERS = {"with": "Qwen/Qwen2.5-72B,meta-llama/Llama-3.1-405B"}


def test_the_published_cache_sizes():
    """70.272, 327.680 and 516.096 KB a token: arXiv:2505.09343, table 1, which calls the second 4.66 times the
    first."""
    app = page("compare", model="deepseek-ai/DeepSeek-V3", **OTHERS)
    assert row(app, "KV cache per token") == [
        "KV cache per token",
        "68.62 KiB",
        "320.00 KiB :gray-badge[×4.66]",
        "504.00 KiB :gray-badge[×7.34]",
    ]


def test_a_row_for_each_gpu():
    app = page("compare", model="Qwen/Qwen3-8B", gpu="h100-sxm,l4", **OTHERS)
    assert row(app, "H100 SXM 80GB")[1].startswith(":green-badge[Fits]")
    assert row(app, "L4")[2].startswith(":red-badge[Does not fit] short by")


def test_a_copy_of_the_sliders_stays_when_they_move():
    app = page("compare", model="Qwen/Qwen3-8B", num_key_value_heads="32")
    run(app.button(key="add_current").click())
    assert app.query_params["with"] == "Qwen/Qwen3-8B:num_key_value_heads=32:weights=bf16:kv=bf16"
    run(app.select_slider(key="field_num_key_value_heads").set_value(8))
    assert row(app, "KV cache, total") == ["KV cache, total", "1.12 GiB", "4.50 GiB :gray-badge[×4]"]
    run(app.button(key="remove_B").click())
    assert "with" not in app.query_params
    assert row(app, "KV cache, total") == ["KV cache, total", "1.12 GiB"]


def test_a_model_is_added_by_one_click():
    app = page("compare", model="Qwen/Qwen2.5-3B")
    run(app.button(key="add_deepseek-ai/DeepSeek-V3").click())
    assert dict(app.query_params) == {"model": "Qwen/Qwen2.5-3B", "with": "deepseek-ai/DeepSeek-V3"}
    run(app.selectbox(key="add_model").select("openai-community/gpt2"))
    assert app.query_params["with"] == "deepseek-ai/DeepSeek-V3,openai-community/gpt2"
    assert row(app, "Parameters") == [
        "Parameters",
        "3.09 B",
        "671.03 B :gray-badge[×217]",
        "124.44 M :gray-badge[÷24.8]",
    ]


def test_fields_that_differ_come_first():
    app = page("compare", model="Qwen/Qwen3-8B", **{"with": "Qwen/Qwen3-8B:num_key_value_heads=4"})
    tables = [text.splitlines() for text in texts(app.markdown) if text.startswith("| Field")]
    assert tables[0][2:] == ["| `num_key_value_heads` | 8 | **4** |"]
    assert "| `hidden_size` | 4,096 | 4,096 |" in tables[1]


def test_one_that_does_not_go_leaves_the_others():
    app = page("compare", model="Qwen/Qwen3-8B", **{"with": "Qwen/Qwen3-8B:num_key_value_heads=7,Qwen/Qwen2.5-3B"})
    assert "does not divide" in app.error[0].value
    assert row(app, "Parameters")[1:] == ["8.19 B", "–", "3.09 B :gray-badge[−62.3%]"]


@pytest.mark.parametrize("wrong", ["no model", "Qwen/Qwen3-8B:frobnicate=1", "Qwen/Qwen3-8B:kv=fp3", "gpt2," * 6])
def test_what_the_link_says_wrong_is_said(wrong):
    app = page("compare", model="Qwen/Qwen3-8B", **{"with": wrong})
    assert "which is left out" in app.warning[0].value


@pytest.mark.parametrize(
    "text",
    ["Qwen/Qwen3-8B", "Qwen/Qwen3-8B:num_key_value_heads=4:weights=fp8:kv=fp8", "org/own:revision=v1:assume=llama"],
)
def test_a_configuration_is_written_as_it_was_read(text):
    assert configuration(text).written == text


def test_memory_is_compared_on_one_gpu_that_is_named():
    """The smallest of those chosen on which all fit; each figure is what Weigh says of that GPU."""
    app = page("compare", model="Qwen/Qwen3-8B", gpu="l4,h100-sxm,v100-sxm2-16gb", **{"with": "Qwen/Qwen3-14B"})
    figures = row(app, "Memory per GPU, H100 SXM 80GB")[1:]
    for name, figure in zip(("Qwen/Qwen3-8B", "Qwen/Qwen3-14B"), figures, strict=True):
        assert figure.split(" :")[0] == metrics(page(model=name, gpu="h100-sxm"))["Memory per GPU"]
