"""Figures of public logs beside ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accuracy.cases import gpu_of
from benchmarks.accuracy.records import Run, run, runs
from calc import Architecture, ConfigError
from calc.serving.engines import LOGS as FORMATS
from calc.verify.logs import differences, largest, read_log, weigh_as
from presets import gpus, models
from tests import load
from tests.calc.verify.test_logs import GIB, LOGS, gib

VLLM = "https://github.com/vllm-project/vllm/issues/"
LOGGED = load("startup.json")
MEASURED = load("measured.json")


def ours(text, model):
    log, config = read_log(text), models()[model].config
    rows = differences(log, Architecture.from_config(config), weigh_as(log, config, gpus().values()))
    return {row.term: row for row in rows}, largest(rows)


def stated(row):
    """A row of the logs' list as the lines that vLLM wrote."""
    lines = [f"LLM engine (v{row['version']}) with config: tensor_parallel_size={row['tp']}, "]
    if row["max_model_len"]:
        lines += [f"Using max model len {row['max_model_len']}"]
    if row["weights_gib"] and row["quant"] == "bf16":
        lines += [f"Model loading took {row['weights_gib']} GiB"]
    if row["kv_gib"]:
        lines += [f"Available KV cache memory: {row['kv_gib']} GiB"]
    lines += [f"GPU KV cache size: {row['kv_tokens']:,} tokens"]
    if row["concurrency"]:
        lines += [f"Maximum concurrency for {row['max_model_len']:,} tokens per request: {row['concurrency']}x"]
    return "\n".join(lines)


TRAPS = {  # what the logs' list says of them
    VLLM + "13061": "the rank with the most memory in use",  # least tokens of all ranks, bytes of another
    VLLM + "19996": "a draft layer",  # EAGLE
    VLLM + "21348": "the rank with the most memory in use",  # 178,880 tokens, 1.1 % fewer than 8.11 GiB hold
}


@pytest.mark.parametrize("row", LOGGED, ids=lambda row: f"{row['model']}-{row['version']}")
def test_against_public_logs(row):
    found, _ = ours(stated(row), row["model"])
    cache = [found[term] for term in ("bytes per token", "concurrency") if term in found]
    assert cache
    trap = TRAPS.get(row["url"])
    assert [r.sentence for r in cache if not r.agrees and (trap is None or trap not in str(r.sentence))] == []
    assert trap is None or any(trap in str(r.sentence) for r in cache)
    assert "weights" not in found or found["weights"].agrees


QUANTIZATION = {
    "fp8": "fp8",
    "fp8-tensor": "fp8",
    "int4": "awq",
    "int4-w4a16": "gptq_marlin",
    "int8": "w8a8_int8",
    "mxfp4": "mxfp4",
    "nvfp4": "modelopt_fp4",
}
"""Our format -> what vLLM calls it."""
OTHERWISE = {  # records whose weights are not those of the config
    "Gemma-4-31B-IT-NVFP4": "in more bits than our nvfp4",  # leaves attention in 16 bits
    "Qwen2.5-1.5B": "fewer bits a weight than our bf16",  # tuned for 32,768 positions: a table of 8 MiB, not of 32
}


def lines(record, weights="bf16"):
    """A record of the measurements as vLLM writes it."""
    found, count, size = record["measured"], "{:,}".format, "{:.4f} GiB".format
    asked = {
        "tensor_parallel_size": record["tp"],
        "pipeline_parallel_size": record["pp"],
        "max_num_seqs": record["max_num_seqs"],
        "gpu_memory_utilization": record["gpu_memory_utilization"],
        "quantization": QUANTIZATION.get(weights),
        "speculative_config": "SpeculativeConfig(method='mtp')" if "MTP" in record["note"] else None,
    }
    version = f"v{record['version']}" if record["version"] else ""
    texts = [f"LLM engine ({version}) with config: " + "".join(f"{k}={v}, " for k, v in asked.items() if v is not None)]
    for figure, text in (
        ("weights_gib", "Model loading took {}"),
        ("act_peak_gib", "PyTorch activation peak memory takes {}"),
        ("kv_gib", "Available KV cache memory: {}"),
    ):
        if found.get(figure) is not None:
            texts.append(text.format(size(found[figure])))
    if (gpu := gpu_of(record)) is not None:
        texts.append(f"Free memory on device (1/{gpu.usable_bytes / GIB:.2f} GiB)")
    if record["max_num_batched_tokens"]:
        texts.append(f"Chunked prefill is enabled with max_num_batched_tokens={record['max_num_batched_tokens']}.")
    if record["max_model_len"]:
        texts.append(f"Using max model len {record['max_model_len']}")
    if found.get("kv_tokens"):
        texts.append(f"GPU KV cache size: {count(found['kv_tokens'])} tokens")
    if found.get("max_conc") and record["max_model_len"]:
        texts.append(
            f"Maximum concurrency for {count(record['max_model_len'])} tokens per request: {found['max_conc']}x"
        )
    if found.get("cudagraph_gib") is not None:
        texts.append(f"Graph capturing finished in 9 secs, took {found['cudagraph_gib']} GiB")
    return "\n".join(texts)


