"""SGLang 0.5.23, whose source is cited by its files below `sglang/srt`."""

import pytest

from calc import Architecture, Layout, Overhead, Precision, Workload, report
from calc.hardware.overhead import HIGH, LOW, MIDDLE
from calc.serving.engines import ENGINES
from calc.serving.engines.cache import Pool
from calc.serving.engines.rules import Question
from calc.serving.engines.sglang.cache import stored_cache
from calc.serving.engines.sglang.engine import SGLang, batches, unserved_family
from calc.serving.engines.sglang.options import SGLangOptions
from calc.serving.memory import Serving
from calc.units import GIB
from presets import gpus, models
from tests import load

LLAMA, V3, QWEN = "meta-llama/Llama-3.1-8B", "deepseek-ai/DeepSeek-V3", "Qwen/Qwen3.5-9B"


def allocation(model, gpu="h100-sxm", layout=None, weights="bf16", batch=1, context=8192, **options):
    architecture, engine = Architecture.from_config(models()[model].config), SGLang(SGLangOptions(**options))
    serving = Serving.of(architecture, engine, Precision(weights=weights), layout or Layout(), Overhead())
    return serving.on(gpus()[gpu], Workload(batch=batch, context=context))


@pytest.mark.parametrize(
    ("gpu", "model", "layout", "options", "chunk", "share"),
    [  # arg_groups/memory_hook.py, handle_gpu_memory_settings, in MiB: 512 + 1.5 a token of a chunk + 128 a GPU + 2 a
        # sequence of the largest decode graph + 8 a prefill graph (MLA: 1,536), of GPUs above 60 GiB at least 10,240;
        # share = round((total - reserved) / total, 3), total as nvidia-smi prints it; parallel_hook.py,
        # handle_data_parallelism: the chunk is divided by the copies after that
        pytest.param("t4", LLAMA, {}, {}, 2048, 0.735, id="15,360: 512 + 3,072 + 128 + 2 x 8 + 8 x 42"),
        pytest.param("l4", LLAMA, {}, {}, 4096, 0.684, id="23,034: 512 + 6,144 + 128 + 2 x 48 + 8 x 50"),
        pytest.param("rtx-4090", LLAMA, {}, {}, 4096, 0.704, id="24,564: the same 7,280"),
        pytest.param("a100-sxm-40gb", LLAMA, {}, {}, 4096, 0.823, id="40,960: 512 + 6,144 + 128 + 2 x 32 + 8 x 50"),
        pytest.param("l40s", LLAMA, {}, {}, 4096, 0.843, id="46,068: the same 7,248"),
        pytest.param("h100-sxm", LLAMA, {}, {}, 8192, 0.83, id="81,559: 512 + 12,288 + 128 + 2 x 256 + 8 x 58"),
        pytest.param("h200-sxm", LLAMA, {}, {}, 8192, 0.903, id="143,771: the same 13,904"),
        pytest.param("b200", LLAMA, {}, {}, 16_384, 0.854, id="183,359: 512 + 24,576 + 128 + 2 x 512 + 8 x 74"),
        pytest.param("h100-sxm", LLAMA, {"tp": 8}, {}, 8192, 0.812, id="... + 8 x 128 + 2 x 512 + 8 x 58"),
        pytest.param("h100-sxm", LLAMA, {"dp": 8}, {}, 8192, 0.83, id="copies of a dense model: as one server"),
        pytest.param("h100-sxm", LLAMA, {"pp": 2}, {}, 8192, 0.834, id="no prefill graphs with stages: 13,568"),
        pytest.param("h200-sxm", V3, {"tp": 8}, {}, 8192, 0.886, id="MLA: 512 + 12,288 + 1,024 + 1,024 + 1,536"),
        pytest.param("h200-sxm", V3, {"dp": 8, "ep": 8}, {}, 1024, 0.758, id="copies: 16,384 + 512 x 8 x 4.5"),
        # reserve_for_deepep_a2a_mb: 2,048 more than all that, and 1,024 for graphs of prompts, which are of up to 2,048
        # tokens in multiples of 8 (apply_deepep_adjustments): 38 instead of 42
        pytest.param(
            *("h200-sxm", V3, {"dp": 8, "ep": 8}, {"weights": "fp8", "moe_a2a_backend": "deepep"}, 1024, 0.736),
            id="DeepEP: + 3,072",
        ),
        pytest.param(
            *(
                "h200-sxm",
                "Qwen/Qwen3-30B-A3B",
                {"dp": 8, "ep": 8},
                {"weights": "fp8", "moe_a2a_backend": "deepep"},
                1024,
                0.745,
            ),
            id="512 + 12,288 + 1,024 + 1,024 + 18,432 + 8 x 38 + 3,072",
        ),
        pytest.param("h100-sxm", LLAMA, {}, {"chunked_prefill_size": 2048}, 2048, 0.874, id="10,240 at least"),
        pytest.param("h100-sxm", LLAMA, {}, {"disable_cuda_graph": True}, 8192, 0.841, id="12,928"),
        pytest.param("h100-sxm", LLAMA, {}, {"max_running_requests": 16}, 8192, 0.835, id="13,424: 2 x 16"),
        pytest.param("h100-sxm", LLAMA, {}, {"mem_fraction_static": 0.93}, 8192, 0.93, id="stated"),
        # adjust_mem_fraction_for_vlm: x 0.95 (1 - 0.1 (layers x width^2 / (24 x 1024^2) - 1)), 24 layers where the
        # vision_config has no num_hidden_layers; Qwen3.5's is 1,152 wide, Kimi K2.5's has 27 layers of 1,152
        pytest.param("h100-sxm", QWEN, {}, {}, 8192, 0.83 * 0.95 * (1 - 0.1 * (1152**2 / 2**20 - 1)), id="images"),
        pytest.param("h100-sxm", "google/gemma-3-27b-it", {}, {}, 8192, 0.83, id="images on demand"),
        pytest.param(
            *("h200-sxm", "moonshotai/Kimi-K2.5", {"tp": 8}, {}, 8192),
            0.886 * 0.95 * (1 - 0.1 * (27 * 1152**2 / (24 * 2**20) - 1)),
            id="layers and width",
        ),
    ],
)
def test_defaults(gpu, model, layout, options, chunk, share):
    limits = allocation(model, gpu, Layout(**layout), **options).limits
    assert (limits.step_tokens, limits.share) == (chunk, pytest.approx(share, rel=1e-12))


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
    """_handle_max_mamba_cache: 0.9 / 1.9 of the memory are states, one of them for padding; a request takes 3 + 2."""
    found = allocation("Qwen/Qwen3.5-9B", context=1024)
    states = int(found.kv_budget.bytes * 0.9 / 1.9 / found.cache.states[0]) - 1
    assert found.concurrency(MIDDLE) == states / 5
    long = allocation("Qwen/Qwen3.5-9B", context=131_072)
    states = int(long.kv_budget.bytes * 0.9 / 1.9 / long.cache.states[0])
    tokens = (long.kv_budget.bytes - states * long.cache.states[0]) // 32_768
    assert long.concurrency(MIDDLE) == tokens / 131_072


