"""Lines of public logs, as their engines wrote them, and what they state."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc import Architecture, ConfigError, Layout, Precision
from calc.serving.engines import LOGS as FORMATS
from calc.verify.logs import Log, LogSettings, engine_for, read_log, weigh_as
from calc.verify.logs.log_weighing import engine_of
from presets import models
from tests import DATA

GIB = 2**30
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
    "vllm-most-loaded-rank": {
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
    "sglang-whole": {
        "weights": gib(15.54),
        "free": gib(21.63),
        "kv_bytes": 2 * gib(1.42),
        "kv_tokens": 46_611,
        "left": gib(2.09),
        "cuda_graphs": gib(0.93),
        "settings.mem_fraction_static": 0.85,
        "settings.cuda_graph_max_bs": 80,
        "settings.disable_radix_cache": False,
        "settings.max_num_seqs": 2049,
        "settings.max_model_len": 131_072,
    },
    "sglang-states": {
        "states": 38,
        "state_bytes": gib(0.03) + gib(2.74),
        "kv_bytes": 2 * gib(1.52),
        "left": gib(3.42),
        "graph_batch": 8,
    },
    "sglang-2026-08": {"graph_batch": 2, "cuda_graphs": gib(0.45), "kv_bytes": gib(12.45)},
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
        "out_of_memory.reserved": round(30.96 * 2**20),  # "cached": what is free within its pool
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
    "vllm-2026-08-runs": {
        "weights": gib(51.1),
        "consumed": gib(51.66),
        "non_torch": gib(51.66) - gib(51.1),
        "activations": gib(2.4) - gib(1.55),
        "graphs_estimated": gib(1.55),
        "cuda_graphs": gib(0.71),
        "free": gib(79.99),
        "total": 80 * GIB,
        "refusal": None,
    },
    "vllm-2026-graphs-not-charged": {
        "activations": gib(0.25),
        "graphs_estimated": gib(1.22),
        "cuda_graphs": gib(0.37),
        "consumed": gib(1.49),
        "non_torch": None,
    },
    "vllm-2026-graphs-less-than-nothing": {"cuda_graphs": None, "graphs_estimated": gib(2.43)},
    "vllm-2026-estimates": {
        "checkpoint": gib(1.51),
        "graphs_estimated": gib(0.36),
        "kv_bytes": gib(6.87),
        "refusal": None,
    },
    "vllm-2026-blocks": {"attention_block": 1072, "encoder_tokens": 32_768, "settings.block_size": None},
    "vllm-state-blocks": {"refusal": "state-blocks", "state_blocks": 856, "settings.max_num_seqs": 1024},
    "vllm-no-cache": {"refusal": "no-cache", "kv_bytes": None, "graphs_estimated": gib(118.65)},
    "vllm-sampler": {"refusal": "out-of-memory", "out_of_memory": None},
    "vllm-failed": {"refusal": "unknown", "weights": gib(0.2533)},
    "sglang-no-cache": {"engine": "sglang", "refusal": "no-cache"},
    "torch-tries-again": {
        "engine": "torch",
        "refusal": None,
        "out_of_memory.tried": 3_630_170_112,
        "out_of_memory.free": 202_833_920,
        "out_of_memory.total": 25_250_627_584,
    },
}
"""Name of a log -> what it states."""
DIED = {
    "vllm-2024-01": "length",
    "vllm-free-memory": "free-memory",
    "vllm-refuses": "length",
    "vllm-0.8.3-refuses": "length",
    "vllm-state-blocks": "state-blocks",
    "vllm-no-cache": "no-cache",
    "vllm-sampler": "out-of-memory",
    "vllm-failed": "unknown",
    "sglang-no-cache": "no-cache",
    "torch-before-2.1": "out-of-memory",
    "torch-1.0": "out-of-memory",
    "torch-2.1": "out-of-memory",
    "torch-in-a-container": "out-of-memory",
    "torch-nothing-free": "out-of-memory",
}
"""Name of a log of a server that died -> why."""


@pytest.mark.parametrize("name", LOGS)
def test_what_a_log_states(name):
    log = read_log(LOGS[name])
    for field, expected in READ[name].items():
        if field == "notes":
            assert tuple(map(str, log.notes)) == expected
            continue
        found = log
        for part in field.split("."):
            found = getattr(found, part)
        assert (field, found) == (field, expected)


@pytest.mark.parametrize(
    ("line", "method", "tokens", "speculative"),
    [  # public logs of 0.9 to 0.27
        (
            "Initializing a V1 LLM engine (v0.25.1) with config: model='m', speculative_config=SpeculativeConfig("
            "method='mtp', model='m', num_spec_tokens=1), dtype=torch.bfloat16",
            "mtp",
            1,
            "mtp",
        ),
        (
            "non-default args: {'model': 'm', 'max_num_seqs': 64, 'speculative_config': {'method': 'mtp', "
            "'num_speculative_tokens': 2}}",
            "mtp",
            2,
            "mtp",
        ),
        (
            "Initializing a V1 LLM engine (v0.9.1) with config: model='m', speculative_config=SpeculativeConfig("
            "method='eagle3', model='/tmp/model/eagle_head/', num_spec_tokens=5), tensor_parallel_size=8",
            "eagle3",
            5,
            "none",
        ),
        ("Initializing a V1 LLM engine (v0.25.1) with config: model='m', speculative_config=None", None, None, "none"),
    ],
)
def test_what_guesses_tokens(line, method, tokens, speculative):
    """Layers of the model's own are in its config; of a head and a draft model the log says too little."""
    log = read_log(line)
    assert (log.settings.model, log.settings.speculative_method) == ("m", method)
    assert log.settings.num_speculative_tokens == tokens
    options = engine_of(log).options
    assert (options.speculative, options.draft_tokens) == (speculative, tokens if speculative != "none" else 0)


