"""What guesses tokens in vLLM: start-up logs, the layers of published heads, refusals, and the command."""

import json

import pytest

from calc import Architecture, ConfigError, Layout, Overhead, Precision, Workload
from calc.hardware.gpus import gpus
from calc.serving.engines.drafts import eagle3_head
from calc.serving.engines.launch import ServerStart
from calc.serving.engines.vllm.cache import divide, limits
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.engines.vllm.working_memory import captured_graphs, captured_sizes, sampler
from calc.serving.memory import Serving
from presets import architecture_of, models, started

GIB = 2**30
H100 = gpus()["h100-sxm"]
DRAFT = "Qwen/Qwen3-0.6B"


def serving(model, *, tp=1, pp=1, weights="bf16", **options):
    engine = started("vllm", VLLMOptions(**options))
    return Serving.of(architecture_of(model), engine, Precision(weights=weights), Layout(tp=tp, pp=pp), Overhead())


@pytest.mark.parametrize(
    ("model", "kv", "block", "gib", "tokens"),
    [  # vLLM 0.25.1 on a GB10, MTP with three tokens: "GPU KV cache size" of "Available KV cache memory"
        pytest.param("Qwen/Qwen3.6-27B", "bf16", 800, 80.17, 1_191_213, id="Qwen3.8-27B in int4"),
        pytest.param("Qwen/Qwen3.6-27B", "fp8", 1600, 76.4, 2_192_477, id="Qwen3.8-27B in NVFP4, cache in fp8"),
        pytest.param("Qwen/Qwen3.6-35B-A3B", "bf16", 1072, 74.22, 3_366_051, id="Qwen3.6-35B-A3B in NVFP4"),
    ],
)
def test_tokens_with_guesses_as_logged(model, kv, block, gib, tokens):
    """github.com/sostrowsk/dgx-spark-local-llm; the log rounds the bytes to 0.01 GiB."""
    options = VLLMOptions(speculative="mtp", num_speculative_tokens=3, max_num_seqs=32, version="0.25.1")
    architecture, card, length = architecture_of(model), gpus()["gb10"], 262_144
    reserved = limits(options, card, architecture, length)
    found = divide(architecture, architecture, kv, options, card, 1).plan([range(architecture.num_layers)], reserved)
    assert found.block_size(length) == block
    low, high = (found.tokens(found.blocks([round(end * GIB)]), length) for end in (gib - 0.005, gib + 0.005))
    assert low <= tokens <= high


@pytest.mark.parametrize(
    ("version", "sequences", "guessed", "largest", "pieces", "full"),
    [  # "graph_profile" of start-up logs: PIECEWISE=.. (largest=..), FULL=..
        pytest.param("0.25.1", 32, 3, 256, 33, 17, id="Qwen3.6 on a GB10"),
        pytest.param("0.23.1", 4, 1, 16, 4, 3, id="GLM-5.2 on 4 x GH200: 2, 4, 8, 16"),
    ],
)
def test_captured_sizes_as_logged(version, sequences, guessed, largest, pieces, full):
    options = VLLMOptions(speculative="mtp", num_speculative_tokens=guessed, version=version, max_num_seqs=sequences)
    reserved = limits(options, H100, architecture_of("Qwen/Qwen3.6-27B"), 8192)
    assert captured_sizes(options, reserved)[-1] == largest
    assert captured_graphs(options, reserved) == (pieces, full)


@pytest.mark.parametrize(
    ("sequences", "guessed", "added"),
    [  # VllmConfig._set_cudagraph_sizes of 0.33: request counts times the tokens of a decode step, up to 512
        (1024, 2, {3 * n for n in (1, 2, 4, *range(8, 171, 8))}),
        (5, 3, {4, 8, 16, 20}),
        (1024, 16, {17 * n for n in (1, 2, 4, 8, 16, 24)}),
    ],
)
def test_decode_steps_are_captured_beside_the_usual_sizes(sequences, guessed, added):
    plain = VLLMOptions(max_num_seqs=sequences)
    options = VLLMOptions(speculative="ngram", num_speculative_tokens=guessed, max_num_seqs=sequences)
    reserved = limits(options, H100, architecture_of("Qwen/Qwen3-8B"), 8192)
    usual = set(captured_sizes(plain, reserved))
    assert set(captured_sizes(options, reserved)) >= usual | added
    assert {n for n in captured_sizes(options, reserved) if n not in added and n % 8 and n > 4} == set()


