"""Lines of public logs, as their engines wrote them, and what they state; then our figures beside theirs."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc import Architecture, ConfigError
from calc.logs import differences, largest, read_log, weigh_as
from calc.logs.lines import LINES, STARTS
from presets import models

VLLM = "https://github.com/vllm-project/vllm/issues/"
GIB = 2**30
DATA = Path(__file__).parent / "data"
LOGGED = json.loads((DATA / "startup.json").read_text(encoding="utf-8"))
SECTIONS = (DATA / "logs.txt").read_text(encoding="utf-8").split("\n=== ")[1:]
LOGS = {heading.partition(": ")[0]: text for heading, _, text in (section.partition("\n") for section in SECTIONS)}


def gib(figure):
    """Bytes of a figure in GiB, as an int."""
    return round(figure * GIB)


READ = {
    "vllm-2024-01": {
        "engine": "vllm",
        "kv_tokens": 3664,
        "weights": None,
        "settings.model": "/m/alpaca-2",
        "settings.dtype": "float16",
        "settings.max_model_len": 4096,
        "settings.tensor_parallel_size": 1,
        "settings.quantization": None,
        "settings.enforce_eager": False,
    },
    "vllm-0.6.4": {
        "weights": gib(14.9888),
        "total": gib(23.58),
        "non_torch": gib(0.35),
        "activations": gib(17.06) - gib(14.9888),
        "kv_bytes": gib(3.81),
        "kv_tokens": 31_232,
        "concurrency": 1.56,
        "concurrency_length": 20_000,
        "settings.gpu_memory_utilization": 0.9,
    },
    "vllm-2025-03-V0": {
        "weights": gib(12.55),
        "non_torch": gib(0.16),
        "activations": gib(2.38),
        "kv_bytes": gib(56.18),
        "kv_tokens": 7191 * 16,
        "total": gib(79.19),
        "settings.gpu_memory_utilization": 0.9,
    },
    "vllm-2025-06": {
        "kv_tokens": 1_131_008,
        "concurrency": 8.63,
        "concurrency_length": 131_072,
        "cuda_graphs": gib(0.45),
    },
    "vllm-0.10.2": {
        "version": "0.10.2.dev378+g4d7fe40fc.d20250829",
        "starts": 1,
        "settings.model": "/d/Qwen2.5-0.5B/",
        "settings.max_model_len": 32_768,
        "settings.max_num_batched_tokens": 2048,
        "settings.tensor_parallel_size": 2,
        "settings.pipeline_parallel_size": 1,
        "settings.dtype": "bfloat16",
        "settings.speculative": None,
    },
    "vllm-2026-02-arguments": {
        "settings.model": "meta-llama/Llama-3.2-1B-Instruct",
        "settings.enforce_eager": True,
        "settings.gpu_memory_utilization": 0.35,
        "settings.max_model_len": 1024,
    },
    "vllm-0.24": {
        "kv_bytes": gib(5.98),
        "kv_tokens": 567_978,
        "concurrency": 4.33,
        "settings.quantization": "modelopt",
        "settings.kv_cache_dtype": "fp8",
        "settings.max_num_batched_tokens": 8192,
        "settings.max_num_seqs": 1,
    },
    "vllm-2026-09": {"weights": gib(17.7), "engine": "vllm"},
    "vllm-0.10-summary": {
        "free": gib(78.66),
        "total": gib(79.19),
        "weights": gib(14.08),
        "activations": gib(1.97),
        "non_torch": gib(0.07),
        "cuda_graphs": gib(0.67),
        "settings.gpu_memory_utilization": 0.9,
    },
    "vllm-2025-03": {"weights": gib(15.4137)},
    "vllm-2025-04-driver": {"ranks": 2, "weights": gib(30.7098), "kv_bytes": gib(7.71), "kv_tokens": 63_152},
    "vllm-processes": {"ranks": 2, "weights": gib(21.21), "kv_bytes": gib(1.57)},
    "vllm-fullest-rank": {
        "ranks": 2,
        "kv_bytes": gib(34.78),
        "activations": gib(34.50) - gib(18.4902),
        "kv_tokens": 3_039_120,
        "notes": ("2 ranks report: of each size the largest is taken, and the least cache.",),
    },
    "vllm-free-memory": {"free": gib(1.54), "total": gib(22.05), "settings.gpu_memory_utilization": 0.9},
    "vllm-refuses": {
        "kv_needed": 36 * GIB,
        "kv_bytes": gib(6.94),
        "estimated_max_model_len": 50_512,
        "settings.max_model_len": 262_144,
    },
    "vllm-0.8.3-refuses": {"kv_needed": gib(0.95), "kv_bytes": gib(0.93), "estimated_max_model_len": None},
    "sglang-latent": {
        "engine": "sglang",
        "ranks": 2,
        "weights": gib(105.59),
        "kv_bytes": gib(10.57),
        "kv_tokens": 161_488,
    },
    "sglang-keys-and-values": {"weights": gib(56.98), "kv_bytes": 2 * gib(76.44), "kv_tokens": 1_669_816},
    "sglang-arguments": {
        "engine": "sglang",
        "settings.model": "Qwen/Qwen3-14B",
        "settings.mem_fraction_static": 0.835,
        "settings.max_num_batched_tokens": 8192,
        "settings.tensor_parallel_size": 1,
        "settings.kv_cache_dtype": "auto",
        "settings.max_model_len": None,
        "settings.dtype": None,
    },
    "sglang-serves": {
        "kv_tokens": 2_086_558,
        "settings.max_num_batched_tokens": 8192,
        "settings.max_num_seqs": 33,
        "settings.max_model_len": 256_000,
    },
    "sglang-graphs": {"free": gib(46.81), "cuda_graphs": gib(1.04), "ranks": 2},
    "sglang-windows": {
        "kv_bytes": gib(41.76) + gib(27.84) + gib(4.82) + gib(3.21),
        "kv_tokens": 1_496_958,
        "notes": (),
    },
    "sglang-windows-tokens": {"kv_tokens": 375_360},
    "torch-before-2.1": {
        "engine": "torch",
        "out_of_memory.tried": gib(1.63),
        "out_of_memory.total": gib(44.56),
        "out_of_memory.free": round(565.31 * 2**20),
        "out_of_memory.allocated": gib(27.91),
        "out_of_memory.reserved": gib(27.93) - gib(27.91),
        "out_of_memory.in_use": None,
    },
    "torch-1.0": {
        "out_of_memory.tried": 2**20,
        "out_of_memory.free": 576 * 1024,
        "out_of_memory.allocated": gib(10.90),
    },
    "torch-2.1": {
        "out_of_memory.tried": 3 * GIB,
        "out_of_memory.total": gib(23.65),
        "out_of_memory.free": gib(1.66),
        "out_of_memory.in_use": gib(20.81),
        "out_of_memory.allocated": gib(12.09),
        "out_of_memory.reserved": gib(4.84),
    },
    "torch-in-a-container": {
        "out_of_memory.tried": 786 * 2**20,
        "out_of_memory.total": gib(79.11),
        "out_of_memory.in_use": gib(78.96),
        "out_of_memory.reserved": round(331.08 * 2**20),
    },
    "torch-nothing-free": {"out_of_memory.free": 0, "out_of_memory.total": 6 * GIB},
    "vllm-2024-03-arguments": {
        "engine": "vllm",
        "settings.model": "meetkai/functionary-small-v2.2",
        "settings.max_model_len": None,
        "settings.block_size": 16,
        "settings.gpu_memory_utilization": 0.9,
        "settings.max_num_batched_tokens": None,
        "settings.max_num_seqs": 256,
        "settings.dtype": None,
    },
}
"""Name of a log -> what it states."""


@pytest.mark.parametrize("name", LOGS)
def test_what_a_log_states(name):
    log = read_log(LOGS[name])
    for field, expected in READ[name].items():
        found = log
        for part in field.split("."):
            found = getattr(found, part)
        assert (field, found) == (field, expected)


def test_every_wording_is_of_a_log():
    assert READ.keys() == LOGS.keys()
    texts = "\n".join(LOGS.values()).splitlines()
    unread = [(row.term, row.words) for row in LINES if not any(row.pattern.search(text) for text in texts)]
    assert unread == []
    assert [words for _, words in STARTS if not any(words in text for text in texts)] == []


def test_the_last_start_is_taken():
    first, second = (
        f"INFO 07-17 00:07:07 [core.py:69] Initializing a V1 LLM engine (v{version}) with config: model='{model}', \n"
        f"(EngineCore_0 pid=9) INFO 07-17 00:07:30 [gpu_model_runner.py:1801] Model loading took {weights} GiB\n"
        for version, model, weights in (("0.9.1", "a/b", 29.5), ("0.9.2", "c/d", 14.9889))
    )
    log = read_log(f"{first}CUDA out of memory. Tried to allocate 2.00 GiB.\n{second}")
    assert (log.version, log.settings.model, log.weights) == ("0.9.2", "c/d", gib(14.9889))
    assert (log.starts, log.out_of_memory) == (2, None)
    assert log.notes == ("The log has 2 starts; these are the figures of the last.",)


def test_a_draft_model_is_not_the_model():
    text = "[2026-08-13 TP0] Load weight end. type=Main, avail mem=161.06 GB, mem usage=104.24 GB.\n"
    pool = "[2026-08-13 TP0] KV Cache is allocated. #tokens: 1000, KV size: 10.50 GB\n"
    log = read_log(
        text + pool + (text + pool).replace("Main", "Draft").replace("104.24", "2.60").replace("10.50", "0.20")
    )
    assert (log.weights, log.kv_bytes) == (gib(104.24), gib(10.5))
    assert "a draft model" in log.notes[0]


def ours(text, model):
    log, config = read_log(text), models()[model].config
    rows = differences(log, Architecture.from_config(config), weigh_as(log, config))
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
    VLLM + "13061": "the fullest rank",  # tokens are the least over ranks; the bytes are another rank's
    VLLM + "13109": "pads the latent",  # V0: 1,280 for 1,152 bytes
    VLLM + "19996": "a draft layer",  # EAGLE
    VLLM + "21348": "the fullest rank",  # 178,880 tokens, 1.1 % fewer than 8.11 GiB of one rank hold
    VLLM + "40691": "go by the requests",  # a hybrid
}


@pytest.mark.parametrize("row", LOGGED, ids=lambda row: f"{row['model']}-{row['version']}")
def test_against_public_logs(row):
    found, _ = ours(stated(row), row["model"])
    cache = [found[term] for term in ("bytes per token", "concurrency") if term in found]
    assert cache
    trap = TRAPS.get(row["url"])
    assert [r.sentence for r in cache if not r.agrees and (trap is None or trap not in r.sentence)] == []
    assert trap is None or any(trap in r.sentence for r in cache)
    if "weights" in found:  # 1.4 %: rotary table of 131,072 positions, and 2 MiB a matrix; the LoRA log is not public
        assert abs(found["weights"].share) < 0.015


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


HYBRID = (
    "The cache of a request differs: windows hold the tokens of a step too, which may be others in the log, and vLLM "
    "pads recurrent state to the attention's blocks."
)


@pytest.mark.parametrize(
    ("model", "text", "sentence"),
    [
        pytest.param(  # vLLM 0.8.3 with LoRA states 15.1749, and 14.9889 without
            "meta-llama/Llama-3.1-8B",
            "non-default args: {'enable_lora': True}\nModel loading took 15.1749 GiB",
            "The weights differ by +0.22 GiB: LoRA slots sit in the log's.",
            id="lora",
        ),
        pytest.param(  # any figure that is more than 1 % above ours
            "meta-llama/Llama-3.1-8B",
            "LLM engine (v0.9.2) with config: speculative_config=SpeculativeConfig(method='eagle')\n"
            "Model loading took 15.7 GiB",
            "The weights differ by +0.74 GiB: a draft model sits in the log's.",
            id="draft-model",
        ),
        pytest.param(  # Llama-3.1-8B 0.10.2 of the logs' list, had it had an 8-bit cache
            "meta-llama/Llama-3.1-8B",
            "Available KV cache memory: 85.79 GiB\nGPU KV cache size: 1,405,600 tokens",
            "Bytes per token and rank: 65,535 in the log, 131,072 ours: the log's cache has half the bits of our bf16.",
            id="half-the-bits",
        ),
        pytest.param(  # Kimi-K2 on 8 GPUs, whose cache has the same shape: 715,072 tokens without it
            "deepseek-ai/DeepSeek-V3",
            "non-default args: {'tensor_parallel_size': 8}\n"
            "Available KV cache memory: 46.80 GiB\nGPU KV cache size: 5,721,088 tokens",
            "Bytes per token and rank: 8,783 in the log, 70,272 ours: the tokens of 8 ranks are counted together "
            "(decode context parallel).",
            id="decode-context-parallel",
        ),
        pytest.param(  # https://github.com/vllm-project/vllm/issues/23278: padding of 1.09 is all that differs
            "openai/gpt-oss-120b",
            "Model loading took 65.9651 GiB",
            "The weights differ by +5.20 GiB: vLLM pads mxfp4 experts to the tiles of its kernels.",
            id="mxfp4",
        ),
        pytest.param(  # https://github.com/vllm-project/vllm/issues/27508: 4.54 GiB, of which 4.5 are the full layers'
            "openai/gpt-oss-120b",
            "max seq len (131072), (4.54 GiB KV cache is needed, which is larger than",
            HYBRID,
            id="windows",
        ),
        pytest.param(  # https://github.com/noonghunna/club-3090/issues/612
            "Qwen/Qwen3.6-35B-A3B",
            LOGS["vllm-0.24"],
            HYBRID,
            id="recurrent",
        ),
    ],
)
def test_the_term_that_differs(model, text, sentence):
    _, most = ours(text, model)
    assert most.sentence == sentence


def test_out_of_memory_beside_ours():
    text = LOGS["torch-2.1"]
    found, most = ours(text, "meta-llama/Llama-3.1-8B")
    assert found["memory"].log == gib(20.81) + 3 * GIB
    assert found["memory"].sentence.startswith(
        "The process held 20.81 GiB and asked for 3.00 GiB more with 1.66 GiB free; we compute "
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
        ("ServerArgs(tp_size=5000)", "tp", "less than or equal to 1024"),
        ("non-default args: {'gpu_memory_utilization': 90.0}", "gpu_memory_utilization", "less than or equal to 1"),
        ("ServerArgs(context_length=99999999999)", "context", "less than or equal to"),
    ],
)
def test_what_is_refused(text, field, message):
    with pytest.raises(ConfigError, match=message) as error:
        weigh_as(read_log(text), models()["meta-llama/Llama-3.1-8B"].config)
    assert error.value.field == field


PIECES = [*LOGS.values()] + [row.words for row in LINES] + [words for _, words in STARTS]
LLAMA = models()["meta-llama/Llama-3.1-8B"].config
TEXT = st.lists(
    st.sampled_from(PIECES)
    | st.text(max_size=30)
    | st.sampled_from(
        ["0", "0 GiB", "-1 GiB", "9" * 40, "0x", "\n", " ", "(", "GB", "1.2.3 GiB", "\x1b[31m", "²", "٣ GiB"]
    ),
    max_size=12,
).map("".join)


@given(TEXT)
@settings(max_examples=300)
def test_any_text_is_read_or_refused_with_a_sentence(text):
    try:
        log = read_log(text)
        rows = differences(log, Architecture.from_config(LLAMA), weigh_as(log, LLAMA))
    except ConfigError as error:
        assert str(error).endswith(".")
    else:
        assert all(row.sentence.endswith(".") for row in rows)
        assert largest(rows) is None or not largest(rows).agrees


@given(st.lists(st.sampled_from([*LOGS.values()]), min_size=1, max_size=4).map("\n".join))
@settings(max_examples=100)
def test_lines_that_say_nothing_change_nothing(text):
    nothing = "\nINFO 07-17 00:07:05 [__init__.py:244] Automatically detected platform cuda.\n"
    assert read_log(nothing + text + nothing) == read_log(text)
