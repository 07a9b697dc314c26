"""One attention layer: its weights and what it caches. Counts are those of the class in transformers 5.23."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc.families.attention_rows import OUT, QKV
from calc.model.attention import GQA
from calc.model.mla import LatentAttention

V3 = LatentAttention(n_q=128, q_rank=1536, kv_rank=512, d_nope=128, d_rope=64, d_v=128)
V2_LITE = LatentAttention(n_q=16, q_rank=None, kv_rank=512, d_nope=128, d_rope=64, d_v=128)


def numel(shapes):
    return sum(rows * columns[0] if columns else rows for rows, *columns in shapes.values())


@pytest.mark.parametrize(
    ("hidden", "attention", "parameters", "cached"),
    [
        pytest.param(4096, GQA(n_q=32, n_kv=32, d_head=128), 67_108_864, 8192, id="Llama-2-7B: multi-head"),
        pytest.param(4096, GQA(n_q=32, n_kv=8, d_head=128), 41_943_040, 2048, id="Llama-3.1-8B: groups of 4"),
        pytest.param(2048, GQA(n_q=8, n_kv=1, d_head=256), 9_437_184, 512, id="gemma-2b: multi-query"),
        pytest.param(2048, GQA(n_q=16, n_kv=2, d_head=128, bias=QKV), 9_439_744, 512, id="Qwen2.5-3B: three biases"),
        pytest.param(
            1024, GQA(n_q=16, n_kv=8, d_head=128, qk_norm="head"), 6_291_712, 2048, id="Qwen3-0.6B: norm of a head"
        ),
        pytest.param(
            4096, GQA(n_q=32, n_kv=32, d_head=128, qk_norm="full"), 67_117_056, 8192, id="OLMo-2-7B: norm of all heads"
        ),
        pytest.param(
            12288,
            GQA(n_q=96, n_kv=8, d_head=128, qk_norm="heads"),
            327_169_024,
            2048,
            id="Command-R+: a norm for each head",
        ),
        pytest.param(
            2880,
            GQA(n_q=64, n_kv=8, d_head=64, bias=QKV | OUT, sinks=True),
            26_550_144,
            1024,
            id="gpt-oss: biases, sinks",
        ),
        pytest.param(7168, V3, 187_107_328, 576, id="DeepSeek-V3: latent"),
        pytest.param(2048, V2_LITE, 13_763_072, 576, id="DeepSeek-V2-Lite: latent, queries not compressed"),
    ],
)
def test_one_layer(hidden, attention, parameters, cached):
    assert numel(attention.shapes(hidden)) == parameters
    assert attention.cached_elements() == cached


def test_latents_within_a_window_have_its_pairs_alone():
    """dots3-note's sliding layers (transformers `modeling_dots3_note.py`): each query meets keys of the window."""
    sliding = V3.model_copy(update={"window": 512})
    assert sliding.pair_flops() == {512: 2 * 128 * (128 + 64 + 128)}
    assert sliding.read_elements() == {512: 576}


@pytest.mark.parametrize(
    ("attention", "hidden", "names"),
    [
        pytest.param(
            V2_LITE,
            2048,
            "q_proj kv_a_proj_with_mqa kv_a_layernorm kv_b_proj o_proj",
            id="DeepSeek-V2-Lite: README_WEIGHTS.md of V3 without q_a and q_b",
        ),
        pytest.param(
            V3,
            7168,
            "q_a_proj q_a_layernorm q_b_proj kv_a_proj_with_mqa kv_a_layernorm kv_b_proj o_proj",
            id="DeepSeek-V3: README_WEIGHTS.md",
        ),
    ],
)
def test_latent_names(attention, hidden, names):
    assert list(attention.shapes(hidden)) == [f"{name}.weight" for name in names.split()]


def test_eight_of_32_heads_save_three_quarters_of_the_cache():
    grouped, all_heads = (GQA(n_q=32, n_kv=n, d_head=128).cached_elements() for n in (8, 32))
    assert 1 - grouped / all_heads == 0.75


POWERS = st.sampled_from([1, 2, 4, 8, 16])
GROUPED = st.builds(
    lambda n_kv, group, d_head: GQA(n_q=n_kv * group, n_kv=n_kv, d_head=d_head), POWERS, POWERS, st.integers(8, 128)
)


@given(GROUPED, POWERS)
def test_ranks_hold_the_whole_layer_together_and_never_more_than_it(attention, tp):
    tp = min(tp, attention.n_q)
    assert attention.divides(tp)
    rank, hidden = attention.rank(tp), 512
    whole, part = numel(attention.shapes(hidden)), numel(rank.shapes(hidden))
    assert part <= whole <= tp * part
    assert rank.cached_elements() <= attention.cached_elements() <= tp * rank.cached_elements()
    if tp <= attention.n_kv:  # then nothing is replicated
        assert (tp * part, tp * rank.cached_elements()) == (whole, attention.cached_elements())


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16, 32, 64, 128])
def test_the_latent_is_on_every_rank(tp):
    """vLLM replicates the down-projections and their norms, and the cache; the rest is divided by heads."""
    replicated = 7168 * 1536 + 1536 + 7168 * 576 + 512
    assert V3.rank(tp).cached_elements() == 576
    assert numel(V3.rank(tp).shapes(7168)) == replicated + (187_107_328 - replicated) // tp