@pytest.mark.parametrize(
    ("options", "of_request"),
    [  # _calculate_mamba_ratio
        pytest.param({}, 5, id="three, and two that follow"),
        pytest.param({"mamba_radix_cache_strategy": "extra_buffer_lazy"}, 4, id="and one"),
        pytest.param({"mamba_radix_cache_strategy": "no_buffer"}, 3, id="and none"),
        pytest.param({"disable_radix_cache": True}, 1, id="its own alone"),
    ],
)
def test_states_of_a_request(options, of_request):
    assert allocation(QWEN, **options).cache.of_request == of_request


@pytest.mark.parametrize(
    ("options", "states"),
    [
        pytest.param({"max_mamba_cache_size": 100}, 100, id="as stated"),
        pytest.param({"disable_radix_cache": True, "max_running_requests": 48}, 48, id="one for each request"),
    ],
)
def test_states_that_flags_set_aside(options, states):
    """_handle_max_mamba_cache, with one for padding: 24 layers of 32 heads of 128 x 128 in fp32 and
    three columns of 8,192 channels in 16 bits; the rest is for 8 layers of 4 heads of 256."""
    found = allocation(QWEN, **options)
    taken = (states + 1) * 24 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)
    assert found.cache.fixed_bytes(0) == taken
    assert found.room(MIDDLE).blocks == (found.room(MIDDLE).available[0] - taken) // (8 * 2 * 4 * 256 * 2)


def test_windows_for_a_number_of_requests():
    """SWARequestCapPoolConfigurator: without a prefix cache each request has its window (127 tokens before its own),
    128 that are freed later and two pages, beside two chunks and a page."""
    cache = allocation("openai/gpt-oss-20b", disable_radix_cache=True, max_running_requests=64, page_size=16).cache
    tokens = 64 * (127 + 128 + 2 * 16) + 2 * 8192 + 16
    assert cache.fixed_bytes(0) == tokens * 12 * 2048
    assert cache.block_bytes[0] == 16 * 12 * 2048


