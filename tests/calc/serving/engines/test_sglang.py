"""SGLang 0.5.23, whose source is cited by its files below `sglang/srt`."""

import pytest

from calc import Architecture, Layout, Overhead, Precision, Workload
from calc.serving.engines.engine import Pool
from calc.serving.engines.sglang.engine import SGLang
from calc.serving.engines.sglang.options import SGLangOptions
from calc.serving.memory import HIGH, MIDDLE, Serving
from calc.units import GIB
from presets import gpus, models
from tests import load

LLAMA, V3 = "meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-V3"


def allocation(model, gpu="h100-sxm", layout=None, weights="bf16", batch=1, context=8192, **options):
    architecture, engine = Architecture.from_config(models()[model].config), SGLang(SGLangOptions(**options))
    serving = Serving(architecture, engine, Precision(weights=weights), layout or Layout(), Overhead())
    return serving.on(gpus()[gpu], Workload(batch=batch, context=context))


@pytest.mark.parametrize(
    ("gpu", "model", "layout", "options", "chunk", "share"),
    [  # arg_groups/memory_hook.py, handle_gpu_memory_settings, in MiB: 512 + 1.5 a token of a chunk + 128 a GPU + 2 a
        # sequence of the largest decode graph + 8 a prefill graph (MLA: 1,536), of GPUs above 60 GiB at least 10,240;
        # share = round((total - reserved) / total, 3), total as nvidia-smi prints it
        pytest.param("t4", LLAMA, {}, {}, 2048, 0.735, id="15,360: 512 + 3,072 + 128 + 2 x 8 + 8 x 42"),
        pytest.param("l4", LLAMA, {}, {}, 4096, 0.684, id="23,034: 512 + 6,144 + 128 + 2 x 48 + 8 x 50"),
        pytest.param("rtx-4090", LLAMA, {}, {}, 4096, 0.704, id="24,564: the same 7,280"),
        pytest.param("a100-sxm-40gb", LLAMA, {}, {}, 4096, 0.823, id="40,960: 512 + 6,144 + 128 + 2 x 32 + 8 x 50"),
        pytest.param("l40s", LLAMA, {}, {}, 4096, 0.843, id="46,068: the same 7,248"),
        pytest.param("h100-sxm", LLAMA, {}, {}, 8192, 0.83, id="81,559: 512 + 12,288 + 128 + 2 x 256 + 8 x 58"),
        pytest.param("h200-sxm", LLAMA, {}, {}, 8192, 0.903, id="143,771: the same 13,904"),
        pytest.param("b200", LLAMA, {}, {}, 16_384, 0.854, id="183,359: 512 + 24,576 + 128 + 2 x 512 + 8 x 74"),
        pytest.param("h100-sxm", LLAMA, {"tp": 8}, {}, 8192, 0.812, id="... + 8 x 128 + 2 x 512 + 8 x 58"),
        pytest.param("h100-sxm", LLAMA, {"pp": 2}, {}, 8192, 0.834, id="no prefill graphs with stages: 13,568"),
        pytest.param("h200-sxm", V3, {"tp": 8}, {}, 8192, 0.886, id="MLA: 512 + 12,288 + 1,024 + 1,024 + 1,536"),
        pytest.param("h200-sxm", V3, {"dp": 8, "ep": 8}, {}, 8192, 0.758, id="copies: 16,384 + 512 x 8 x 4.5"),
        pytest.param("h100-sxm", LLAMA, {}, {"chunked_prefill_size": 2048}, 2048, 0.874, id="10,240 at least"),
        pytest.param("h100-sxm", LLAMA, {}, {"disable_cuda_graph": True}, 8192, 0.841, id="12,928"),
        pytest.param("h100-sxm", LLAMA, {}, {"max_running_requests": 16}, 8192, 0.835, id="13,424: 2 x 16"),
        pytest.param("h100-sxm", LLAMA, {}, {"mem_fraction_static": 0.93}, 8192, 0.93, id="stated"),
    ],
)
def test_defaults(gpu, model, layout, options, chunk, share):
    limits = allocation(model, gpu, Layout(**layout), **options).limits
    assert (limits.step_tokens, limits.share) == (chunk, share)


@pytest.mark.parametrize(
    ("layers", "pp", "stages"),
    [(61, 1, [61]), (61, 2, [30, 31]), (61, 16, [*[3] * 3, *[4] * 13]), (22, 4, [5, 5, 6, 6]), (5, 5, [1] * 5)],
)
def test_layers_of_each_stage(layers, pp, stages):
    """distributed/utils.py, get_pp_indices: "the last N partitions will have one extra layer"."""
    ranges = list(SGLang().stages(layers, pp))
    assert [len(stage) for stage in ranges] == stages
    assert [layer for stage in ranges for layer in stage] == list(range(layers))