WEIGHED = [case for case in runs(MEASURED, "weights_gib") if isinstance(case, Run)]


def beside(case):
    log = read_log(lines(case.record, case.precision.weights))
    rows = differences(log, Architecture.from_config(case.config), weigh_as(log, case.config, gpus().values()))
    return {row.term: row for row in rows}


@pytest.mark.parametrize("case", WEIGHED, ids=lambda case: f"{case.record['model']}-{case.record['version']}")
def test_weights_of_public_logs(case):
    row = beside(case)["weights"]
    other = OTHERWISE.get(case.record["model"])
    assert row.agrees == (other is None)
    assert other is None or other in str(row.sentence)


KEPT = [case for case in runs(MEASURED, "kv_tokens") if isinstance(case, Run) and "kv_gib" in case.record["measured"]]


@pytest.mark.parametrize("case", KEPT, ids=lambda case: f"{case.record['model']}-{case.record['version']}")
def test_cache_of_public_records(case):
    rows, trap = beside(case), TRAPS.get(case.record["url"])
    found = [rows[term] for term in ("tokens", "bytes per token", "concurrency") if term in rows]
    assert all(row.agrees for row in found) == (trap is None)


DIVIDED = {  # what vLLM says of its peak in profiling, its graphs and the cache, where the log states its settings
    ("gpt-oss-120b", "0.13.dev"): {"KV budget": "within the range"},
    ("Qwen3-8B", "0.9.2"): {"KV budget": "within the range", "cuda_graphs": "within the range"},  # 2.24 GiB
    ("Qwen3-Next-80B-A3B", "0.10.2"): {
        "KV budget": "within the range",
        "activations": "agrees within the 6%",
        "cuda_graphs": "within the range",  # 2.37 GiB
    },
    ("Llama-3.1-8B", "0.6.4"): {"KV budget": "within the range", "activations": "agrees within the 6%"},
    ("Llama-3-8B", "0.6.6"): {
        "KV budget": "peak activation memory (profiling) differs",
        "activations": "does not state",
    },  # "far above default"
    ("Llama-3.1-8B", "0.10.1.1"): {"cuda_graphs": "within the range"},
}


@pytest.mark.parametrize("start", DIVIDED, ids=" ".join)
def test_how_vllm_divides_a_gpu(start):
    records = [r for r in MEASURED if r["kind"] == "vllm_startup" and (r["model"], r["version"]) == start]
    rows = max((beside(run(record)) for record in records), key=len)  # some models were started more than once
    assert {
        term: rows[term].sentence for term, words in DIVIDED[start].items() if words not in str(rows[term].sentence)
    } == {}
    assert [row.term for row in rows.values() if row.low is not None and not row.low <= row.ours <= row.high] == []