def test_a_draft_that_the_model_does_not_have_is_left_out():
    log = read_log("non-default args: {'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 2}}")
    for name, guessed in (("Qwen/Qwen3-8B", 0), ("Qwen/Qwen3.5-9B", 2)):
        architecture = Architecture.from_config(models()[name].config)
        engine = engine_for(log, architecture, Precision(), Layout())
        assert engine.options.draft_tokens == guessed
        assert weigh_as(log, models()[name].config).memory.weights > 0


def test_why_a_server_died():
    refusals = {name: read_log(text).refusal for name, text in LOGS.items()}
    assert {name: refusal for name, refusal in refusals.items() if refusal} == DIED


def test_a_warning_that_memory_ran_out_counts_where_the_start_fails():
    log = read_log(LOGS["torch-tries-again"] + LOGS["vllm-failed"])
    assert (log.refusal, log.out_of_memory.tried) == ("out-of-memory", 3_630_170_112)
    log = read_log(LOGS["torch-tries-again"] + LOGS["torch-2.1"])
    assert (log.refusal, log.out_of_memory.tried) == ("out-of-memory", 3 * GIB)


def test_every_wording_is_of_a_log():
    assert READ.keys() == LOGS.keys()
    texts = "\n".join(LOGS.values()).splitlines()
    rows = [row for log in FORMATS.values() for row in log.lines]
    known = {*Log.model_fields, *LogSettings.model_fields, "blocks", "torch_peak", "graphs_charged"}
    assert {row.term for row in rows} <= known
    unread = [(row.term, row.words) for row in rows if not any(row.pattern.search(text) for text in texts)]
    assert unread == []
    refusals = [words for log in FORMATS.values() for _, words in log.refusals]
    assert [words for words in refusals if not any(words in text for text in texts)] == []
    openings = [words for log in FORMATS.values() for words in log.openings]
    assert [words for words in openings if not any(words in text for text in texts)] == []


def test_the_last_start_is_taken():
    first, second = (
        f"INFO 07-17 00:07:07 [core.py:69] Initializing a V1 LLM engine (v{version}) with config: model='{model}', \n"
        f"(EngineCore_0 pid=9) INFO 07-17 00:07:30 [gpu_model_runner.py:1801] Model loading took {weights} GiB\n"
        for version, model, weights in (("0.9.1", "a/b", 29.5), ("0.9.2", "c/d", 14.9889))
    )
    log = read_log(f"{first}CUDA out of memory. Tried to allocate 2.00 GiB.\n{second}")
    assert (log.version, log.settings.model, log.weights) == ("0.9.2", "c/d", gib(14.9889))
    assert (log.starts, log.out_of_memory) == (2, None)
    assert str(*log.notes) == "The log has 2 starts; these are the figures of the last."


def test_a_draft_model_is_not_the_model():
    text = "[2026-08-13 TP0] Load weight end. type=Main, avail mem=161.06 GB, mem usage=104.24 GB.\n"
    pool = "[2026-08-13 TP0] KV Cache is allocated. #tokens: 1000, KV size: 10.50 GB\n"
    log = read_log(
        text + pool + (text + pool).replace("Main", "Draft").replace("104.24", "2.60").replace("10.50", "0.20")
    )
    assert (log.weights, log.kv_bytes) == (gib(104.24), gib(10.5))
    assert "a draft model" in str(log.notes[0])


@given(st.lists(st.sampled_from([*LOGS.values()]), min_size=1, max_size=4).map("\n".join))
@settings(max_examples=100)
def test_lines_that_say_nothing_change_nothing(text):
    nothing = "\nINFO 07-17 00:07:05 [__init__.py:244] Automatically detected platform cuda.\n"
    assert read_log(nothing + text + nothing) == read_log(text)


def test_more_starts_than_are_read():
    with pytest.raises(ConfigError, match="more than 1,000 starts"):
        read_log("LLM engine (v0.8.5)\nModel loading took 1 GiB\n" * 1_001)
