"""What kinds of mixers and feed-forwards answer for themselves, and what is said of one that nobody knows."""

from typing import Literal, get_args

import pytest

from calc import Architecture, ConfigError
from calc.model.attention import GQA, Attention
from calc.model.compressed_attention import CompressedAttention
from calc.model.conventions import Kernels
from calc.model.feedforward import MLP, MoE, RankGroups
from calc.model.mixers import Mixer
from calc.model.mla import LatentAttention
from calc.model.recurrent import Mamba, Mamba2
from calc.serving.engines.llamacpp.graph import graph_of
from calc.serving.engines.vllm.layers import cache_entries
from calc.training.decoder import pass_of
from presets import models

LLAMA = GQA(n_q=32, n_kv=8, d_head=128)
V3 = LatentAttention(n_q=128, q_rank=1536, kv_rank=512, d_nope=128, d_rope=64, d_v=128)
V4 = CompressedAttention(o_groups=8, group_heads=8, d_head=512, q_rank=1024, o_rank=1024, window=128, rate=4)


@pytest.mark.parametrize(
    ("mixer", "attended", "vectors", "heads"),
    [
        pytest.param(LLAMA, (128, 128), (1024, 1024), 8, id="llama-3.1-8b"),
        # llama.cpp's ggml-cuda/fattn.cu attends to DeepSeek with keys of 576 and values of 512
        pytest.param(V3, (576, 512), (576,), 1, id="deepseek-v3"),
        pytest.param(LLAMA.model_copy(update={"own_keys": False}), (128, 128), (), 8, id="shared cache"),
        pytest.param(LLAMA.model_copy(update={"cross": True}), (128, 128), (), 8, id="keys of an image"),
    ],
)
def test_widths_of_attention(mixer, attended, vectors, heads):
    assert mixer.attended_widths == attended
    assert mixer.cached_vectors() == vectors
    assert mixer.cached_elements() == sum(vectors)
    assert mixer.cached_heads == heads
    assert mixer.exchanged_width == sum(attended)


@pytest.mark.parametrize(
    ("mixer", "widths"),
    [
        # llama.cpp's llama-hparams.cpp: n_embd_r is (d_conv - 1) * channels, n_embd_s is d_state * d_inner
        pytest.param(Mamba(d_inner=1536, d_state=16, d_conv=4, dt_rank=48), (3 * 1536, 16 * 1536), id="mamba-130m"),
        pytest.param(
            Mamba2(n_heads=24, d_head=64, d_state=128, n_groups=1, d_conv=4),
            (3 * (1536 + 2 * 128), 128 * 1536),
            id="mamba2-130m",
        ),
        pytest.param(LLAMA, (0, 0), id="attention"),
    ],
)
def test_states_of_a_sequence(mixer, widths):
    assert mixer.state_widths() == widths


def test_latent_attention_as_grouped():
    """With the heads that modeling_deepseek_v3.py expands the latent to: 128 of keys 192 wide and values 128 wide."""
    assert V3.as_grouped() == GQA(n_q=128, n_kv=128, d_head=192, d_v=128)
    assert LLAMA.as_grouped() is LLAMA
    assert V4.as_grouped() is None


def test_feed_forwards_divide_their_columns():
    """A rank of Megatron-LM has its part of a dense MLP's columns, and of an expert's by the experts' own degree."""
    expert = MLP(intermediate=2048)
    moe = MoE(n_experts=256, top_k=8, expert=expert, shared=MLP(intermediate=4096))
    assert list(MLP(intermediate=512).divided_columns(RankGroups.of(4), 1)) == [(512, 4)]
    assert list(moe.divided_columns(RankGroups.of(4), 1)) == [(2048, 1), (4096, 4)]
    assert moe.active_width == 8 * 2048 + 4096


def every_mixer():
    """A mixer of each kind that a preset has."""
    kinds = {}
    for preset in models().values():
        model = Architecture.from_config(preset.config)
        for block in model.all_blocks:
            for mixer in block.mixers:
                kinds.setdefault(mixer.kind, (mixer, model.hidden))
    return kinds


@pytest.mark.slow
def test_every_kind_answers():
    """In words, in tensors and in elements; and the glossary begins with the word."""
    for mixer, hidden in every_mixer().values():
        assert str(mixer.title())
        assert all(str(text) for text in (*mixer.about(), mixer.readers(), mixer.why_not_square(hidden)))
        assert list(mixer.made(("B", 2), ("L", 64)))
        for eager in (False, True):
            peaks = list(mixer.module_peaks(hidden, Kernels(), 64, eager=eager, cached=True))
            assert peaks
            assert all(size > 0 for _, elements in peaks for size in elements.values())
        assert sum(mixer.fused_elements(hidden).values()) >= 0
        assert mixer.softmax_bytes(2, Kernels()) > 0
    assert all(str(text).startswith("**") for kind in get_args(Mixer) for text in kind.terms())


@pytest.mark.parametrize(
    ("model", "projected"),
    [
        pytest.param("LiquidAI/LFM2-1.2B", 3 * 2048, id="gates and states of modeling_lfm2.py's in_proj"),
        pytest.param("Qwen/Qwen3.5-9B", 2 * 2048 + 2 * 4096 + 2 * 32, id="in_proj_qkvz and in_proj_ba of vLLM's GDN"),
        pytest.param("tiiuae/Falcon-H1-7B-Base", 2 * 3072 + 2 * 256 + 24, id="in_proj of modeling_falcon_h1.py"),
        pytest.param("google/recurrentgemma-2b", 2 * 2560, id="linear_x and linear_y"),
        pytest.param("Qwen/Qwen3.5-27B", 2 * 2048 + 2 * 6144 + 2 * 48, id="whose output is narrower than its input"),
    ],
)
def test_the_projection_back_is_not_among_those_of_the_input(model, projected):
    """Where it is as wide as the model, too."""
    architecture = Architecture.from_config(models()[model].config)
    widths = {mixer.projected(architecture.hidden) for block in architecture.blocks for mixer in block.recurrences}
    assert widths == {projected}


class Unheard(Attention):
    """A kind that is in no match."""

    kind: Literal["unheard"] = "unheard"


def test_a_kind_that_nobody_knows_gets_a_sentence():
    assert graph_of(Unheard()) is None
    assert pass_of(Unheard()) is None
    with pytest.raises(ConfigError, match=r"^The memory that vLLM caches for unheard is not known here\.$"):
        list(cache_entries(Unheard(), None, None))
