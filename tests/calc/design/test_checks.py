"""Checks of designs on models whose makers, or whose users, said what their sizes cost."""

import pytest

from calc import Architecture
from calc.design.checks import checks
from calc.design.standing import Proportions, percentile, proportions, quartiles
from calc.hardware.parallel import Layout
from presets import models


def said(name, layout=None, published=()):
    architecture = Architecture.from_config(models()[name].config)
    found = checks(architecture, layout or Layout(), published, proportions(name, architecture))
    return {str(check.what): check.good for check in found}


@pytest.mark.parametrize(
    ("name", "tp", "sentence", "good"),
    [
        pytest.param("Qwen/Qwen3-8B", 1, "Every side of every matrix is a multiple of 64.", True, id="cores"),
        pytest.param(
            "openai/gpt-oss-20b",
            2,
            "Sides that are not a multiple of 64: `down_proj 1,440 × 2,880`.",
            False,
            id="shards",
        ),
        pytest.param(  # DeepSeek-V3 section 2.1.1: 512 of the latent and 64 of the rotary key
            "deepseek-ai/DeepSeek-V3",
            1,
            "Blocks of 128 do not end with: `kv_a_proj_with_mqa 576 × 7,168`.",
            False,
            id="fp8-blocks",
        ),
        pytest.param(  # llama.cpp falls back to q5_0 for its 896 inputs, as its GGUF files show
            "Qwen/Qwen2.5-0.5B",
            1,
            "K-quants do not divide the inputs of: `q_proj 896 × 896`, `k_proj 128 × 896`, `v_proj 128 × 896`, "
            "`o_proj 896 × 896` ….",
            False,
            id="k-quants",
        ),
        pytest.param(  # nanoGPT's train.py: "defaults to 50304 for GPT-2 (50257 rounded up for efficiency)"
            "openai-community/gpt2",
            1,
            "The vocabulary of 50,257 is no multiple of 64: padded to 50,304 it has 36,096 parameters more.",
            False,
            id="vocabulary",
        ),
        pytest.param(
            "openai-community/gpt2", 1, "tp is 8, which does not divide the 12 attention heads.", False, id="ranks"
        ),
        pytest.param(
            "Qwen/Qwen2.5-3B",
            4,
            "TP 4 over 2 KV heads: 2 ranks hold a copy of each; the cache per GPU shrinks no further.",
            False,
            id="copies",
        ),
        pytest.param("deepseek-ai/DeepSeek-V3", 1, "256 experts divide over 8 GPUs.", True, id="experts"),
    ],
)
def test_what_is_said(name, tp, sentence, good):
    assert said(name, Layout(tp=tp))[sentence] is good


def test_what_costs_something_comes_first():
    found = list(said("openai-community/gpt2").values())
    assert found == sorted(found)


def test_every_check_of_every_preset_has_a_reason_and_an_address():
    for name, preset in models().items():
        architecture = Architecture.from_config(preset.config)
        for check in checks(architecture, Layout(tp=2), (), proportions(name, architecture)):
            assert str(check.why)
            assert check.source.startswith("https://")


def test_standing():
    llama = proportions("llama", Architecture.from_config(models()["meta-llama/Llama-3.1-8B"].config))
    assert (llama.hidden, llama.layers, llama.ffn, llama.gated) == (4096, 32, 3.5, True)  # its model card's config
    assert llama.aspect == 128
    v3 = proportions("v3", Architecture.from_config(models()["deepseek-ai/DeepSeek-V3"].config))
    assert v3.ffn == 18432 / 7168  # dense layers and nine experts of 2,048 are as wide
    assert 17 < v3.sparsity < 19  # 671 B and 37 B, its abstract
    assert percentile(2, [1, 2, 3]) == 0.5
    assert percentile(9, [1, 2, 3]) == 1
    assert quartiles([4, 1, 3, 2]) == (2, 4)
    alike = Proportions(name="a", parameters=1, active=1, hidden=64, layers=2, ffn=None, gated=False)
    assert "Hidden size over layers is 32: wider than 50% of 1 published models of this size." in said_of(alike)


def said_of(own):
    architecture = Architecture.from_config(models()["Qwen/Qwen3-8B"].config)
    return {str(check.what) for check in checks(architecture, Layout(), (own,), own)}