@pytest.mark.parametrize(
    ("most", "number", "last"),
    [  # "Capture cuda graph bs [...]" of github.com/sgl-project/sglang/pull/18040, /10622 and /11716
        pytest.param(8, 4, [1, 2, 4, 8]),
        pytest.param(159, 24, [136, 144, 152, 159]),
        pytest.param(512, 52, [464, 480, 496, 512]),
    ],
)
def test_batches_of_graphs(most, number, last):
    found = batches(most)
    assert (len(found), found[-4:]) == (number, last)


def test_a_table_of_requests_is_not_in_the_share():
    """ReqToTokenPool: 32 bits for each token of 2,048 requests and one for padding."""
    assert allocation(LLAMA, context=131_072).limits.tables == 4 * 2049 * 131_076


def test_a_model_of_states_alone():
    """_MAMBA_EXTRA_BUFFER_ARCHS has no Mamba: three states a request, one more for padding."""
    found = allocation("state-spaces/mamba-2.8b-hf")
    states = int(found.kv_budget.bytes * 0.9 / 1.9 / found.cache.states[0]) - 1
    assert found.concurrency(MIDDLE) == states / 3
    assert found.fits(MIDDLE)


def test_flags_that_help():
    """Yi-34B: 64.06 of 65.16 GiB are weights at the default share; 0.9 leaves room for a request of 8,192 tokens."""
    found = allocation("01-ai/Yi-34B")
    assert not found.starts(MIDDLE)
    changes = next(iter(found.serving.engine.remedies(found.limits, found.workload)))
    assert found.serving.engine.flags(changes) == ("--mem-fraction-static 0.9",)
    assert found.with_engine(found.serving.engine.with_options(**changes)).starts(HIGH)


def test_weights_above_the_default_share():
    """DeepSeek-R1's 641.29 GiB in fp8 on four B200, which InferenceX's dsr1_fp8_b200.sh starts with a share of 0.95;
    by memory_hook.py SGLang takes 183,359 - (512 + 24,576 + 512 + 1,024 + 1,536) of 183,359 by itself, 150 GiB."""
    script = {"chunked_prefill_size": 8192, "max_running_requests": 32, "cuda_graph_max_bs": 32}
    four = {"gpu": "b200", "layout": Layout(tp=4), "weights": "fp8", "context": 8192 + 1024 + 256}
    by_itself = allocation("deepseek-ai/DeepSeek-R1", **four)
    assert by_itself.limits.share == round((183_359 - 28_160) / 183_359, 3) == 0.846
    assert by_itself.kv_budget.weights > by_itself.kv_budget.requested
    assert not by_itself.starts(LOW)
    assert allocation("deepseek-ai/DeepSeek-R1", **four, **script, mem_fraction_static=0.95).starts(HIGH)


@pytest.mark.parametrize(
    ("model", "nearest"),
    [  # sglang/srt/models of 0.5.23 has no class of them, and transformers 5.19 says is_backend_compatible() is False
        ("ibm-ai-platform/Bamba-9B-v1", "transformers"),  # vLLM's registry has it until 0.23
        ("bigscience/bloom-3b", "vLLM"),
        ("tiiuae/falcon-40b", "vLLM"),
        ("ai21labs/AI21-Jamba-Large-1.5", "vLLM"),
        ("mosaicml/mpt-7b", "transformers"),
        ("allenai/Olmo-Hybrid-7B", "vLLM"),
        ("Zyphra/Zamba-7B-v1", "transformers"),
        ("Zyphra/Zamba2-2.7B", "vLLM"),
        # it is True, but mambaish_config gives them no states and models/transformers.py passes use_cache=False
        ("google/recurrentgemma-2b", "transformers"),
        ("MiniMaxAI/MiniMax-Text-01-hf", "transformers"),
    ],
)
def test_families_that_it_does_not_run(model, nearest):
    config = models()[model].config
    found = report(config, engine=SGLang(), gpus=[gpus()["b200"]]).verdicts[0]
    assert found.verdict == "does not run"
    assert f"; {nearest} " in str(found.reason)
    assert (
        report(config, engine=ENGINES[nearest.lower()](), gpus=[gpus()["b200"]]).verdicts[0].verdict != "does not run"
    )


@pytest.mark.parametrize("model", ["EleutherAI/gpt-neox-20b", "HuggingFaceTB/SmolLM3-3B", "tiiuae/Falcon-H1-7B-Base"])
def test_families_that_it_runs(model):
    """By the code of transformers, of which is_backend_compatible() is True, or by a class of its own."""
    found = report(models()[model].config, engine=SGLang(), gpus=[gpus()["b200"]]).verdicts[0]
    assert found.verdict == "fits"