@pytest.mark.parametrize(
    ("rows", "tp", "share"),
    [  # layers/vocab_parallel_embedding.py: to 64; to 64 x tp where tp does not divide that
        pytest.param(50_257, 1, 50_257, id="one GPU: the padding is listed apart"),
        pytest.param(50_257, 4, 50_304 // 4, id="50,304 is 4 x 12,576"),
        pytest.param(50_257, 5, 50_560 // 5, id="50,304 is no multiple of 5; 50,560 is one of 320"),
        pytest.param(151_936, 8, 151_936 // 8, id="nothing to add"),
    ],
)
def test_rows_of_the_vocabulary_on_a_rank(rows, tp, share):
    assert SGLang().vocabulary(rows, tp) == share


RECORDS = {row["model"]: row for row in load("measured.json") if row["kind"] == "sglang_startup"}


def test_a_start_as_logged():
    """Qwen3-235B-A22B in fp8 on four H100: tokens by the bytes of the same log, and bytes by its settings alone."""
    record = RECORDS["Qwen3-235B-A22B"]
    log, share, layout = record["measured"], record["mem_fraction_static"], Layout(tp=record["tp"])
    found = allocation("Qwen/Qwen3-235B-A22B", layout=layout, weights="fp8", mem_fraction_static=share)
    logged = round((log["k_gb"] + log["v_gb"]) * GIB)
    assert isinstance(found.cache, Pool)
    assert found.cache.block_bytes[0] == 94 * 2 * 128 * 2  # one of four KV heads on each GPU
    assert found.cache.tokens(found.cache.blocks([logged]), 8192) == pytest.approx(log["kv_tokens"], rel=0.001)
    assert found.kv_budget.bytes_low <= logged <= found.kv_budget.bytes_high


def test_what_it_divides():
    """mem_cache/kv_cache_configurator.py, _profile_available_bytes: what is free after loading less (1 - share) of what
    was free before."""
    found = allocation(LLAMA)
    budget, total = found.kv_budget, gpus()["h100-sxm"].usable_bytes
    free = total - (round(0.25 * GIB) + round(0.6 * GIB)) // 2 - (round(0.01 * GIB) + round(0.35 * GIB)) // 2
    assert budget.requested == int(free * 0.83)
    assert budget.bytes == budget.requested - budget.weights
    assert budget.tokens == budget.bytes // 131_072


def test_the_rest_must_hold_a_pass_and_its_graphs():
    """Of 22.05 GiB 1 % is left for a pass over 4,096 tokens; with 0.684 there is room."""
    assert allocation("Qwen/Qwen2.5-3B", "l4").starts(HIGH)
    greedy = allocation("Qwen/Qwen2.5-3B", "l4", mem_fraction_static=0.99)
    assert not greedy.starts(MIDDLE)
    assert greedy.spare < 0


@pytest.mark.parametrize(
    ("model", "page", "tokens", "nbytes"),
    [
        pytest.param(LLAMA, 1, 8192, 131_072, id="a page of one token"),
        pytest.param(LLAMA, 64, 128, 64 * 131_072, id="pages of 64"),
        pytest.param("openai/gpt-oss-20b", 1, 8192, 12 * 2048 + 0.8 * 12 * 2048, id="0.8 of the tokens in windows"),
        pytest.param("google/gemma-3-27b-it", 1, 8192, 62 * 8192, id="not is_hybrid_swa_model: all layers keep all"),
    ],
)
def test_bytes_of_a_page(model, page, tokens, nbytes):
    cache = allocation(model, page_size=page).cache
    assert cache.block_bytes[0] == round(nbytes)
    assert cache.request_blocks(8192) == tokens


def test_the_window_pool_limits_short_requests():
    """ "full_layer_tokens=375360, swa_layer_tokens=300288" (github.com/sgl-project/sglang/pull/18039): a request within
    the window of 128 takes as many of both."""
    cache = allocation("openai/gpt-oss-20b").cache
    assert cache.window_share * 375_360 == 300_288
    assert cache.request_blocks(8192) == 8192
    assert cache.request_blocks(100) == 127  # 101 tokens with its page, of 0.8 a block


def test_states_limit_the_requests():
    """_handle_max_mamba_cache: 0.9 / 1.9 of the memory are states, of which a request takes 3 + 2."""
    found = allocation("Qwen/Qwen3.5-9B", context=1024)
    states = found.kv_budget.bytes * 0.9 / 1.9 / found.cache.states[0]
    assert found.concurrency(MIDDLE) == pytest.approx(states / 5, rel=0.001)
    long = allocation("Qwen/Qwen3.5-9B", context=131_072)
    assert long.concurrency(MIDDLE) == pytest.approx(long.kv_budget.bytes / 1.9 / 131_072 / 32_768, rel=0.001)


def test_a_model_of_states_alone():
    found = allocation("state-spaces/mamba-2.8b-hf")
    assert found.concurrency(MIDDLE) == pytest.approx(
        found.kv_budget.bytes * 0.9 / 1.9 / 5 / found.cache.states[0], rel=0.01
    )
    assert found.fits(MIDDLE)


def test_flags_that_help():
    """Yi-34B: 64.06 of 65.16 GiB are weights at the default share; 0.9 leaves room for a request of 8,192 tokens."""
    found = allocation("01-ai/Yi-34B")
    assert not found.starts(MIDDLE)
    changes = next(iter(found.serving.engine.remedies(found.limits, found.workload)))
    assert found.serving.engine.flags(changes) == ("--mem-fraction-static 0.9",)
    assert found.under(found.serving.engine.with_options(**changes)).starts(HIGH)
