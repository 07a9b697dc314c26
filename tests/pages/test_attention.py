"""Attention without a browser."""

import pytest

from tests.pages.app import metrics, page, run, texts


def row(app, start):
    """The cells of a row of a table."""
    (line,) = (line for text in texts(app.markdown) for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("| ").split("|")]


def test_eight_of_32_kv_heads_save_75_per_cent():
    app = page("attention", model="Qwen/Qwen3-8B")
    assert row(app, "**GQA-8** (this model)")[:5] == [
        "**GQA-8** (this model)",
        "75%",
        "1.12 GiB",
        "144.00 KiB",
        "8.19 B",
    ]
    assert row(app, "MHA")[1:4] == ["–", "4.50 GiB", "576.00 KiB"]


def test_the_study_of_qwen3():
    """16 heads of 128 channels are not the hidden size of 1,024."""
    app = page("attention", model="Qwen/Qwen3-0.6B", batch="2", context="1024")
    assert row(app, "Scores QKᵀ") == ["Scores QKᵀ", "`[B, n_q, L, L]`", "`[2, 16, 1024, 1024]`"]
    assert any("16 heads × 128 = 2,048, not the hidden size of 1,024" in text for text in texts(app.caption))
    assert metrics(app)["Score matrix in 16 bits"] == "64.00 MiB"


def test_the_drawing_follows_the_sliders():
    app = page("attention", model="Qwen/Qwen3-8B")
    told = "32 query heads read 8 KV heads, 4 each: query heads 0 to 3 read KV head 0, and so on."
    assert told in texts(app.caption)
    run(app.select_slider(key="field_num_key_value_heads").set_value(1))
    assert "All 32 query heads read the one KV head." in texts(app.caption)
    run(app.select_slider(key="field_num_key_value_heads").set_value(32))
    assert "Each of the 32 query heads reads a KV head of its own." in texts(app.caption)


@pytest.mark.parametrize(
    ("model", "tabs"),
    [
        ("deepseek-ai/DeepSeek-V3", ["MLA"]),
        ("google/gemma-3-27b-it", ["GQA-16, window of 1,024", "GQA-16"]),
        ("Qwen/Qwen3.6-35B-A3B", ["Gated DeltaNet", "GQA-2"]),
        ("openai-community/gpt2", ["MHA"]),
        ("state-spaces/mamba-130m-hf", ["Mamba"]),
    ],
)
def test_each_kind_of_layer_has_a_tab(model, tabs):
    app = page("attention", model=model)
    assert [tab.label for tab in app.tabs] == tabs
    assert any("arxiv.org/abs/" in text for text in texts(app.markdown))


def test_a_workload_that_makes_no_sense_is_said():
    assert page("attention", model="Qwen/Qwen3-8B", context="1024", generated="4096").error


def test_flags_that_exclude_each_other_are_said():
    """SGLang's `enable_hierarchical_cache` extends the prefix cache that `disable_radix_cache` turns off."""
    link = {"engine": "sglang", "enable_hierarchical_cache": "true", "disable_radix_cache": "true"}
    app = page("attention", **link)
    assert any("disable_radix_cache turns off" in text for text in texts(app.error))