@pytest.mark.parametrize(
    ("family", "served"),
    [  # classes of `models/` of 0.5.23, and `_supports_attention_backend` in transformers 5.19, which it installs
        *(
            (family, False)
            for family in "aquila biogpt blt cpmant flint internlm kolibri1 lfm3 rwkv skywork xlstm".split()
        ),
        *((family, True) for family in "baichuan helium mllama_text_model orion persimmon xverse zaya".split()),
    ],
)
def test_families(family, served):
    architecture = Architecture.from_config({"model_type": family})
    assert served != any(unserved_family(architecture))


V3_SIDES = {  # config.json: hidden_size 7168, intermediate_size 18432, moe_intermediate_size 2048, vocab_size 129280
    "model.layers.{layer}.mlp.gate_proj.weight": (18_432, 7168),
    "model.layers.{layer}.mlp.shared_experts.gate_proj.weight": (2048, 7168),
    "model.layers.{layer}.self_attn.o_proj.weight": (7168, 16_384),
    "model.embed_tokens.weight": (129_280, 7168),
    "lm_head.weight": (129_280, 7168),
}


WHOLE_DENSE, HEAD_OF_COPY, DEEPEP = {"moe_dense_tp_size": 1}, {"enable_dp_lm_head": True}, {"moe_a2a_backend": "deepep"}


