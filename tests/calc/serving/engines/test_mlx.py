"""mlx-lm 0.32.2 on MLX 0.32.4: weights, caches and peaks as its CPU build measured them (`data/mlx.json`, written by
benchmarks/oracle/write_mlx.py), and published folders."""

from itertools import pairwise

import pytest

from calc import Architecture, ConfigError, Layout, Overhead, Precision, Workload
from calc.errors import Message
from calc.formats import native
from calc.serving.derivation import Derivations
from calc.serving.engines.launch import ServerStart
from calc.serving.engines.mlx.cache import PromptCache
from calc.serving.engines.mlx.engine import MLX, conversion
from calc.serving.engines.mlx.loading import mlx_file
from calc.serving.engines.mlx.options import MLXOptions
from calc.serving.engines.mlx.working_memory import Pass, pass_peaks
from calc.serving.engines.rules import Question
from calc.serving.memory import Serving
from calc.serving.verdict import judge
from presets import gpus, models
from tests import load
from tests.calc.serving.test_derivation import total

RECORDS = load("mlx.json")
QWEN3, GPT_OSS, GEMMA3 = "Qwen/Qwen3-8B", "openai/gpt-oss-20b", "google/gemma-3-27b-it"


def records(part):
    rows = [row for row in RECORDS if row["part"] == part]
    return [pytest.param(row["config"], row["rows"], id=row["model"]) for row in rows]


def bytes_of(pieces):
    return sum(piece.nbytes * piece.tensor.count for piece in pieces)


def serving(name, weights, **options):
    architecture = Architecture.from_config(models()[name].config)
    return Serving.of(architecture, MLX(MLXOptions(**options)), Precision(weights=weights), Layout(), Overhead())


@pytest.mark.parametrize(("config", "rows"), records("weights"))
def test_weights_of_every_recipe(config, rows):
    """Bytes of all parameters, with scales and biases of groups; where a recipe is refused, mlx_lm.convert stops."""
    model = Architecture.from_config(config)
    for row in rows:
        name, _, group = row["recipe"].partition(", groups of ")
        precision = Precision(weights=name)
        refused = any(MLX().refusals(Question(model, precision)))
        assert refused == ("error" in row), row
        if not refused:
            pieces = MLX(MLXOptions(q_group_size=int(group) if group else None)).file(model, precision, model)
            assert bytes_of(pieces) == row["bytes"], row


@pytest.mark.parametrize(("config", "rows"), records("caches"))
def test_the_cache_after_a_prompt_and_its_answer(config, rows):
    model = Architecture.from_config(config)
    for row in rows:
        asked = dict(row["pass"])
        workload = Workload(context=asked["prompt"] + asked["generated"], generated=asked["generated"])
        options = MLXOptions(**{name: value for name, value in asked.items() if name in MLXOptions.model_fields})
        question = Question(model, Precision(), workload=workload)
        refusals = [refusal.field for refusal in MLX(options).refusals(question)]
        assert bool(refusals) == ("error" in row), (row, refusals)
        if not refusals:
            cache = PromptCache(model, Precision(), options)
            assert cache.generating_bytes(1, workload.context, workload.prompt) == sum(row["bytes"]), row


@pytest.mark.parametrize(("config", "rows"), records("peaks"))
def test_the_peak_of_a_prompts_pass(config, rows):
    """Within 2 % of `mx.get_peak_memory`, weights and cache included."""
    model, (row,) = Architecture.from_config(config), rows
    places = [(n, place) for n, block in enumerate(model.blocks) for place, _ in enumerate(block.mixers)]
    attention = frozenset((n, place) for n, place in places if model.blocks[n].mixers[place].score_heads)
    tokens = row["prompt"] - 1
    prompt = Pass(sequences=1, tokens=tokens, numbers=(1, tokens), length=tokens, width=4, unfused=attention)
    working = max(peak.bytes for peak in pass_peaks(model.blocks, model, prompt))
    cache = PromptCache(model, Precision(weights="fp32", kv="fp32"), MLXOptions())
    (last,) = cache.last_passes(row["prompt"])
    cached = cache.prompt_bytes(1, last)
    assert row["weights"] + cached + working == pytest.approx(row["peak"], rel=0.02)


def verdict(name, weights, gpu, workload=None, **options):
    workload, laid_out = workload or Workload(context=8192), serving(name, weights, **options)
    return judge(laid_out.on(gpus()[gpu], workload), laid_out, workload)