@pytest.mark.parametrize(
    ("model", "text", "term", "bytes_"),
    [
        pytest.param(  # https://github.com/sgl-project/sglang/issues/6017; 61 layers x 576 x 2
            "deepseek-ai/DeepSeek-V3",
            "ServerArgs(tp_size=8, kv_cache_dtype='auto')\nKV Cache is allocated. #tokens: 161488, KV size: 10.57 GB",
            "bytes per token",
            70_272,
            id="sglang-deepseek-v3",
        ),
        pytest.param(  # https://github.com/sgl-project/sglang/pull/18263; 48 layers x 2 x 4 heads x 128 x 2
            "Qwen/Qwen3-30B-A3B",
            "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1669816, K size: 76.44 GB, V size: 76.44 GB",
            "bytes per token",
            98_304,
            id="sglang-qwen3-30b",
        ),
        pytest.param(  # https://github.com/vllm-project/vllm/issues/15815; 64 layers x 2 x 8 heads x 128 x 2 / tp 2
            "Qwen/Qwen2.5-32B",
            "LLM engine (v0.7.2) with config: tensor_parallel_size=2, \n"
            "the rest of the memory reserved for KV Cache is 7.71GiB.\n# CUDA blocks: 3947, # CPU blocks: 2048",
            "bytes per token",
            131_072,
            id="vllm-tp2",
        ),
        pytest.param(  # https://github.com/vllm-project/vllm/issues/10517; its length is no whole number of blocks
            "meta-llama/Llama-3.1-8B",
            "Using max model len 29000\n kv_cache_size=2.89GiB\n# GPU blocks: 1478, # CPU blocks: 2048",
            "bytes per token",
            131_072,
            id="vllm-29k",
        ),
        pytest.param(  # https://github.com/xorbitsai/inference/issues/4926: 36.0 GiB for 262,144 tokens
            "Qwen/Qwen3-VL-8B-Instruct",
            "max seq len (262144), (36.0 GiB KV cache is needed, which is larger than",
            "one request",
            36 * GIB,
            id="vllm-36-GiB",
        ),
        pytest.param(  # https://github.com/vllm-project/vllm/issues/27508: 4.54 GiB, of which 4.5 are the full layers'
            "openai/gpt-oss-120b",
            "Chunked prefill is enabled with max_num_batched_tokens=1024.\n"
            "max seq len (131072), (4.54 GiB KV cache is needed, which is larger than",
            "one request",
            18 * 2048 * 131_072 + 18 * 2048 * 16 * 73,  # windows of 127 + 1,024 tokens, in blocks of 16, and one more
            id="vllm-windows",
        ),
        pytest.param(  # https://github.com/vllm-project/vllm/issues/15871: 0.95 GiB for 32,768 tokens
            "deepseek-ai/DeepSeek-V2-Lite",
            "max seq len (32768), (0.95 GiB KV cache is needed, which is larger than",
            "one request",
            32_768 * 31_104,
            id="vllm-latent",
        ),
    ],
)
def test_cache_of_public_logs(model, text, term, bytes_):
    found, most = ours(text, model)
    assert (found[term].ours, found[term].agrees, most) == (bytes_, True, None)


@pytest.mark.parametrize(
    ("model", "text", "sentence"),
    [
        pytest.param(  # vLLM 0.8.3 with LoRA states 15.1749, and 14.9889 without
            "meta-llama/Llama-3.1-8B",
            "non-default args: {'enable_lora': True}\nModel loading took 15.1749 GiB",
            "The weights differ by +0.19 GiB: LoRA slots sit in the log's.",
            id="lora",
        ),
        pytest.param(  # any figure that is more than 0.3 % above 14.9889
            "meta-llama/Llama-3.1-8B",
            "LLM engine (v0.9.2) with config: speculative_config=SpeculativeConfig(method='eagle')\n"
            "Model loading took 15.7 GiB",
            "The weights differ by +0.71 GiB: a draft model sits in the log's.",
            id="draft-model",
        ),
        pytest.param(  # Llama-3.1-8B 0.10.2 of the logs' list, had it had an 8-bit cache
            "meta-llama/Llama-3.1-8B",
            "Available KV cache memory: 85.79 GiB\nGPU KV cache size: 1,405,600 tokens",
            "Bytes per token and rank: 65,535 in the log, 131,072 ours: the log's cache has half the bits of our bf16.",
            id="half-the-bits",
        ),
        pytest.param(  # https://github.com/vllm-project/vllm/issues/13109, had it not stated its version
            "deepseek-ai/DeepSeek-V2-Lite",
            "Available KV cache memory: 59.75 GiB\nGPU KV cache size: 1,856,368 tokens",
            "Bytes per token and rank: 34,560 in the log, 31,104 ours: vLLM before 0.8 pads the latent to 640 elements "
            "a layer.",
            id="padded-latent",
        ),
        pytest.param(  # what libraries took on one GPU in the same start of vllm-0.6.4, beside Llama-3.1-8B's weights
            "meta-llama/Llama-3.1-8B",
            "Load weight end. type=LlamaForCausalLM, avail mem=64.00 GB, mem usage=15.33 GB.",
            "The weights differ by +0.34 GiB: SGLang reads what is gone from the GPU's free memory, of which libraries "
            "take a part while it loads.",
            id="libraries",
        ),
        pytest.param(  # Kimi-K2 on 8 GPUs, whose cache has the same shape: 715,072 tokens without it
            "deepseek-ai/DeepSeek-V3",
            "non-default args: {'tensor_parallel_size': 8}\n"
            "Available KV cache memory: 46.80 GiB\nGPU KV cache size: 5,721,088 tokens",
            "Bytes per token and rank: 8,783 in the log, 70,272 ours: the tokens of 8 ranks are counted together "
            "(decode context parallel).",
            id="decode-context-parallel",
        ),
        pytest.param(  # https://github.com/vllm-project/vllm/issues/27508: 4.54 GiB, of which 4.5 are the full layers'
            "openai/gpt-oss-120b",
            "max seq len (131072), (4.54 GiB KV cache is needed, which is larger than",
            "The cache of a request differs: windows hold the tokens of a step too, 2,048 in ours, and the log's step, "
            "version, cache format or model may be another.",
            id="windows",
        ),
    ],
)
def test_the_term_that_differs(model, text, sentence):
    _, most = ours(text, model)
    assert str(most.sentence) == sentence