@pytest.mark.parametrize(
    ("engine", "layout", "options", "parts"),
    [  # by linear.py and vocab_parallel_embedding.py: into how many parts each of these is divided
        pytest.param("sglang", {"tp": 8}, {}, (8, 8, 8, 8, 8), id="no copies"),
        pytest.param("sglang", {"dp": 8, "ep": 8}, {}, (8, 8, 1, 1, 8), id="copies of one rank"),
        pytest.param("sglang", {"tp": 2, "dp": 4, "ep": 8}, {}, (8, 8, 2, 2, 8), id="of two"),
        pytest.param("sglang", {"tp": 2, "dp": 4}, {}, (8, 8, 2, 2, 8), id="experts in slices"),
        pytest.param("sglang", {"tp": 8}, WHOLE_DENSE, (1, 8, 8, 8, 8), id="whole dense layers, one copy"),
        pytest.param("sglang", {"dp": 8, "ep": 8}, WHOLE_DENSE, (1, 8, 1, 1, 8), id="and several"),
        pytest.param("sglang", {"tp": 2, "dp": 4, "ep": 8}, DEEPEP, (8, 1, 2, 2, 8), id="tokens sent to experts"),
        pytest.param("sglang", {"tp": 2, "dp": 4, "ep": 8}, HEAD_OF_COPY, (8, 8, 2, 2, 2), id="a copy's head"),
        pytest.param("sglang", {"tp": 8}, HEAD_OF_COPY, (8, 8, 8, 8, 8), id="one copy's: no effect"),
        pytest.param(
            *("sglang", {"tp": 2, "dp": 4, "ep": 8}, WHOLE_DENSE | HEAD_OF_COPY | DEEPEP, (1, 1, 2, 2, 2)),
            id="all flags",
        ),
        pytest.param("vllm", {"dp": 8, "ep": 8}, {}, (1, 1, 1, 1, 1), id="vLLM's hold theirs whole"),
        pytest.param("vllm", {"tp": 2, "dp": 4, "ep": 8}, {}, (2, 1, 2, 2, 2), id="or the shared experts alone"),
        pytest.param("vllm", {"tp": 2, "dp": 4}, {}, (2, 2, 2, 2, 2), id="vLLM's experts in slices"),
        pytest.param("vllm", {"tp": 8, "ep": 8}, {}, (8, 8, 8, 8, 8), id="vLLM's one copy"),
        pytest.param("tensorrt-llm", {"dp": 8, "ep": 8}, {}, (1, 1, 1, 1, 1), id="and TensorRT-LLM's"),
    ],
)
def test_what_a_rank_of_copies_holds(engine, layout, options, parts):
    """layers/linear.py, `_resolve_linear_group`: the group of all ranks but where a layer names another; models/
    deepseek_v2.py names that of a copy (`attn_tp`) for attention, `get_embedding_tp_kwargs` for the embedding; dense
    feed-forwards and shared experts take all (`mlp_parallel_group`, `_shared_expert_use_tp1`) without
    --moe-dense-tp-size 1 and --moe-a2a-backend, the head without --enable-dp-lm-head, which overrides.py,
    `_data_parallelism_defaults`, takes back where there is one copy. vLLM 0.33, models/deepseek_v2.py: `disable_tp` of
    shared experts where `ParallelConfig.use_sequence_parallel_moe`."""
    kind = ENGINES[engine]
    started = kind(kind.options_type(**options))
    rank = started.rank(Architecture.from_config(models()[V3].config), Layout(**layout))
    numels = {tensor.name: tensor.numel for tensor in rank.tensors()}
    assert [rows * columns // numels[name] for name, (rows, columns) in V3_SIDES.items()] == [*parts]


@pytest.mark.parametrize(
    ("model", "rows"),
    [  # rows of the embedding on a rank of two in each of four copies, by config.json: vocab_size
        pytest.param("Qwen/Qwen3.5-35B-A3B", 248_320, id="qwen3_5.py: enable_tp=not is_dp_attention_enabled()"),
        pytest.param("deepseek-ai/DeepSeek-V4-Flash", 129_280, id="deepseek_v4.py"),
        pytest.param("inclusionAI/Ling-3.0-flash", 157_184, id="bailing_moe_v3.py"),
        pytest.param("Qwen/Qwen3-235B-A22B", 151_936 // 2, id="qwen2_moe.py: use_attn_tp_group"),
        pytest.param(V3, 129_280 // 2, id="deepseek_v2.py: get_embedding_tp_kwargs()"),
    ],
)
def test_embeddings_that_copies_hold_whole(model, rows):
    """layers/vocab_parallel_embedding.py: without `enable_tp` it is not divided, though the attention is."""
    architecture, engine = Architecture.from_config(models()[model].config), SGLang()
    assert architecture.vocab in (rows, 2 * rows)
    assert engine.rank(architecture, Layout(tp=2, dp=4, ep=8)).vocab == rows
    assert engine.rank(architecture, Layout(tp=2)).vocab == architecture.vocab // 2


def test_bytes_that_copies_share():
    """DeepSeek-V3's dense layers, 3 x 3 x 7168 x 18432, shared experts, 58 x 3 x 7168 x 2048, of a byte and 1/4096 for
    scales of 128 x 128, and head, 129280 x 7168 of two: of each seven of eight parts are on other ranks."""
    copies = Layout(dp=8, ep=8)
    whole, shared = (
        Serving.of(
            Architecture.from_config(models()[V3].config), engine(), Precision(weights="fp8"), copies, Overhead()
        )
        for engine in (ENGINES["vllm"], SGLang)
    )
    matrices, head = 3 * 3 * 7168 * 18_432 + 58 * 3 * 7168 * 2048, 129_280 * 7168 * 2
    more = (matrices + matrices // 4096 + head) * 7 // 8
    assert whole.laid_out.stages[0].weights - shared.laid_out.stages[0].weights == more == 4_897_977_280


def refusals(model, precision=None, layout=None, gpu=None, **options):
    engine, architecture = SGLang(SGLangOptions(**options)), Architecture.from_config(models()[model].config)
    question = Question(architecture, precision or Precision(weights="fp8"), layout or Layout(dp=8, ep=8))
    if gpu is not None:
        laid_out = Serving.of(*question[:1], engine, *question[1:3], Overhead()).laid_out
        question = question._replace(laid_out=laid_out, gpu=gpus()[gpu])
    return [*engine.refusals(question)]


@pytest.mark.parametrize(("ranks", "options"), [(8, {}), (16, {}), (32, WHOLE_DENSE | DEEPEP)])
def test_ranks_that_divide_deepseek_v3(ranks, options):
    """18,432 columns of a dense layer and 2,048 of a shared expert in tiles of 128: 144 and 16, over 8 and 16 ranks; on
    32 both stand whole (github.com/SemiAnalysisAI/InferenceX/pull/1157: --moe-dense-tp-size 1, --moe-a2a-backend)."""
    assert refusals(V3, layout=Layout(dp=ranks, ep=ranks), gpu="h200-sxm", **options) == []


def test_ranks_that_leave_no_whole_tiles_are_refused_with_the_flag():
    """fp8.py, `validate_block_quant_shapes`: over 32 ranks a dense layer has 576 columns, a shared expert 64."""
    copies = Layout(dp=32, ep=32)
    refused = refusals(V3, layout=copies)
    assert [(str(why.message), why.field, why.nearest) for why in refused] == [
        (
            "18,432 columns over 32 GPUs are 576 each, not whole fp8 tiles of 128: --moe-dense-tp-size 1 leaves them "
            "whole on each GPU.",
            "moe_dense_tp_size",
            [1],
        ),
        (
            "2,048 columns over 32 GPUs are 64 each, not whole fp8 tiles of 128: --moe-a2a-backend deepep leaves them "
            "whole on each GPU.",
            "moe_a2a_backend",
            ["deepep"],
        ),
    ]
    assert [why.field for why in refusals(V3, layout=copies, **WHOLE_DENSE)] == ["moe_a2a_backend"]
    assert [why.field for why in refusals(V3, layout=Layout(tp=32, ep=32))] == ["moe_dense_tp_size", "moe_a2a_backend"]


def test_what_copies_hold_whole_by_flags_is_what_those_of_vllm_hold():
    """DeepSeek-V3 on 8 ranks: each has dense layers, shared experts and the head whole, and 32 of 256 experts."""
    copies, flags = Layout(dp=8, ep=8), WHOLE_DENSE | HEAD_OF_COPY | DEEPEP
    by_engine = (
        Serving.of(Architecture.from_config(models()[V3].config), engine, Precision(weights="fp8"), copies, Overhead())
        for engine in (ENGINES["vllm"](), SGLang(SGLangOptions(**flags)))
    )
    vllm, sglang = (serving.laid_out.stages[0].weights for serving in by_engine)
    assert sglang == vllm


@pytest.mark.parametrize(
    ("model", "layout", "options", "said"),
    [
        # overrides.py, _a2a_ep_size; token_dispatcher/deepep.py: `num_experts % group.size() == 0`
        pytest.param(V3, Layout(dp=8), DEEPEP, "spreads the experts over all 8 ranks", id="slices"),
        # fused_moe_triton/layer.py: `assert self._num_global_routed % storage_ep_size == 0`
        pytest.param("Qwen/Qwen3-30B-A3B", Layout(dp=6, ep=6), {}, "128 do not divide over 6", id="uneven experts"),
        pytest.param("Qwen/Qwen1.5-MoE-A2.7B", Layout(tp=8, ep=8), {}, "60 do not divide over 8", id="on 8 ranks"),
        # models/gpt_oss.py: NotImplementedError; models/mixtral.py sums over all ranks whatever the backend is
        pytest.param("openai/gpt-oss-120b", None, DEEPEP, "by DeepEP in the family gpt_oss", id="gpt-oss"),
        pytest.param("mistralai/Mixtral-8x7B-v0.1", None, DEEPEP, "by DeepEP in the family mixtral", id="Mixtral"),
        pytest.param(LLAMA, Layout(), DEEPEP, "routed experts, which this model does not have", id="no experts"),
        # models/llama.py: no is_dense_ffn_fully_dp
        pytest.param(LLAMA, Layout(tp=2), WHOLE_DENSE, "dense feed-forwards of the family llama", id="a dense model"),
        # overrides.py, _dp_lm_head_validation: "requires attention DP"; models/minimax_m2.py: a head of all ranks
        pytest.param(LLAMA, Layout(dp=2), HEAD_OF_COPY, "goes with copies of the attention", id="servers"),
        pytest.param(
            "MiniMaxAI/MiniMax-M2.7", None, HEAD_OF_COPY, "the LM head of the family minimax_m2", id="no head"
        ),
    ],
)
def test_flags_that_do_not_go_with_a_model(model, layout, options, said):
    assert [why for why in refusals(model, layout=layout, **options) if said in str(why.message)]


def test_deepep_runs_fp8_on_hopper_and_blackwell():
    """ep_moe/layer.py: experts in 16 bits name no kernel ("supports low_latency mode only"), those in fp8 run DeepGEMM,
    deep_gemm_wrapper/configurer.py: from compute capability 9.0. DeepSeek-V4's file is of `Fp8Config` too, with experts
    in FP4."""
    assert "in block fp8" in str(refusals("Qwen/Qwen3-30B-A3B", Precision(), **DEEPEP)[0].message)
    assert refusals("Qwen/Qwen3-30B-A3B", gpu="h100-sxm", **DEEPEP) == []
    assert "DeepGEMM" in str(refusals("Qwen/Qwen3-30B-A3B", gpu="a100-sxm-80gb", **DEEPEP)[0].message)
    v4 = Precision.of(models()["deepseek-ai/DeepSeek-V4-Flash"].config, None, None)
    assert refusals("deepseek-ai/DeepSeek-V4-Flash", v4, gpu="b200", **DEEPEP) == []


@pytest.mark.parametrize(
    ("model", "runs"),
    [  # models/: how the embedding and QKVParallelLinear are divided
        pytest.param("mistralai/Mixtral-8x7B-v0.1", False, id="mixtral.py: over all ranks"),
        pytest.param("baidu/ERNIE-4.5-21B-A3B-PT", False, id="ernie4.py: no use_attn_tp_group"),
        pytest.param("allenai/OLMoE-1B-7B-0924", False, id="olmoe.py"),
        pytest.param("moonshotai/Kimi-Linear-48B-A3B-Instruct", False, id="kimi_linear.py: shard_on_attn_tp=False"),
        pytest.param("ibm-granite/granite-4.0-h-small", False, id="granitemoehybrid.py"),
        pytest.param("google/gemma-4-26B-A4B", False, id="gemma4_causal.py: QKVParallelLinear over all ranks"),
        pytest.param("tencent/Hy3", False, id="hunyuan_v3.py"),
        pytest.param("moonshotai/Kimi-K3", True, id="kimi_k3.py: get_embedding_tp_kwargs()"),
        pytest.param("openai/gpt-oss-120b", True, id="gpt_oss.py: use_attn_tp_group"),
        pytest.param("meta-llama/Llama-4-Scout-17B-16E-Instruct", True, id="llama4.py: use_attn_tp_group"),
        pytest.param(V3, True, id="deepseek_v2.py: get_embedding_tp_kwargs()"),
    ],
)
def test_families_whose_attention_has_copies(model, runs):
    """layers/vocab_parallel_embedding.py, `forward`: without use_attn_tp_group rows of tokens that differ from copy to
    copy are added up over all ranks; dp_attention.py calls the like wrong (`reject_attn_tp_shard_with_tp_reduce`)."""
    refused = refusals(model, Precision(), Layout(dp=2, ep=2))
    assert runs == (not [why for why in refused if why.field == "dp" and "copies of the attention" in str(why.message)])
    assert not [why for why in refusals(model, Precision(), Layout(tp=2)) if why.field == "dp"]


@pytest.mark.parametrize(
    ("model", "tp", "rows"),
    [  # rows of a table on a rank, by config.json: vocab_size
        pytest.param("google/gemma-3-27b-it", 2, 262_208, id="gemma3_causal.py: nn.Embedding"),
        pytest.param("google/gemma-3-27b-it", 8, 262_208, id="on 8 ranks as well"),
        pytest.param("google/gemma-4-31B-it", 2, 262_144, id="gemma4_causal.py: the same class"),
        pytest.param("google/gemma-2-27b", 2, 128_000, id="gemma2.py: VocabParallelEmbedding"),
    ],
)
def test_embeddings_that_every_rank_holds_whole(model, tp, rows):
    """gemma3_causal.py: `lm_head = self.model.embed_tokens` where the two are tied."""
    tables = SGLang().rank(Architecture.from_config(models()[model].config), Layout(tp=tp)).tensors()
    assert [tensor.shape[0] for tensor in tables if tensor.component in ("embedding", "lm_head")] == [rows]


@pytest.mark.parametrize(
    ("config", "layout", "said"),
    [
        pytest.param("HuggingFaceTB/SmolLM3-3B", Layout(tp=4), None, id="4 KV heads on 4 ranks"),
        pytest.param("HuggingFaceTB/SmolLM3-3B", Layout(tp=8), "4 do not divide over 8", id="and on 8"),
        pytest.param("meta-llama/Llama-3.1-8B", Layout(tp=16), None, id="llama.py repeats 8 KV heads"),
        pytest.param(
            {"model_type": "nemotron"}, Layout(tp=2), "tensor-parallel ranks (tp)", id="no base_model_tp_plan"
        ),
        pytest.param({"model_type": "nemotron"}, Layout(pp=2), "pipeline stages (pp)", id="no base_model_pp_plan"),
        pytest.param({"model_type": "nanochat"}, Layout(pp=2), "pipeline stages (pp)", id="one for ranks alone"),
        pytest.param({"model_type": "nanochat"}, Layout(tp=2), None, id="ranks"),
        pytest.param({"model_type": "smollm3"}, Layout(pp=2), None, id="both"),
        pytest.param(
            "meta-llama/Llama-3.2-3B", Layout(pp=2), "no head on the last pipeline stage", id="llama.py: tied"
        ),
        pytest.param("meta-llama/Llama-3.1-8B", Layout(pp=2), None, id="llama.py: a head of its own"),
        pytest.param("Qwen/Qwen3-0.6B", Layout(pp=2), None, id="qwen3.py: tied, a head of its own on the last"),
        pytest.param(
            "ibm-granite/granite-4.0-h-tiny",
            Layout(pp=2),
            "no head on the last pipeline stage",
            id="granitemoehybrid.py: tied",
        ),
        pytest.param({"model_type": "phi3small"}, Layout(tp=16), "8 do not divide over 16", id="phi3_small.py: assert"),
    ],
)
def test_layouts_that_a_class_does_not_divide(config, layout, said):
    """models/transformers.py: `divide(num_kv_heads, tp_size)`; ValueErrors "does not support tensor parallel yet!" and
    "does not support pipeline parallel yet!", by the configs of transformers 5.19, which 0.5.23 installs. llama.py:
    `lm_head = self.model.embed_tokens`, which is a PPMissingLayer on the last rank."""
    architecture = Architecture.from_config(models()[config].config if isinstance(config, str) else config)
    refused = [str(refusal.message) for refusal in SGLang().layout_refusals(architecture, Precision(), layout)]
    assert refused == [] if said is None else any(said in message for message in refused)


@pytest.mark.parametrize(
    ("gpu", "kv", "stored"),
    [
        *(("b200", "bf16", "fp8"), ("rtx-5090", "bf16", "fp8"), ("h200-sxm", "bf16", "bf16")),
        *(("h200-sxm", "fp8", "fp8"), ("mi300x", "bf16", "bf16")),
    ],
)
def test_the_cache_of_sparse_attention(gpu, kv, stored):
    """overrides.py, _dsa_kv_cache_dtype_default: fp8_e4m3 where `major >= 10`, else bfloat16, if the flag is auto."""
    architecture = Architecture.from_config(models()["zai-org/GLM-5.1"].config)
    assert stored_cache(architecture, kv, gpus()[gpu]) == stored


def test_embeddings_of_layers_are_on_one_stage_where_there_are_graphs():
    """gemma4_causal.py, ValueError: "Pipeline parallelism is currently incompatible with per-layer-input (PLE)
    embeddings under CUDA graph", where hidden_size_per_layer_input is not 0: 256 by default, as in Gemma 4 E4B."""
    config = {"model_type": "gemma4_text"}

    def refused(config, **flags):
        architecture = Architecture.from_config(config)
        engine = SGLang(SGLangOptions(**flags))
        return [why.field for why in engine.layout_refusals(architecture, Precision(), Layout(pp=2))]

    assert refused(config) == ["pp"]
    assert refused(config, disable_cuda_graph=True) == refused(config | {"hidden_size_per_layer_input": 0}) == []


def test_a_pass_of_one_of_several_copies():
    """Bytes of tensors of DeepSeek-V3 in 16 bits on 8 copies. parallel_hook.py, handle_data_parallelism:
    chunked_prefill_size // attn_dp_size, 8,192 // 8, in attention, whose 128 queries are 192 wide; a dense layer, of
    18,432 columns over 8 ranks, and 8 experts of 2,048 columns take those of all copies (dp_attention.py,
    dp_gather_partial; moe_runner/triton_utils/fused_moe.py: num_tokens * topk rows)."""
    architecture, engine, layout = Architecture.from_config(models()[V3].config), SGLang(), Layout(dp=8, ep=8)
    serving = Serving.of(architecture, engine, Precision(), layout, Overhead())
    limits = engine.limits(Workload(), gpus()["h200-sxm"], architecture, layout)
    assert (limits.step_tokens, limits.stated_step) == (1024, 8192)
    tensors = [peak.tensors for peak in engine.peaks(serving.laid_out, 0, limits)]
    expected = {
        "queries": 2 * 1024 * 128 * 192,
        "gate and up": 2 * 8192 * 2 * 18_432 // 8,
        "gate and up of each expert": 2 * 8192 * 8 * 2 * 2048,
    }
    assert expected.items() <= {name: nbytes for peak in tensors for name, nbytes in peak.items()}.items()
    assert {change.get("chunked_prefill_size") for change in engine.remedies(limits, Workload())} >= {4096, 2048, 1024}


def test_copies_that_do_not_divide_dense_layers_are_refused():
    """layers/linear.py, `divide`: 500 columns of a shared expert are no whole number on each of 8 ranks."""
    config = models()["Qwen/Qwen3-Next-80B-A3B-Instruct"].config | {"shared_expert_intermediate_size": 500}
    refusals = SGLang().layout_refusals(Architecture.from_config(config), Precision(), Layout(dp=8, ep=8))
    assert [str(refusal.message) for refusal in refusals] == [
        "SGLang divides 500 columns of the feed-forward over all 8 ranks, which is not even."
    ]
