"""What guesses tokens in SGLang: its own defaults, start-up logs, refusals, and the command. Its pools to the token are
in test_sglang_plans.py."""

import pytest

from calc import ConfigError, Layout, Overhead, Precision, Workload
from calc.serving.engines.launch import ServerStart
from calc.serving.engines.sglang.options import SGLangOptions, draft_length
from calc.serving.fewest import fewest_gpus
from calc.serving.memory import Serving
from presets import architecture_of, gpus, started

GIB = 2**30
H100 = gpus()["h100-sxm"]
DRAFT = "Qwen/Qwen3-0.6B"


def serving(model, options=(), **layout):
    engine = started("sglang", SGLangOptions(**dict(options)))
    return Serving.of(architecture_of(model), engine, Precision(), Layout(**layout), Overhead())


@pytest.mark.parametrize(
    ("options", "model_type", "tokens", "allocated"),
    [  # _auto_choose_speculative_params, _handle_eagle_family, _handle_ngram, get_alloc_len_per_decode
        ({"speculative_algorithm": "EAGLE3"}, "llama", 8, 20),
        ({"speculative_algorithm": "EAGLE3"}, "qwen3", 4, 4),
        ({"speculative_algorithm": "STANDALONE"}, "llama", 4, 4),
        ({"speculative_algorithm": "NEXTN", "speculative_num_steps": 2}, "deepseek_v3", 3, 3),
        (
            {
                "speculative_algorithm": "EAGLE",
                "speculative_num_steps": 4,
                "speculative_eagle_topk": 8,
                "speculative_num_draft_tokens": 16,
            },
            "deepseek_v3",
            16,
            32,
        ),
        ({"speculative_algorithm": "NGRAM"}, "qwen3", 12, 12),
    ],
)
def test_tokens_of_a_step(options, model_type, tokens, allocated):
    assert draft_length(SGLangOptions(**options), model_type) == (tokens, allocated)


def test_a_head_of_a_model_whose_last_layer_has_no_attention():
    """Nemotron Super's last layers are a feed-forward alone."""
    head = started("sglang", SGLangOptions(speculative_algorithm="EAGLE3")).draft_architecture(
        architecture_of("nvidia/Llama-3_3-Nemotron-Super-49B-v1")
    )
    assert head.num_layers == 1


@pytest.mark.parametrize(
    ("model", "options", "tp", "tokens", "gib"),
    [  # "KV Cache is allocated" of the model and of what guesses, on Ascend 910B (github.com/shun8686/for_debug)
        ("deepseek-ai/DeepSeek-R1", {"speculative_algorithm": "NEXTN"}, 16, 132_608, 8.69 + 0.14),
        ("deepseek-ai/DeepSeek-R1", {"speculative_algorithm": "EAGLE"}, 16, 217_600, 14.25 + 0.23),
        ("deepseek-ai/DeepSeek-R1", {"speculative_algorithm": "EAGLE"}, 32, 134_272, 8.8 + 0.14),
        ("Qwen/Qwen3-30B-A3B", {"speculative_algorithm": "EAGLE3"}, 2, 802_688, 2 * 18.38 + 2 * 0.38),
        ("Qwen/Qwen3-32B", {"speculative_algorithm": "EAGLE3"}, 8, 1_172_096, 2 * 17.89 + 2 * 0.28),
        ("Qwen/Qwen3-32B", {"speculative_algorithm": "EAGLE3"}, 4, 527_360, 2 * 16.1 + 2 * 0.25),
    ],
)
def test_pools_as_logged(model, options, tp, tokens, gib):
    """Four figures, each rounded to 0.01 GiB."""
    cache = serving(model, options, tp=tp).on(H100, Workload(context=8192)).cache
    assert cache.page == 1
    assert tokens * cache.block_bytes[0] / GIB == pytest.approx(gib, abs=0.02)


def test_layers_that_guess_have_tables_of_their_own_while_the_cache_is_planned():
    """DeepSeek-V3's layer in the checkpoint, with an embedding and a head; the biases of 256 experts are in 32 bits.
    Qwen3.5-0.8B's head is its embedding, of 248,320 x 1,024 (`models/qwen3_5_mtp.py`)."""
    (stage,) = serving("deepseek-ai/DeepSeek-V3", {"speculative_algorithm": "NEXTN"}).laid_out.stages
    assert stage.loaded.draft == 2 * 13_463_426_304 + 2 * 256
    plain, guessing = (serving("Qwen/Qwen3.5-0.8B", {"speculative_algorithm": kind}) for kind in (None, "NEXTN"))
    layer = architecture_of("Qwen/Qwen3.5-0.8B").parameters().not_in_total["multi_token_prediction"]
    assert guessing.weights - plain.weights == 2 * (layer + 248_320 * 1024)


