"""The same model with other kinds of attention, and what the scores take."""

import pytest

from calc import Architecture, Workload
from calc.model.attention import GQA
from calc.model.attention_shapes import group, kinds, made
from calc.model.conventions import Kernels
from calc.serving.comparison import scores, variants
from calc.serving.engines.vllm.engine import VLLM
from presets import models
from tests.cases import in_one_test

GIB = 2**30


def read(model):
    return Architecture.from_config(models()[model].config)


def by_name(model, workload=None):
    found = variants(read(model), VLLM(), "bf16", workload or Workload())
    return {str(variant.name): variant for variant in found}


@pytest.mark.parametrize(
    ("model", "own", "saved"),
    [  # 1 - KV heads / query heads, of each config.json
        pytest.param("Qwen/Qwen3-8B", "GQA-8", 0.75, id="8 of 32 save 75 %"),
        pytest.param("Qwen/Qwen2.5-3B", "GQA-2", 0.875, id="2 of 16"),
        pytest.param("meta-llama/Llama-3.1-70B", "GQA-8", 0.875, id="8 of 64"),
        pytest.param("openai-community/gpt2", "MHA", 0.0, id="each has its own"),
        pytest.param("openai/gpt-oss-120b", "GQA-8", 0.875, id="in windows too"),
    ],
)
def test_fewer_kv_heads_save_their_share(model, own, saved):
    found = by_name(model)
    assert [name for name, variant in found.items() if variant.own] == [own]
    assert found[own].saved == saved
    assert found[own].parameters == read(model).parameters().total


@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "meta-llama/Llama-3.1-70B", "google/gemma-3-27b-it"])
def test_latent_attention_is_as_much_cache_as_2_25_kv_heads(model):
    """DeepSeek-V2, arXiv:2405.04434, table 1."""
    found = by_name(model)
    assert found["MLA"].cache == found["MQA"].cache * 2.25


def test_deepseek_v3_against_its_own_heads():
    """128 heads of 192 and 128 channels in 61 layers, against a latent of 512 + 64: formulas of arXiv:2405.04434."""
    found = by_name("deepseek-ai/DeepSeek-V3")
    assert found["MHA"].bytes_per_token == 61 * 128 * (192 + 128) * 2
    assert found["MLA"].bytes_per_token == 70_272  # arXiv:2505.09343, table 1
    assert found["MLA"].own


def test_qwen3_8b_with_32_kv_heads_is_the_study():
    """24 more heads of 128 for keys and for values in 36 layers of width 4096."""
    found = by_name("Qwen/Qwen3-8B")
    assert found["MHA"].parameters == 8_190_735_360 + 36 * 2 * 24 * 128 * 4096


@pytest.mark.parametrize("model", ["state-spaces/mamba-130m-hf", "deepseek-ai/DeepSeek-V4-Flash"])
def test_a_model_without_heads_of_keys_has_no_variants(model):
    assert variants(read(model), VLLM(), "bf16", Workload()) == ()


def test_states_of_recurrent_layers_are_not_saved():
    found = by_name("Qwen/Qwen3.6-35B-A3B")
    assert 0 < found["MQA"].saved < 1 - 1 / 16


@in_one_test("model", models())
def test_every_preset_has_shapes(model):
    architecture = read(model)
    layers = kinds(architecture.all_blocks)
    assert {layer for where in layers.values() for layer in where} <= set(range(architecture.num_layers))
    for mixer in layers:
        tensors = made(mixer, architecture.hidden, 2, 512)
        assert tensors[0].shape == tensors[-1].shape == (2, 512, architecture.hidden)
    found = variants(architecture, VLLM(), "bf16", Workload())
    assert [variant.own for variant in found].count(True) == (1 if found else 0)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param(
            "Qwen/Qwen3-0.6B",  # 16 heads of 128 are twice the hidden size of 1024: github.com/huggingface/transformers
            {
                "Queries Q": ("[B, n_q, L, d_head]", (4, 16, 33, 128)),
                "Keys K": ("[B, n_kv, L, d_head]", (4, 8, 33, 128)),
                "Scores QKᵀ": ("[B, n_q, L, L]", (4, 16, 33, 33)),
                "Output of the heads, joined": ("[B, L, n_q·d_head]", (4, 33, 2048)),
            },
            id="Qwen3-0.6B",
        ),
        pytest.param(
            "deepseek-ai/DeepSeek-V3",  # modeling_deepseek_v3.py: q_states, k_pass, k_rot, value_states
            {
                "Compressed queries": ("[B, L, r_q]", (4, 33, 1536)),
                "Queries Q": ("[B, n_q, L, d_nope + d_rope]", (4, 128, 33, 192)),
                "Latent of keys and values": ("[B, L, r_kv]", (4, 33, 512)),
                "Rotary key, of all heads": ("[B, 1, L, d_rope]", (4, 1, 33, 64)),
                "Values V": ("[B, n_q, L, d_v]", (4, 128, 33, 128)),
                "Output of the heads, joined": ("[B, L, n_q·d_v]", (4, 33, 16_384)),
            },
            id="DeepSeek-V3",
        ),
    ],
)
def test_shapes_of_a_layer(model, expected):
    architecture = read(model)
    (mixer,) = kinds(architecture.all_blocks)
    tensors = {str(tensor.name): (tensor.symbols, tensor.shape) for tensor in made(mixer, architecture.hidden, 4, 33)}
    assert expected.items() <= tensors.items()


@pytest.mark.parametrize(
    ("n_q", "n_kv", "read"),
    [  # torch.repeat_interleave over the heads of keys
        pytest.param(8, 8, [0, 1, 2, 3, 4, 5, 6, 7], id="multi-head"),
        pytest.param(8, 2, [0, 0, 0, 0, 1, 1, 1, 1], id="groups of 4"),
        pytest.param(8, 1, [0, 0, 0, 0, 0, 0, 0, 0], id="multi-query"),
    ],
)
def test_who_reads_what(n_q, n_kv, read):
    mixer = GQA(n_q=n_q, n_kv=n_kv, d_head=64)
    assert [group(mixer, head) for head in range(n_q)] == read


def test_scores_written_out_and_not():
    """16 heads, 8,192 x 8,192: 2^30 scores, in 16 bits and with two copies in fp32, as transformers' eager attention
    has them at `softmax(..., dtype=torch.float32).to(query.dtype)`; flash attention keeps a logarithm a row."""
    found = scores(GQA(n_q=16, n_kv=8, d_head=128), Kernels(), 1, 8192)
    assert found.matrix == 2 * GIB
    assert found.eager == 10 * GIB
    assert found.flash == 16 * 8192 * 4