def test_it_runs_on_apples_gpus_alone():
    """Elsewhere the sentence names what runs there."""
    assert verdict(QWEN3, "mlx-4bit", "apple-m3-pro").verdict == "fits"
    elsewhere = verdict(QWEN3, "mlx-4bit", "h100-sxm")
    assert elsewhere.verdict == "does not run"
    assert "llama.cpp" in str(elsewhere.reason)


@pytest.mark.parametrize("gpu", ["apple-m1", "apple-m3-pro"])
@pytest.mark.parametrize("limit", [8192, 12_288])
def test_the_wired_limit_is_what_the_gpu_may_use(gpu, limit):
    assert verdict(QWEN3, "mlx-4bit", gpu, wired_limit_mb=limit).usable == limit << 20


@pytest.mark.parametrize(
    ("name", "weights", "options", "field"),
    [
        pytest.param("bigscience/bloom", "bf16", {}, "engine", id="no file in mlx-lm"),
        pytest.param(QWEN3, "Q4_K_M", {}, "weights", id="a GGUF mix"),
        pytest.param(QWEN3, "mxfp4", {}, "weights", id="mxfp4 of a checkpoint that has none"),
        pytest.param(QWEN3, "mlx-4bit", {"kv_bits": 8, "max_kv_size": 4096}, "kv_bits", id="a rotating cache"),
        pytest.param(GPT_OSS, "mlx-4bit", {"kv_bits": 8}, "kv_bits", id="windows"),
        pytest.param("deepseek-ai/DeepSeek-V3", "mlx-4bit", {"kv_bits": 8}, "kv_bits", id="a latent"),
    ],
)
def test_what_mlx_lm_stops_at(name, weights, options, field):
    model = Architecture.from_config(models()[name].config)
    engine = MLX(MLXOptions(**options))
    question = Question(model, Precision(weights=weights), workload=Workload(context=8192))
    assert [refusal.field for refusal in engine.refusals(question)] == [field]


def test_a_cache_below_the_start_is_not_quantized_yet():
    model = Architecture.from_config(models()[GPT_OSS].config)
    question = Question(model, Precision(weights="mlx-4bit"), workload=Workload(context=4096))
    assert not list(MLX(MLXOptions(kv_bits=8)).refusals(question))


@pytest.mark.parametrize("name", [QWEN3, GEMMA3, "google/gemma-4-26B-A4B", "google/recurrentgemma-2b"])
def test_a_longer_prompt_never_takes_less(name):
    """A short pass at its end follows a whole one, next to which a rotating cache is as long as it gets."""
    laid_out = serving(name, "mlx-8bit").on(gpus()["apple-m2-ultra"], Workload(context=8192, batch=4))
    totals = [laid_out.with_workload(context=length).memory.total for length in range(3500, 6500, 7)]
    assert totals == sorted(totals)


def test_several_macs_are_not_counted():
    model = Architecture.from_config(models()[QWEN3].config)
    with pytest.raises(ConfigError, match="several Macs"):
        MLX().check(Question(model, Precision(), Layout(tp=2)))


@pytest.mark.parametrize("name", [QWEN3, GPT_OSS, GEMMA3, "Qwen/Qwen3-30B-A3B"])
def test_fewer_bits_and_larger_groups_weigh_less(name):
    formats = ("bf16", "mlx-8bit", "mlx-6bit", "mlx-5bit", "mlx-4bit", "mlx-3bit", "mlx-2bit")
    sizes = [serving(name, weights).weights for weights in formats]
    assert all(more > less for more, less in pairwise(sizes))
    grouped = [serving(name, "mlx-4bit", q_group_size=group).weights for group in (32, 64)]
    assert grouped[0] > grouped[1] == serving(name, "mlx-4bit").weights


def stated(**others):
    """What mlx_lm.convert writes into the config of a folder."""
    quantization = {"group_size": 64, "bits": 4, "mode": "affine", **others}
    return {"quantization": quantization, "quantization_config": quantization}


def test_a_converted_checkpoint_is_read_as_it_says():
    """Routers of Qwen3-MoE have 8 bits by name in its config; without these lines they have 4."""
    config = models()["Qwen/Qwen3-30B-A3B"].config
    routers = {f"model.layers.{layer}.mlp.gate": {"group_size": 64, "bits": 8} for layer in range(48)}
    model = Architecture.from_config(config)
    usual = bytes_of(mlx_file(model, Precision(weights="mlx-4bit")))
    precision = Precision.of(config | stated(**routers))
    assert precision.weights == "mlx-4bit"
    assert bytes_of(mlx_file(model, precision)) == usual
    fewer = bytes_of(mlx_file(model, Precision.of(config | stated())))
    assert usual - fewer == 48 * 128 * 2048 // 2
    plain = bytes_of(mlx_file(model, Precision.of(config | stated(lm_head=False))))
    assert plain - fewer == 151_936 * 2048 * 2 - 151_936 * 2048 * 9 // 16


