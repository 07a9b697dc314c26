"""Verdicts, the flags and layouts that they name, and the largest and fewest that fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calc import Architecture, Layout, Overhead, Precision, Range, Workload, report
from calc.families import override
from calc.hardware.parallel import shapes
from calc.hardware.solver import largest, least
from calc.serving.engines import ENGINES
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.fewest import fewest_gpus
from calc.serving.memory import Serving
from calc.units import GIB
from presets import gpus, models

GPT_OSS, V3 = "openai/gpt-oss-120b", "deepseek-ai/DeepSeek-V3"
JAMBA = "ai21labs/AI21-Jamba-Large-1.5"


def weigh(model, gpu, weights=None, engine="vllm", layout=None, overhead=None, batch=1, context=8192, **options):
    """The verdict and the KV budget of one GPU."""
    kind, config = ENGINES[engine], models()[model].config
    found = report(
        config,
        engine=kind(kind.options_type(**options)),
        workload=Workload(batch=batch, context=context),
        precision=Precision.of(config, weights),
        layout=layout,
        overhead=overhead,
        gpus=[gpus()[gpu]],
    )
    return found.verdicts[0], (*found.kv_budget, None)[0]


@pytest.mark.parametrize(
    ("model", "gpu", "weights", "word", "fewest"),
    [  # what people run, and what they ask about because it does not
        pytest.param("Qwen/Qwen2.5-3B", "v100-sxm2-16gb", "fp16", "fits", [1], id="5.7 GiB of weights on 16"),
        pytest.param("mistralai/Mistral-7B-v0.1", "v100-sxm2-16gb", "fp16", "fits with", [2], id="13.5 GiB of 16"),
        pytest.param(
            "mistralai/Mistral-7B-v0.1", "v100-sxm2-32gb", "fp16", "fits", [1], id="13.5 GiB of weights on 32"
        ),
        pytest.param(  # 0.92 of two, 146 GiB, hold the weights and a request of 1,024 tokens
            "meta-llama/Llama-3.1-70B", "h100-sxm", "bf16", "does not fit", [2], id="131 GiB of weights on 80"
        ),
        pytest.param(  # eight are too few, and two nodes of eight are what its makers and vLLM's docs run it on
            V3, "h100-sxm", "fp8", "does not fit", range(9, 17), id="625 GiB of weights on 80"
        ),
        pytest.param(GPT_OSS, "h100-sxm", "mxfp4", "fits", [1], id="66 GiB, made for one of 80"),
    ],
)
def test_known_answers(model, gpu, weights, word, fewest):
    found, _ = weigh(model, gpu, weights, context=1024)
    assert found.verdict == word
    assert found.min_gpus in fewest


@pytest.mark.parametrize(
    ("model", "gpu", "word", "fewest"),
    [  # an engine that takes what it needs
        ("mistralai/Mistral-7B-v0.1", "v100-sxm2-16gb", "fits", 1),
        ("meta-llama/Llama-3.1-70B", "h100-sxm", "does not fit", 2),
    ],
)
def test_known_answers_of_transformers(model, gpu, word, fewest):
    found, _ = weigh(model, gpu, "fp16", "transformers", context=1024)
    assert (found.verdict, found.min_gpus) == (word, fewest)


def test_gpt_oss_120b_on_one_h100():
    """github.com/vllm-project/vllm/issues/23278: vLLM 0.10.1 has -2.14 GiB of cache by default. /27508: with 0.95 of
    the GPU and 1,024 batched tokens it has 1.71 GiB, where a request of 131,072 tokens needs 4.54."""
    usual, budget = weigh(GPT_OSS, "h100-sxm", version="0.10.1")
    assert usual.verdict != "fits"
    assert budget.bytes_high < 0
    assert budget.bytes / GIB == pytest.approx(-2.14, abs=0.3)
    stated = {"version": "0.10.1", "gpu_memory_utilization": 0.95, "max_num_batched_tokens": 1024}
    found, budget = weigh(GPT_OSS, "h100-sxm", **stated)
    assert (found.verdict, found.flags) == ("fits", ())
    assert budget.bytes_low / GIB <= 1.71 <= budget.bytes_high / GIB + 0.005
    long, _ = weigh(GPT_OSS, "h100-sxm", context=131_072, **stated)
    assert long.verdict == "fits with"
    assert "131,072 tokens, which need 4.54 GiB each" in str(long.reason)


@pytest.mark.parametrize(
    ("share", "tokens"),
    [(0.9, 435_036), (0.85, 330_711), (0.8, 226_386), (0.75, 122_020), (0.7, 17_695), (0.675, 0), (0.65, 0)],
)
def test_states_outside_of_the_cache_decide_whether_it_starts(share, tokens):
    """NIM 1.12.2, which is vLLM 0.10.0 with its first engine, on an RTX 5090 of 31.84 GiB: a public sweep of the share
    by 32 sequences of 4,096 tokens, whose tokens are the concurrency that it prints times 4,096; with 0 it finds no
    memory for cache blocks."""
    stated = {"version": "0.10.0", "max_num_seqs": 32, "gpu_memory_utilization": share}
    verdict, budget = weigh("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "rtx-5090", context=4096, **stated)
    assert (verdict.verdict == "fits") == (tokens > 0)
    if tokens:
        assert 16_384 * abs(budget.tokens - tokens) < 0.01 * 31.84 * GIB
        assert abs(budget.bytes - 16_384 * tokens) < 0.01 * 31.84 * GIB  # what it has left beside states
    else:
        assert "4.28 GiB aside for up to 32 sequences" in str(verdict.reason)


def test_deepseek_v3_on_eight_h200():
    """64 sequences of 32,768 tokens. With TP the latent of all, 64 x 32,768 x 70,272 bytes, is on every GPU; with
    copies of the attention that of eight sequences is. Layouts of at most eight GPUs do."""
    stated = Overhead(libraries=Range(low=0.2, high=1.84), cuda_graphs=Range(low=0, high=2.4))
    latent, asked = 32_768 * 70_272, {"batch": 64, "context": 32_768, "overhead": stated}
    divided, budget = weigh(V3, "h200-sxm", layout=Layout(tp=8), **asked)
    assert divided.verdict == "does not fit"
    assert divided.memory.kv_cache == 64 * latent
    assert divided.spare == budget.bytes - 64 * latent
    copied, budget = weigh(V3, "h200-sxm", layout=Layout(dp=8, ep=8), **asked)
    assert (copied.verdict, copied.gpus) == ("fits", 8)
    assert copied.memory.kv_cache == 8 * latent
    assert copied.max_batch == 8 * int(budget.concurrency) >= 64
    # The whole GPU, sampling for the sequences of the batch and no copy of kv_b_proj left 23 GiB; a share of 0.92, its
    # sampling for 1,024 (1.7 GiB), the counts of their words (0.5) and what it loads leave 11.9 less. Experts make room
    # for 8 x 8,192 tokens of all copies, each 8 x (7,168 + 2,048) and 3 x 7,168 wide: 11.6 GiB and counts, not
    # the 2.4 that sampling takes
    assert copied.spare / GIB == pytest.approx(1.3, abs=0.1)
    for verdict in (divided, copied):
        assert verdict.min_gpus <= 8
        found, _ = weigh(V3, "h200-sxm", layout=verdict.layout, **asked)
        assert (found.verdict, found.gpus) == ("fits", verdict.min_gpus)


def test_copies_of_the_attention_are_found():
    """One H200 too few for stages alone: eight copies with the experts of all do for 256 users what TP 8 does not."""
    found, _ = weigh(V3, "h200-sxm", batch=256, context=16_384, layout=Layout(tp=8))
    assert found.verdict == "does not fit"
    again, _ = weigh(V3, "h200-sxm", batch=256, context=16_384, layout=found.layout)
    assert again.verdict == "fits"


@pytest.mark.parametrize(
    ("model", "gpu", "options", "flags"),
    [
        pytest.param("Qwen/Qwen3.6-27B", "h100-sxm", {}, ("--max-num-seqs 256",), id="a state for each sequence"),
        pytest.param(
            "mistralai/Mistral-7B-v0.1",
            "v100-sxm2-16gb",
            {"weights": "fp16", "context": 1024},
            ("--enforce-eager",),
            id="no graphs",
        ),
        pytest.param(
            "openai/gpt-oss-120b",
            "h100-sxm",
            {"mxfp4_kernel": "marlin", "context": 131_072},
            ("--gpu-memory-utilization 0.95", "--max-num-seqs 256"),
            id="two flags where one does not do",
        ),
        pytest.param("meta-llama/Llama-3.1-70B", "h100-sxm", {}, (), id="no flag makes 131 GiB fit 80"),
        pytest.param("Qwen/Qwen3-8B", "h100-sxm", {}, (), id="no flag is needed"),
        pytest.param(
            "openai/gpt-oss-120b",
            "h100-sxm",
            {"mxfp4_kernel": "marlin", "max_num_seqs": 1024, "context": 131_072},
            ("--gpu-memory-utilization 0.95", "--enforce-eager"),
            id="a flag that is set stays",
        ),
    ],
)
def test_the_least_change_of_flags(model, gpu, options, flags):
    found, _ = weigh(model, gpu, **options)
    assert found.flags == flags
    assert (found.verdict == "fits with") == bool(flags)


@pytest.mark.parametrize(
    ("gpu", "options", "blocks"),
    [  # github.com/vllm-project/recipes/pull/551; start-up logs of 0.20.2 and 0.25.1
        ("h100-sxm", {"version": "0.20", "weights": "fp8", "gpu_memory_utilization": 0.95, "context": 262_144}, 856),
        ("rtx-pro-6000-ws", {"version": "0.20", "gpu_memory_utilization": 0.9, "context": 8192}, 615),
        ("h100-sxm", {"version": "0.25", "gpu_memory_utilization": 0.9, "context": 4096}, 312),
    ],
)
def test_a_hybrid_starts_with_a_state_for_each_sequence(gpu, options, blocks):
    """vLLM refused these starts: "max_num_seqs (1024) exceeds available Mamba cache blocks (...)"."""
    found, budget = weigh("Qwen/Qwen3.6-27B", gpu, **options)
    assert (found.verdict, found.flags) == ("fits with", ("--max-num-seqs 256",))
    assert budget.blocks == pytest.approx(blocks, rel=0.08)
    assert "up to 1,024 sequences at once" in str(found.reason)
    eager, _ = weigh("Qwen/Qwen3.6-27B", gpu, **options, enforce_eager=True)
    assert eager.verdict == "fits"


def test_the_range_of_the_overhead_decides():
    """Mistral 7B on a V100-16 with no graphs and most flags stated: 13.5 of 14.8 GiB; libraries may take 0.01 to 1."""
    stated = {"weights": "fp16", "enforce_eager": True, "gpu_memory_utilization": 0.94, "max_num_seqs": 1}
    stated |= {"max_num_batched_tokens": 64, "context": 1024}
    for high, word in ((0.1, "fits"), (2, "tight")):
        overhead = Overhead(libraries=Range(low=0.01, high=high))
        found, budget = weigh("mistralai/Mistral-7B-v0.1", "v100-sxm2-16gb", overhead=overhead, **stated)
        assert found.verdict == word
        assert (budget.bytes_low > 0) == (word == "fits")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param(
            {"model": "Qwen/Qwen3-8B"},
            "The cache of {cache:.2f} GiB holds {b.concurrency:.2f} requests of 8,192 tokens; one needs {need:.2f} "
            "GiB.",
            id="it starts and holds them",
        ),
        pytest.param(
            {"model": "Qwen/Qwen3-8B", "batch": 64},
            "The cache of {cache:.2f} GiB holds {b.concurrency:.2f} requests of 8,192 tokens; 64 need {need:.2f} GiB.",
            id="it starts and holds fewer",
        ),
        pytest.param(
            {"model": "meta-llama/Llama-3.1-70B"},
            "vLLM does not start: it takes {takes:.2f} GiB, and {held:.2f} are needed before there is any cache; the "
            "largest part is the weights with {loaded:.2f}.",
            id="weights are too many",
        ),
        pytest.param(
            {"model": "Qwen/Qwen3-8B", "context": 1_000_000},
            "vLLM refuses requests of 1,000,000 tokens, which need {need:.2f} GiB each: the cache of {cache:.2f} GiB "
            "holds at most {longest:,}.",
            id="too long",
        ),
        pytest.param(
            {"model": GPT_OSS, "mxfp4_kernel": "marlin", "gpu_memory_utilization": 0.895},
            "Whether vLLM starts depends on the overhead: it leaves 0.00 to {most:.2f} GiB for the cache, of which a "
            "request of 8,192 tokens needs {need:.2f}.",
            id="the range decides whether it starts",
        ),
        pytest.param(
            {"model": "Qwen/Qwen3-8B", "batch": 48},
            "The cache holds {b.concurrency_low:.2f} to {b.concurrency_high:.2f} requests of 8,192 tokens, by what "
            "overhead takes.",
            id="the range decides what it holds",
        ),
        pytest.param(
            {"model": "Qwen/Qwen3-8B", "gpu_memory_utilization": 1},
            "vLLM does not start: it sets {takes:.2f} GiB aside, and the GPU has {outside:.2f} GiB too little for that "
            "and what lies outside.",
            id="the share is not free",
        ),
        pytest.param(
            {"model": "Qwen/Qwen3-8B", "engine": "transformers"},
            "{left:.2f} GiB are left for overhead, which takes {low:.2f} to {high:.2f} GiB.",
            id="nothing is set aside",
        ),
        pytest.param(
            {"model": "meta-llama/Llama-3.1-70B", "engine": "transformers"},
            "Weights, cache and activations need {parts:.2f} GiB before any overhead, {over:.2f} more than there are; "
            "the largest part is the weights with {weights:.2f}.",
            id="nothing is set aside, and it does not fit",
        ),
    ],
)
def test_the_reason_says_what_card_and_table_say(options, sentence):
    found, budget = weigh(gpu="h100-sxm", **options)
    memory = found.memory
    parts = memory.total - memory.overhead
    figures = {
        "need": memory.kv_cache,
        "weights": memory.weights,
        "parts": parts,
        "over": parts - found.usable,
        "left": found.usable - parts,
        "low": memory.overhead_low,
        "high": memory.overhead_high,
    }
    if budget is not None:
        figures |= {
            "cache": budget.bytes,
            "most": budget.bytes_high,
            "takes": budget.requested,
            "held": budget.requested - budget.bytes,
            "loaded": budget.weights,
            "outside": (budget.outside_low + budget.outside_high) // 2,
        }
    sizes = {name: size / GIB for name, size in figures.items()}
    longest = 0 if budget is None else (budget.blocks - 1) * budget.block_size  # one is the null block
    assert str(found.reason) == sentence.format(b=budget, longest=longest, **sizes)
    assert "fit" not in str(found.reason)


@given(st.integers(0, 1000), st.integers(1, 1000), st.integers(1, 2000), st.integers(1, 2000) | st.none())
def test_solvers(limit, most, near, step):
    assert largest(lambda n: n <= limit, most, near, step) == min(limit, most)
    assert least(lambda n: n >= limit, most, near) == (max(near, limit) if max(near, limit) <= most else None)


def test_a_larger_card_never_fits_less():
    """Of cards for which an engine has the same defaults and the same overhead."""
    config = models()["meta-llama/Llama-3.1-8B"].config
    alike = VLLM(VLLMOptions(max_num_batched_tokens=2048, max_num_seqs=256))
    alone = [gpu for gpu in gpus().values() if gpu.platform == "cuda" and gpu.memory == "dedicated"]
    cards = sorted(alone, key=lambda gpu: gpu.usable_bytes)[::5]
    for engine in (ENGINES["transformers"](), alike):
        found = report(config, engine=engine, gpus=cards).verdicts
        assert [v.gpu for v in found] == [gpu.id for gpu in cards]
        contexts = [v.max_context_memory for v in found]
        assert contexts == sorted(contexts)
        assert len(set(contexts)) > 5


@pytest.mark.parametrize(
    ("batch", "options", "notes"),
    [
        (1, {}, []),
        (2000, {}, ["vLLM runs at most 1,024 sequences at once; the others wait."]),
        (2000, {"max_num_seqs": 2000}, []),
    ],
)
def test_sequences_that_wait_are_noted(batch, options, notes):
    found, _ = weigh("Qwen/Qwen2.5-3B", "h100-sxm", batch=batch, context=100, **options)
    assert list(map(str, found.notes)) == notes


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "batch", "context"),
    [
        pytest.param("deepseek-ai/DeepSeek-V3", "h100-sxm", "vllm", 8, 9000, id="experts"),
        pytest.param("Qwen/Qwen3-14B", "v100-sxm2-16gb", "vllm", 64, 9000, id="cache"),
        pytest.param("google/gemma-3-27b-it", "a100-sxm-40gb", "vllm", 64, 9000, id="windows"),
        pytest.param("deepseek-ai/DeepSeek-V4-Flash", "h100-sxm", "vllm", 640, 9000, id="packed"),
        pytest.param("Qwen/Qwen3-14B", "a100-sxm-40gb", "sglang", 3, 9000, id="sglang"),
        pytest.param("ibm-granite/granite-4.0-h-small", "a100-sxm-80gb", "sglang", 3, 9000, id="states"),
        pytest.param("openai/gpt-oss-120b", "rtx-4090", "sglang", 3, 9000, id="a share that shrinks with ranks"),
        pytest.param("nvidia/Nemotron-H-8B-Base-8K", "l40s", "sglang", 64, 4096, id="fewer states on two stages"),
        pytest.param("Qwen/Qwen3-Next-80B-A3B-Instruct", "h100-sxm", "sglang", 64, 4096, id="states of three stages"),
        pytest.param("ibm-granite/granite-4.0-h-small", "rtx-4090", "sglang", 64, 4096, id="states of halved stages"),
        pytest.param("ibm-granite/granite-4.0-h-tiny", "rtx-2080-ti", "sglang", 8, 4096, id="a smaller share starts"),
        pytest.param(
            "nvidia/Llama-3_3-Nemotron-Super-49B-v1",
            "h100-sxm",
            "sglang",
            200,
            8192,
            id="stages of which some keep nothing",
        ),
        pytest.param("Qwen/Qwen3-14B", "v100-sxm2-16gb", "transformers", 3, 9000, id="transformers"),
    ],
)
def test_the_fewest_are_those_of_trying_every_layout(model, gpu, engine, batch, context):
    """Granite's with a head of its own: SGLang has no stages for one that is tied."""
    config = models()[model].config | ({"tie_word_embeddings": False} if "granite" in model else {})
    card, work = gpus()[gpu], Workload(batch=batch, context=context)
    architecture = Architecture.from_config(config)
    serving = Serving.of(architecture, ENGINES[engine](), Precision.of(config), Layout(), Overhead())
    found = fewest_gpus(card, serving, work)
    assert found is not None
    every = [
        (laid_out.gpus, laid_out.dp, -laid_out.tp)
        for shape in shapes(architecture)
        for stages in range(1, min(architecture.num_layers, found.gpus // shape.gpus) + 1)
        if (laid_out := shape.model_copy(update={"pp": stages}))
        and serving.accepts(laid_out)
        and serving.with_accepted_layout(laid_out).on(card, work).surely_fits
    ]
    assert min(every) == (found.gpus, found.dp, -found.tp)


@pytest.mark.parametrize("stated", [{"num_gpu_blocks_override": 4000}, {"kv_cache_memory_bytes": 2**29}], ids=list)
def test_a_stated_cache_is_not_bound_by_the_share(stated):
    """Weights of 165.5 GiB of a stage go beside it on a B200, of which 0.92 are 162.2 GiB (`determine_available_memory`
    and `get_kv_cache_configs`): nine of GLM-5.3 hold its 16 bits, not ten. No version holds more than a GPU has."""
    work, card = Workload(batch=1, context=16_384), gpus()["b200"]
    config = models()["zai-org/GLM-5.3"].config
    asked = Architecture.from_config(config), VLLM(VLLMOptions(**stated)), Precision(), Layout(), Overhead()
    assert fewest_gpus(card, Serving.of(*asked), work).gpus == 9
    for version in ("0.7", "0.33"):
        found, _ = weigh("meta-llama/Llama-3.1-70B", "l4", version=version, **stated)
        assert found.verdict == "does not fit"


def test_what_fits_is_no_more_than_the_fewest():
    """Two copies share the sequences for which one has too few stated blocks."""
    config, work = models()["Qwen/Qwen2.5-14B"].config, Workload(batch=16, context=4096)
    engine, precision = VLLM(VLLMOptions(num_gpu_blocks_override=2100)), Precision(weights="int8-gptq")
    found = report(
        config, workload=work, engine=engine, precision=precision, layout=Layout(tp=4, dp=2), gpus=[gpus()["l4"]]
    )
    (verdict,) = found.verdicts
    assert (verdict.verdict, verdict.min_gpus) == ("fits", 8)


@pytest.mark.parametrize(
    ("model", "layers", "gpu", "engine", "options"),
    [
        # SGLang keeps 128 MiB free for each rank of a server (`memory_hook.py`): of many none has a share of the GPU
        pytest.param(V3, 61, "rtx-4090", "sglang", {}, id="weights"),
        # 0.92 of 6 GB leave less than the largest CUDA context in public logs, which lies outside of vLLM's share
        pytest.param("Qwen/Qwen2.5-72B", 1023, "rtx-4050-laptop", "vllm", {}, id="context"),
        # 600 blocks of 16 tokens are no request of 32,768
        pytest.param("Qwen/Qwen3-30B-A3B", 1023, "h200-sxm", "vllm", {"num_gpu_blocks_override": 600}, id="blocks"),
        # graphs of 1024 sequences, an H100's default, read a block of states each (`resolve_cudagraph_mode_and_sizes`)
        pytest.param(JAMBA, 72, "h100-sxm", "vllm", {"num_gpu_blocks_override": 1000}, id="sequences"),
        # a third GPU gets none of two layers (llama-model.cpp, `get_layer_buft_list`)
        pytest.param(JAMBA, 72, "rtx-4090", "llamacpp", {"n_gpu_layers": 2}, id="layers"),
    ],
)
def test_layouts_without_room_are_not_laid_out(model, layers, gpu, engine, options):
    config = override(models()[model].config, {"num_hidden_layers": layers})
    kind = ENGINES[engine]
    serving = Serving.of(
        *(Architecture.from_config(config), kind(kind.options_type(**options)), Precision.of(config)),
        *(Layout(), Overhead()),
    )
    assert fewest_gpus(gpus()[gpu], serving, Workload(context=32_768)) is None
    several = [layout for layout in serving.layouts if layout.pp > 1]
    assert len(several) < 10