def test_own_layers_read_the_model_s_tables():
    """DeepSeek-V3's layer has 13,463,426,304 parameters in the checkpoint, with an embedding and a head of 129,280 x
    7,168 each that are the model's; the biases of 256 experts are in 32 bits (`load_eagle_model`)."""
    table = 129_280 * 7168
    (held,) = [stage.loaded for stage in serving("deepseek-ai/DeepSeek-V3", speculative="mtp").laid_out.stages]
    assert held.draft == 2 * (13_463_426_304 - 2 * table) + 2 * 256
    older = serving("deepseek-ai/DeepSeek-V3", speculative="mtp", version="0.15.1").laid_out.stages[0].loaded
    assert older.draft - held.draft == 2 * table
    first, last = (
        stage.weights for stage in serving("deepseek-ai/DeepSeek-V3", pp=2, speculative="mtp").laid_out.stages
    )
    plain = serving("deepseek-ai/DeepSeek-V3", pp=2).laid_out.stages
    assert (first - plain[0].weights, last - plain[1].weights) == (0, held.draft + 2 * table)


def test_the_head_of_eagle3():
    """The 15 tensors of thoughtworks/Llama-3.2-3B-Instruct-Eagle3, of which two are tables of tokens."""
    head = eagle3_head(architecture_of("meta-llama/Llama-3.2-3B"), None)
    matrices = sorted(tensor.shape for tensor in head.tensors() if len(tensor.shape) == 2)
    h, inner, kv = 3072, 8192, 1024
    attention = [(h, 2 * h), (kv, 2 * h), (kv, 2 * h), (h, h)]
    mlp = [(inner, h), (inner, h), (h, inner)]
    embedding, lm_head, projection = (32_000, h), (32_000, h), (h, 3 * h)
    assert matrices == sorted([*attention, *mlp, embedding, lm_head, projection])
    assert [tensor.shape for tensor in head.tensors() if len(tensor.shape) == 1] == [(h,)] * 4


def test_a_head_as_large_as_its_file():
    """A head trained for Llama-3.1-8B: model.safetensors of 811 MB as `ls` rounds them, with its tables of tokens."""
    plain, eagle3 = (
        serving("meta-llama/Llama-3.1-8B", speculative=kind).on(H100, Workload(context=1024))
        for kind in ("none", "eagle3")
    )
    tables = 8 * 32_000 + 128_256
    assert 810 < (eagle3.memory.weights - plain.memory.weights + tables) / 2**20 <= 811
    assert eagle3.memory.kv_cache - plain.memory.kv_cache == 1024 * 4096  # a layer of 8 KV heads of 128


def test_a_head_on_stages_has_the_embedding_next_to_it():
    """vLLM 0.33 makes the model's embedding on the last stage, too (`spec_decode_needs_target_embed`): 128,256 rows of
    4,096."""
    heads = [serving("meta-llama/Llama-3.1-8B", pp=pp, speculative="eagle3").laid_out.stages[-1] for pp in (1, 2)]
    assert heads[1].loaded.draft - heads[0].loaded.draft == 2 * 128_256 * 4_096


def test_a_draft_model_is_loaded_and_cached_beside_the_model():
    """Qwen3-0.6B has 596,049,920 parameters and 28 layers of 8 KV heads of 128, as wide as each of Qwen3-8B's 36; the
    allocator rounds up what it holds."""
    plain = serving("Qwen/Qwen3-8B").on(H100, Workload(context=8192))
    both = serving("Qwen/Qwen3-8B", speculative="draft_model", model_draft=DRAFT).on(H100, Workload(context=8192))
    assert plain.memory.kv_cache == 36 * 4096 * 8192
    assert both.memory.kv_cache == (36 + 28) * 4096 * 8192
    assert 0 <= both.memory.weights - plain.memory.weights - 2 * 596_049_920 < 2**20


def test_ranks_share_a_draft_model():
    one, four = (
        serving("Qwen/Qwen3-32B", tp=tp, speculative="draft_model", model_draft=DRAFT).weights
        - serving("Qwen/Qwen3-32B", tp=tp).weights
        for tp in (1, 4)
    )
    assert one / 4 < four < one / 3