def test_buffers_of_an_encoder_are_dropped_with_it():
    """The language model's numel alone: mlx-lm 0.32.2, `models/gemma4.py`, `sanitize` drops each weight of an encoder,
    whose layers are not the model's: here 12 of sound next to two of text."""
    tower = {"hidden_size": 64, "num_hidden_layers": 3, "use_clipped_linears": True, "standardize": True}
    text = {"model_type": "gemma4_text", "num_hidden_layers": 2, "hidden_size": 128}
    config = {"model_type": "gemma4", "vision_config": tower, "audio_config": {}, "text_config": text}
    model = Architecture.from_config(config)
    pieces = mlx_file(model, Precision())
    assert not [piece.tensor.name for piece in pieces if "_tower" in piece.tensor.name]
    language = Architecture.from_config(text)
    assert sum(piece.tensor.numel for piece in pieces) == sum(
        piece.tensor.numel for piece in mlx_file(language, Precision())
    )


def test_a_setting_that_mlx_has_not_is_said():
    reading = native(models()[QWEN3].config | {"quantization": {"group_size": 48, "bits": 4}})
    assert reading.name == "bf16"
    assert isinstance(reading.note, Message)
    assert "groups of 32, 64 or 128" in str(reading.note)


@pytest.mark.parametrize(
    ("weights", "options"),
    [
        ("mlx-4bit", {}),
        ("mlx-mixed_3_6", {"prefill_step_size": 512, "decode_concurrency": 4, "prompt_concurrency": 2}),
        ("mlx-6bit", {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 0, "wired_limit_mb": 32768}),
        ("mlx-3bit", {"max_kv_size": 4096, "q_group_size": 32}),
        ("mlx-mxfp4", {}),
    ],
)
def test_every_flag_is_one_that_mlx_lm_has(weights, options):
    engine, precision = MLX(MLXOptions(**options)), Precision(weights=weights)
    launches = [
        engine.launch(ServerStart(QWEN3, precision, Layout(), 8192)),
        conversion(QWEN3, precision, engine.options),
    ]
    for launch in launches:
        assert {word for word in launch.words if word.startswith("--")} <= set(
            load("engine_flags.json")[launch.words[0]]
        )
    assert launches[0].words[2].startswith("mlx-community/Qwen3-8B-")
    assert ("iogpu.wired_limit_mb" in str(launches[0].notes)) == ("wired_limit_mb" in options)


def test_a_smaller_pass_needs_less():
    whole, small = (
        verdict(QWEN3, "mlx-4bit", "apple-m1", Workload(batch=8, context=4096), prefill_step_size=step)
        for step in (2048, 256)
    )
    assert small.required < whole.required


DERIVED = (QWEN3, GPT_OSS, GEMMA3, "deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V2-Lite", "google/gemma-2-9b")
"""Windows, latents as they are cached and as they are not, experts, states, and chunks of Mamba-2."""


@pytest.mark.parametrize("name", [*DERIVED, "Qwen/Qwen3-Next-80B-A3B-Instruct", "ibm-granite/granite-4.0-h-tiny"])
def test_the_lines_of_every_figure_come_to_it(name):
    allocation = serving(name, "mlx-4bit").on(gpus()["apple-m3-ultra"], Workload(batch=3, context=5000, generated=100))
    memory, of = allocation.memory, Derivations(allocation)
    assert total(of.weights()) == memory.weights
    assert total(of.loaded()) == allocation.serving.laid_out.stages[0].loaded.total
    assert total(of.kv_cache()) == memory.kv_cache
    assert total(of.activations()) == memory.activations
    assert total(of.total()) == memory.total


def test_scores_are_in_memory_where_metal_has_no_kernel():
    """Gemma 2 caps its scores; heads of 128 are a kernel's (`has_fused_kernel`)."""
    capped, fused = (serving(name, "mlx-4bit") for name in ("google/gemma-2-9b", QWEN3))
    peaks = [
        one.on(gpus()["apple-m3-ultra"], Workload(context=8192)).stages[0].working.tensors for one in (capped, fused)
    ]
    assert "scores of every head" in peaks[0]
    assert "scores of every head" not in peaks[1]