def test_each_line_of_a_start_of_sglang():
    """github.com/didier-durand/llms-in-clouds, docs/sglang.md: QwQ-32B, whose sizes are Qwen2.5-32B's, on four L4. The
    table of its 2,049 requests and one for padding, of 131,072 tokens and four more, takes 4 bytes for each."""
    found, most = ours(LOGS["sglang-whole"], "Qwen/Qwen2.5-32B")
    assert most is None
    assert found["bytes per token"].ours == 65_536
    assert found["KV budget"].log == 2 * gib(1.42)
    assert found["KV budget"].ours == int(gib(21.63) * 0.85) - found["weights"].ours
    table = 4 * 2050 * 131_076
    assert found["left"].ours == int(gib(21.63) * (1 - 0.85)) - table
    assert found["left"].log == gib(2.09)


def test_the_states_of_sglang():
    """github.com/sgl-project/sglang/pull/18040: 38 states of 36 layers, each 64 heads of 64 x 128 in fp32 and three
    columns of 4,352 channels in 16 bits, and one more for padding; 4 layers of 8 x 64 keep keys and values."""
    found, most = ours(LOGS["sglang-states"], "ibm-granite/granite-4.0-h-micro")
    assert found["states"].ours == 39 * 36 * (64 * 64 * 128 * 4 + 3 * 4352 * 2)
    assert found["tokens"].log == 399_740
    assert found["graph batch"].ours == 8
    assert [row.term for row in found.values() if not row.agrees] == []
    assert most is None


def test_two_states_of_a_request_where_prefixes_are_cached():
    """https://github.com/noonghunna/club-3090/issues/612, which does not state the version: it is a default since 0.26,
    and a flag before."""
    text = LOGS["vllm-0.24"]
    start = "Initializing a V1 LLM engine (v0.24.0) with config: \n"
    for log in (text, start + text):
        found, most = ours(log, "Qwen/Qwen3.6-35B-A3B")
        assert (found["tokens"].ours, found["tokens"].log, most) == (567_978, 567_978, None)
    assert "with --enable-prefix-caching the log's" in str(found["tokens"].sentence)


def test_out_of_memory_beside_ours():
    text = LOGS["torch-2.1"]
    found, most = ours(text, "meta-llama/Llama-3.1-8B")
    assert found["memory"].log == gib(20.81) + 3 * GIB
    assert str(found["memory"].sentence).startswith(
        "The process had 20.81 GiB in use and asked for 3.00 GiB more with 1.66 GiB free; we compute "
    )
    assert most == found["memory"]


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("", None, "No line of a vLLM or SGLang start-up log"),
        ("hello\nworld", None, "No line of a vLLM or SGLang start-up log"),
        ("x" * 2_000_001, None, "The text is 2,000,001 characters long"),
        ("ServerArgs(kv_cache_dtype='int3')", "kv_cache_dtype", "stored as .int3"),
        ("ServerArgs(tp_size=3)", "tp", "does not divide"),
        ("ServerArgs(tp_size=5000)", "tp", "from 1 to 1,024"),
        ("non-default args: {'gpu_memory_utilization': 90.0}", "gpu_memory_utilization", "up to 1"),
        ("ServerArgs(context_length=99999999999)", "context", "from 1 to"),
    ],
)
def test_what_is_refused(text, field, message):
    with pytest.raises(ConfigError, match=message) as error:
        weigh_as(read_log(text), models()["meta-llama/Llama-3.1-8B"].config)
    assert error.value.field == field


WORDS = [words for log in FORMATS.values() for words in (*(row.words for row in log.lines), *log.openings)]
PIECES = [*LOGS.values(), *WORDS]
LLAMA = models()["meta-llama/Llama-3.1-8B"].config
TEXT = st.lists(
    st.sampled_from(PIECES)
    | st.text(max_size=30)
    | st.sampled_from(
        ["0", "0 GiB", "-1 GiB", "9" * 40, "0x", "\n", " ", "(", "GB", "1.2.3 GiB", "\x1b[31m", "²", "٣ GiB"]
    ),
    max_size=12,
).map("".join)


@pytest.mark.slow
@pytest.mark.drawn
@given(TEXT)
def test_any_text_is_read_or_refused_with_a_sentence(text):
    try:
        log = read_log(text)
        rows = differences(log, Architecture.from_config(LLAMA), weigh_as(log, LLAMA))
    except ConfigError as error:
        assert str(error).endswith(".")
    else:
        assert all(str(row.sentence).endswith(".") for row in rows)
        assert largest(rows) is None or not largest(rows).agrees
