"""Logs of llama.cpp and Ollama: the lines are as it writes them, the bytes those of its dry runs and of public logs."""

import pytest

from calc import Architecture
from calc.serving.engines.llamacpp.startup_log import read_buffers, states_buffers
from calc.units import MIB
from calc.verify.logs.planned_buffers import planned_buffers_of
from tests import load

CONFIGS, *ROWS = load("llamacpp.json")
TYPES = {"Q4_K_M": "Q4_K - Medium", "Q8_0": "Q8_0", "fp16": "F16", "Q6_K": "Q6_K", "mxfp4": "MXFP4"}
KNOWN = {"ctx_size", "parallel", "batch_size", "ubatch_size", "n_gpu_layers", "kv_unified", "n_outputs_max"}
SHOWN = [
    row
    for row in ROWS
    if row["kind"] in ("one GPU", "partial offload")
    and row["weights"] in TYPES
    and row["flags"].keys() <= KNOWN
    and row["gpus"] == 1
]


def written(row):
    """What llama-server prints of a dry run's buffers."""
    flags = {"parallel": 1, "batch_size": 2048, "ubatch_size": 512, **row["flags"]}
    gpu, host = row["buffers"]
    layers = CONFIGS["configs"][row["model"]].get("num_hidden_layers", 0)
    lines = [
        f"print_info: file type   = {TYPES[row['weights']]}",
        f"load_tensors: offloaded {flags.get('n_gpu_layers', layers + 1)}/{layers + 1} layers to GPU",
        f"load_tensors:   CPU_Mapped model buffer size = {host['model'] / MIB:9.2f} MiB",
        f"load_tensors:        CUDA0 model buffer size = {gpu['model'] / MIB:9.2f} MiB",
        f"llama_context: n_seq_max     = {flags['parallel']}",
        f"llama_context: n_ctx         = {flags['ctx_size']}",
        f"llama_context: n_batch       = {flags['batch_size']}",
        f"llama_context: n_ubatch      = {flags['ubatch_size']}",
        f"llama_context: kv_unified    = {str(flags.get('kv_unified', False)).lower()}",
        f"llama_kv_cache:      CUDA0 KV buffer size = {gpu['context'] / MIB:9.2f} MiB",
        f"sched_reserve:      CUDA0 compute buffer size = {gpu['compute'] / MIB:9.2f} MiB",
        f"sched_reserve:  CUDA_Host compute buffer size = {host['compute'] / MIB:9.2f} MiB",
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("row", SHOWN[:12], ids=lambda row: f"{row['model']} {row['weights']} {row['flags']}")
def test_every_buffer_of_a_dry_run_agrees(row):
    log = read_buffers(written(row))
    found = planned_buffers_of(log, Architecture.from_config(CONFIGS["configs"][row["model"]]), "Q8_0")
    assert len(found.rows) >= 4
    differ = [one for one in found.rows if not one.agrees]
    if "n_outputs_max" in row["flags"] and row["flags"]["n_outputs_max"] == 0:
        differ = [one for one in differ if "every token" not in str(one.sentence)]
    assert differ == []


PUBLIC = """
llm_load_tensors: offloaded 41/41 layers to GPU
llm_load_tensors:        CPU buffer size =  1640.62 MiB
llm_load_tensors:      CUDA0 buffer size =  5434.38 MiB
llm_load_tensors:      CUDA1 buffer size = 13989.53 MiB
llama_new_context_with_model: n_ctx      = 4096
llama_new_context_with_model: n_batch    = 2048
llama_new_context_with_model: n_ubatch   = 512
llama_kv_cache_init:      CUDA0 KV buffer size =  1536.00 MiB
llama_kv_cache_init:      CUDA1 KV buffer size =  3584.00 MiB
llama_new_context_with_model: KV self size  = 5120.00 MiB, K (f16): 2560.00 MiB, V (f16): 2560.00 MiB
"""
"""Command R on two cards, github.com/ggml-org/llama.cpp/pull/6122, April 2024."""
COMMAND_R = {
    "model_type": "cohere",
    "hidden_size": 8192,
    "intermediate_size": 22528,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "vocab_size": 256000,
    "max_position_embeddings": 8192,
    "use_qk_norm": False,
}


def test_a_public_log_of_two_unequal_cards():
    found = planned_buffers_of(read_buffers(PUBLIC), Architecture.from_config(COMMAND_R), "Q4_K_S")
    assert found.options.tensor_split == "12,29"
    by_place = {(row.device, row.what): row for row in found.rows}
    assert by_place["gpu0", "context"].agrees
    assert by_place["gpu1", "context"].agrees
    assert by_place["host", "model"].agrees


def test_what_ollama_ps_says():
    text = """NAME         ID              SIZE     PROCESSOR          CONTEXT    UNTIL
qwen3:30b    0b28110b7a33    21 GB    43%/57% CPU/GPU    8192       4 minutes from now"""
    assert states_buffers(text)
    share = read_buffers(text).share
    assert (share.bytes, share.on_gpus, share.context) == (21 * 10**9, 0.57, 8192)


def test_a_term_that_differs_is_named():
    row = next(one for one in SHOWN if "n_outputs_max" not in one["flags"] or one["flags"]["n_outputs_max"] == 1)
    architecture = Architecture.from_config(CONFIGS["configs"][row["model"]])
    text = written(row).replace("n_ctx         = ", "n_ctx         = 1")
    differ = [one for one in planned_buffers_of(read_buffers(text), architecture, "Q8_0").rows if not one.agrees]
    assert differ[0].what == "context"
    assert "another context" in str(differ[0].sentence)


def test_a_log_of_another_engine_states_none():
    assert not states_buffers("INFO gpu_worker.py: Available KV cache memory: 5.98 GiB")
