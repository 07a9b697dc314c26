"""Our defaults and pools beside those of SGLang 0.5.23's own code (benchmarks/oracle/write_sglang.py), to the token."""

from functools import cache

import pytest

from calc import Architecture, Layout, Overhead, Precision, Workload
from calc.serving.engines.launch import ServerStart
from calc.serving.engines.sglang.engine import batches, streams_images
from calc.serving.engines.sglang.options import SGLangOptions
from calc.serving.memory import Serving
from calc.serving.weighing import RankWeights
from presets import gpus, started
from tests import load
from tests.cases import in_one_test

DATA, GUESSES = load("sglang_plans.json"), load("sglang_guesses.json")
CONFIGS = {row["id"]: row["config"] for row in load("oracle.json")}
ELSEWHERE = {"tp_size", "attn_dp_size", "pp_size", "kv_cache_dtype", "context_length"}
"""Settings that are no options of the engine here."""
OURS = {"cuda_graph_max_bs_decode": "cuda_graph_max_bs"}
FREE, LOADED = 2**29, 0.4
"""Bytes that were gone before weights were loaded, and weights, of what was free (`CONTEXT`, `LOADED` there)."""


@cache
def serving(model, layout, kv, guesses, draft):
    engine = engine_of({"settings": {"speculative_algorithm": guesses, "speculative_draft_model_path": draft}})
    ranks = RankWeights(Architecture.from_config(CONFIGS[model]), engine, Precision(kv=kv))
    return Serving(ranks, engine, layout, Overhead())  # its planner does not ask whether a class runs on stages


def engine_of(row):
    options = {OURS.get(name, name): value for name, value in row["settings"].items() if name not in ELSEWHERE}
    if options.get("speculative_draft_model_path") == "a head":
        del options["speculative_draft_model_path"]
    return started("sglang", SGLangOptions(**options))