def test_a_head_has_an_embedding_of_its_own_until_then():
    """One of Llama-3.1-8B is a file of 811 MB as `ls` rounds them, with its tables of tokens; 128,256 x 4,096 are the
    embedding."""
    weights = [serving("meta-llama/Llama-3.1-8B", {"speculative_algorithm": kind}).weights for kind in (None, "EAGLE3")]
    tables = 8 * 32_000 + 128_256
    assert 810 < (weights[1] - weights[0] - 2 * 128_256 * 4096 + tables) / 2**20 <= 811


def test_a_draft_model_is_loaded_beside_the_model():
    options = {"speculative_algorithm": "STANDALONE", "speculative_draft_model_path": DRAFT}
    plain, both = serving("Qwen/Qwen3-8B").weights, serving("Qwen/Qwen3-8B", options).weights
    assert 0 <= both - plain - 2 * 596_049_920 < 2**20


def test_as_many_requests_run_as_speculation_allows():
    """max_running_requests is 48 unless a flag says otherwise (`_handle_eagle_family`)."""
    found = serving("zai-org/GLM-4.5", {"speculative_algorithm": "NEXTN"}, tp=8)
    assert found.on(H100, Workload()).limits.sequences == 48
    assert serving("zai-org/GLM-4.5", tp=8).on(H100, Workload()).limits.sequences == 2048


@pytest.mark.parametrize(
    ("model", "layout", "options", "field", "sentence"),
    [
        ("Qwen/Qwen3-8B", {}, {"speculative_algorithm": "NEXTN"}, "speculative_algorithm", "no multi-token prediction"),
        (
            "mistralai/Mixtral-8x7B-v0.1",
            {},
            {"speculative_algorithm": "EAGLE3"},
            "speculative_algorithm",
            "hands no states",
        ),
        (
            "deepseek-ai/DeepSeek-V4-Flash",
            {"tp": 8},
            {"speculative_algorithm": "NGRAM"},
            "speculative_algorithm",
            "alone",
        ),
        ("zai-org/GLM-4.5", {"pp": 2}, {"speculative_algorithm": "NEXTN"}, "pp", "reads prompts alone"),
        ("Qwen/Qwen3-30B-A3B", {"dp": 2}, {"speculative_algorithm": "NGRAM"}, "dp", "copies of the attention"),
        (
            "Qwen/Qwen3-8B",
            {},
            {"speculative_algorithm": "STANDALONE"},
            "speculative_draft_model_path",
            "No draft model given",
        ),
        (
            "Qwen/Qwen3-8B",
            {},
            {"speculative_algorithm": "STANDALONE", "speculative_draft_model_path": "no/model"},
            "speculative_draft_model_path",
            "not a known model",
        ),
        (
            "Qwen/Qwen3-8B",
            {},
            {"speculative_algorithm": "NGRAM", "speculative_draft_model_path": DRAFT},
            "speculative_draft_model_path",
            "no draft model guesses",
        ),
        (
            "deepseek-ai/DeepSeek-V3",
            {},
            {"speculative_algorithm": "EAGLE3"},
            "speculative_draft_model_path",
            "The number of heads",
        ),
        (
            "Qwen/Qwen3-32B",
            {"tp": 32},
            {"speculative_algorithm": "STANDALONE", "speculative_draft_model_path": DRAFT},
            "tp",
            "32 tensor-parallel ranks can't share",
        ),
    ],
)
def test_what_guesses_nothing(model, layout, options, field, sentence):
    with pytest.raises(ConfigError, match=sentence) as refused:
        serving(model, options, **layout)
    assert refused.value.field == field


def test_the_fewest_gpus_are_in_one_stage():
    options = {"speculative_algorithm": "NEXTN"}
    plain, guessing = (
        fewest_gpus(gpus()["h200-sxm"], serving("zai-org/GLM-4.5", chosen, tp=8), Workload(context=8192))
        for chosen in ({}, options)
    )
    assert plain.pp > 1 == guessing.pp


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"speculative_num_steps": 2}, "no effect without speculative_algorithm"),
        ({"speculative_algorithm": "EAGLE3", "speculative_eagle_topk": 2}, "no effect without speculative_num_steps"),
    ],
)
def test_flags_that_go_together(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        SGLangOptions(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"speculative_algorithm": "NEXTN"}, "--speculative-algorithm NEXTN"),
        (
            {"speculative_algorithm": "STANDALONE", "speculative_draft_model_path": DRAFT},
            f"--speculative-algorithm STANDALONE --speculative-draft-model-path {DRAFT}",
        ),
        (
            {"speculative_algorithm": "EAGLE3", "speculative_num_steps": 5},
            "--speculative-algorithm EAGLE3 --speculative-num-steps 5 --speculative-draft-model-path org/draft",
        ),
    ],
)
def test_the_command_says_what_guesses(options, said):
    launch = started("sglang", SGLangOptions(**options)).launch(ServerStart("org/model", Precision(), Layout(), 8192))
    assert " ".join(launch.words).endswith(said)