@pytest.mark.parametrize(
    ("version", "kind", "nbytes"),
    [
        ("0.33", "mtp", 14),
        ("0.25.1", "mtp", 18),
        ("0.25.1", "none", 14),
        ("0.16.0", "ngram", 43),
        ("0.10.2", "mtp", 39),
    ],
)
def test_guesses_pass_the_sampler_of_the_first_runner(version, kind, nbytes):
    assert sampler(VLLMOptions(version=version, speculative=kind), several=False).peak == nbytes


@pytest.mark.parametrize(
    ("model", "layout", "options", "field", "sentence"),
    [
        ("Qwen/Qwen3-8B", {}, {"speculative": "mtp"}, "speculative", "no multi-token prediction"),
        ("Qwen/Qwen3.5-27B", {}, {"speculative": "mtp", "version": "0.16.0"}, "version", "from version 0.17 on"),
        (
            "deepseek-ai/DeepSeek-V3",
            {"pp": 2},
            {"speculative": "mtp", "version": "0.29.0"},
            "pp",
            "from version 0.30 on",
        ),
        (
            "Qwen/Qwen3-8B",
            {"pp": 2},
            {"speculative": "eagle3", "version": "0.32.0"},
            "pp",
            "only the first of 2 pipeline stages",
        ),
        ("openai/gpt-oss-20b", {"pp": 2}, {"speculative": "eagle3"}, "pp", "class of gpt_oss hands no states"),
        ("Qwen/Qwen3-8B", {}, {"speculative": "draft_model"}, "model_draft", "No draft model given"),
        (
            "Qwen/Qwen3-8B",
            {},
            {"speculative": "draft_model", "model_draft": "no/model"},
            "model_draft",
            "not a known model",
        ),
        ("Qwen/Qwen3-8B", {}, {"speculative": "ngram", "model_draft": DRAFT}, "model_draft", "no draft model guesses"),
        (
            "Qwen/Qwen3-8B",
            {},
            {"speculative": "draft_model", "model_draft": "meta-llama/Llama-3.2-1B"},
            "model_draft",
            "128,256 tokens, the model's 151,936",
        ),
        (
            "Qwen/Qwen3-8B",
            {},
            {"speculative": "draft_model", "model_draft": DRAFT, "version": "0.12.0"},
            "version",
            "0.11 to 0.14 take no draft model",
        ),
        (
            "Qwen/Qwen3-32B",
            {"tp": 32},
            {"speculative": "draft_model", "model_draft": DRAFT},
            "tp",
            "32 tensor-parallel ranks can't share",
        ),
        ("Qwen/Qwen3-8B", {}, {"speculative": "eagle3", "model_draft": DRAFT}, "speculative", "has one layer"),
        ("deepseek-ai/DeepSeek-V4-Flash", {}, {"speculative": "eagle3"}, "speculative", "compresses tokens"),
        ("deepseek-ai/DeepSeek-V3", {}, {"speculative": "eagle3"}, "model_draft", "The number of heads"),
    ],
)
def test_what_guesses_nothing(model, layout, options, field, sentence):
    with pytest.raises(ConfigError, match=sentence) as refused:
        serving(model, **layout, **options)
    assert refused.value.field == field


def test_guesses_of_several_layers_are_a_multiple():
    """`num_speculative_tokens must be divisible by n_predict`."""
    config = models()["deepseek-ai/DeepSeek-V3"].config | {"num_nextn_predict_layers": 2}
    engine = VLLM(VLLMOptions(speculative="mtp", num_speculative_tokens=3))
    with pytest.raises(ConfigError, match="no multiple of the 2 layers"):
        Serving.of(Architecture.from_config(config), engine, Precision(), Layout(), Overhead())


@pytest.mark.parametrize(
    ("options", "stated"),
    [
        ({"speculative": "mtp"}, {"method": "mtp", "num_speculative_tokens": 1}),
        ({"speculative": "ngram", "num_speculative_tokens": 5}, {"method": "ngram", "num_speculative_tokens": 5}),
        (
            {"speculative": "draft_model", "model_draft": DRAFT},
            {"method": "draft_model", "model": DRAFT, "num_speculative_tokens": 3},
        ),
        ({"speculative": "eagle3"}, {"method": "eagle3", "model": "org/draft", "num_speculative_tokens": 3}),
    ],
)
def test_the_command_says_what_guesses(options, stated):
    words = VLLM(VLLMOptions(**options)).launch(ServerStart("org/model", Precision(), Layout(), 8192)).words
    assert json.loads(words[words.index("--speculative-config") + 1]) == stated
    assert not any("draft" in word and word.startswith("--") for word in words)