def layout_of(row):
    """Its ranks count those of the attention's copies."""
    settings = row["settings"]
    dp = settings.get("attn_dp_size", 1)
    return Layout(tp=settings.get("tp_size", 1) // dp, dp=dp, pp=settings.get("pp_size", 1))


def named(row):
    flags = ", ".join(f"{name} {value}" for name, value in row["settings"].items())
    return f"{row['model']} on {row['gpu']}, {flags or 'defaults'}"


def divides_dense_layers(row):
    """Whether copies of the attention divide the layers of a model without experts among them."""
    dense = not Architecture.from_config(CONFIGS[row["model"]]).experts
    return row["settings"].get("attn_dp_size", 1) > 1 and dense


ROWS = [*DATA["rows"], *GUESSES["rows"]]
DIVIDED = [row for row in ROWS if divides_dense_layers(row)]


@in_one_test("row", DIVIDED, ids=named)
def test_no_layout_asks_sglang_to_divide_dense_layers_so(row):
    """Copies of such a model are servers of their own here (server_args.py: --dp-size without --enable-dp-attention),
    which its command says, and each is planned as one alone, as rows without copies show."""
    engine, layout, gpu = engine_of(row), layout_of(row), gpus()[row["gpu"]]
    architecture, work = Architecture.from_config(CONFIGS[row["model"]]), Workload(context=row["context"])
    words = engine.launch(ServerStart("org/model", Precision(), layout, row["context"])).words
    assert words[words.index("--dp-size") + 1] == str(layout.dp)
    assert not {"--attn-dp-size", "--enable-dp-attention"} & set(words)
    alone = layout.model_copy(update={"dp": 1})
    of_copies, of_one = (engine.limits(work, gpu, architecture, each) for each in (layout, alone))
    assert of_copies == of_one


def stated_cache(row):
    return row["kv"] if "kv_cache_dtype" in row["settings"] else "bf16"


@in_one_test("row", [row for row in ROWS if row not in DIVIDED], ids=named)
def test_as_sglang_plans(row):
    """Of the cache's format no more is known here than flags state."""
    engine, layout, gpu = engine_of(row), layout_of(row), gpus()[row["gpu"]]
    kind, draft = engine.options.speculative_algorithm, engine.options.speculative_draft_model_path
    model = serving(row["model"], layout, stated_cache(row), kind, draft)
    limits = engine.limits(Workload(context=row["context"]), gpu, model.architecture, layout)
    assert (limits.share, limits.step_tokens) == (row["share"], row["chunk"])

    streamed = streams_images(model.architecture, gpu)
    graphs = batches(engine.largest_batch(gpu.memory_bytes, layout.tp * layout.dp, streamed), guesses=kind is not None)
    captured = (DATA if kind is None else GUESSES)["graphs"]["decode"]
    assert row["decode"] == [] or graphs == captured[row["decode"]]

    rest = (limits.share - LOADED) * (gpu.memory_bytes - FREE) - limits.reserved_free
    assert rest == pytest.approx(row["bytes"], abs=64)  # it reckons in floats of GiB

    pool, budgets = engine.cache(model.laid_out, gpu, limits), [row["bytes"]] * layout.pp
    tokens = pool.tokens(pool.blocks(budgets), row["context"])
    assert (pool.page, tokens) == (row["page"], row["tokens"])
    if "window_tokens" in row and pool.window is not None:
        share = 1 if pool.only_windows else pool.window_share
        assert int(tokens * share) // pool.page * pool.page == row["window_tokens"]
    if "states" in row:
        assert (pool.slots(row["bytes"]), pool.of_request) == (row["states"], row["states_of_request"])


@pytest.mark.parametrize(
    ("gpu", "settings", "share", "nbytes", "tokens"),
    [  # benchmarks/oracle/write_sglang.py: planned, with deepseek-ai/DeepSeek-V4-Flash
        ("h100-sxm", {}, 0.835, 36_968_013_496, 4_833_024),
        ("h100-sxm", {"tp_size": 4}, 0.824, 36_033_190_166, 4_701_184),
        ("h100-sxm", {"tp_size": 8}, 0.818, 35_523_286_532, 4_629_248),
        ("h100-sxm", {"max_running_requests": 40}, 0.841, 37_477_917_130, 5_224_704),
        ("h100-sxm", {"max_running_requests": 40, "disable_radix_cache": True}, 0.841, 37_477_917_130, 5_224_704),
        ("h100-sxm", {"swa_full_tokens_ratio": 0.5}, 0.835, 36_968_013_496, 1_726_464),
        ("h100-sxm", {"tp_size": 8, "attn_dp_size": 8}, 0.592, 16_316_916_301, 2_250_496),
        ("h100-sxm", {"pp_size": 2}, 0.834, 36_883_029_557, 9_603_584),
        ("b200", {}, 0.857, 87_620_141_973, 11_980_544),
        ("b200", {"swa_full_tokens_ratio": 0.5}, 0.857, 87_620_141_973, 4_280_064),
        ("b200", {"tp_size": 8, "attn_dp_size": 8}, 0.751, 67_296_870_531, 9_444_352),
        ("b200", {"pp_size": 2}, 0.856, 87_428_412_997, 23_320_064),
    ],
)
@pytest.mark.parametrize("kv", ["fp8", "bf16"])
def test_compressed_attention_as_sglang_plans(gpu, settings, share, nbytes, tokens, kv):
    """Its pools are in fp8 whatever the flag says: 4,833,024 tokens on an H100 with --kv-cache-dtype bfloat16 too."""
    row = {"settings": settings}
    engine, layout, gpu = engine_of(row), layout_of(row), gpus()[gpu]
    model = serving("deepseek-ai/DeepSeek-V4-Flash", layout, kv, None, None)
    limits = engine.limits(Workload(context=1_048_576), gpu, model.architecture, layout)
    assert limits.share == share
    assert (share - LOADED) * (gpu.memory_bytes - FREE) - limits.reserved_free == pytest.approx(nbytes, abs=64)
    pool = engine.cache(model.laid_out, gpu, limits)
    assert (pool.page, pool.tokens(pool.blocks([nbytes] * layout.pp), 1_048_576)) == (256, tokens)
