"""CUDA graphs of vLLM and what lies outside of PyTorch, against public start-up logs of 2024 to 2026."""

import pytest

from calc import Architecture, Layout, Overhead, Precision, Workload
from calc.hardware.overhead import NONE
from calc.serving.engines.vllm.engine import VLLM
from calc.serving.engines.vllm.options import VLLMOptions
from calc.serving.engines.vllm.working_memory import (
    captured_graphs,
    captured_sizes,
    graphs_gib,
    graphs_range,
    non_torch,
)
from calc.serving.memory import Serving
from presets import gpus, models

H100 = gpus()["h100-sxm"]
EAGER_19 = {"version": "0.19.0", "enforce_eager": True}


def limits_of(options):
    architecture = Architecture.from_config(models()["Qwen/Qwen3-8B"].config)
    return VLLM(options).limits(Workload(context=8192), H100, architecture, Layout())


@pytest.mark.parametrize(
    ("version", "sequences", "largest", "sizes", "graphs"),
    [  # "Capturing CUDA graphs (PIECEWISE) 51/51", "(FULL) 35/35" and the largest size of such logs
        ("0.20.0", 256, 512, 51, 51 + 35),
        ("0.20.0", 1024, 512, 51, 51 + 51),
        ("0.22.1", 64, 128, 19, 19 + 11),
        ("0.25.1", 32, 64, 11, 11 + 7),
        ("0.20.0", 5, 8, 4, 4 + 3),
        ("0.10.2", 1024, 512, 67, 67),
        ("0.11.0", 256, 512, 67, 67 + 35),
    ],
)
def test_captured_sizes_as_logged(version, sequences, largest, sizes, graphs):
    options = VLLMOptions(version=version, max_num_seqs=sequences)
    limits = limits_of(options)
    assert (captured_sizes(options, limits)[-1], len(captured_sizes(options, limits))) == (largest, sizes)
    assert captured_graphs(options, limits).both == graphs


@pytest.mark.parametrize(
    ("version", "sequences", "layers", "gib"),
    [  # "Graph capturing finished in .. secs, took .. GiB"
        pytest.param("0.20.0", 256, 28, 0.47, id="Qwen2.5-7B, RTX 3090"),
        pytest.param("0.17.1", 256, 32, 0.50, id="Llama-3.1-8B, A100"),
        pytest.param("0.17.0", 256, 36, 0.51, id="Qwen2.5-3B"),
        pytest.param("0.22.1", 64, 48, 0.22, id="Qwen3-30B-A3B, H100"),
        pytest.param("0.20.0", 256, 80, 0.84, id="Llama-3.3-70B, 8 x H100"),
        pytest.param("0.20.0", 1024, 80, 0.95, id="Llama-3.3-70B, 8 x H100, 1,024 sequences"),
        pytest.param("0.20.0", 5, 80, 0.06, id="Llama-3.3-70B, 8 x H100, 5 sequences"),
    ],
)
def test_graphs_as_logged(version, sequences, layers, gib):
    """Within 0.05 GiB, and within the range or no further from it than the log rounds."""
    options = VLLMOptions(version=version, max_num_seqs=sequences)
    found = graphs_range(options, limits_of(options), H100, layers, several=layers == 80)
    assert (found.low + found.high) / 2 == pytest.approx(gib, abs=0.05)
    assert found.low - 0.005 <= gib <= found.high + 0.005


@pytest.mark.parametrize(
    ("sequences", "guessed", "layers", "gib"),
    [  # the first runner of 0.23 to 0.25 with multi-token prediction
        pytest.param(32, 3, 40, 0.73, id="Qwen3.6-35B-A3B, GB10"),
        pytest.param(32, 3, 64, 0.49, id="Qwen3.6-27B, GB10"),
        pytest.param(1, 1, 78, 1.89, id="GLM-5.2, 4 x GH200"),
        pytest.param(4, 1, 78, 1.62, id="GLM-5.2, 4 x GH200, 4 sequences"),
    ],
)
def test_graphs_with_a_draft_as_logged(sequences, guessed, layers, gib):
    drafts = {"speculative": "mtp", "num_speculative_tokens": guessed}
    options = VLLMOptions(version="0.25.1", max_num_seqs=sequences, **drafts)
    graphs = graphs_range(options, limits_of(options), H100, layers, several=layers == 78, draft_layers=1)
    assert graphs.low <= gib <= graphs.high


def test_the_first_runner_captures_a_draft_in_pieces():
    """`llm_base_proposer.py: dummy_run` captures one pass of the draft with each size that is captured in pieces, and
    none with a whole decode step: 33 and 17 of a Qwen3.6 with three guesses for each of 32 sequences ("PIECEWISE=33
    (largest=256), FULL=17 (largest=128)")."""
    options = VLLMOptions(version="0.25.1", max_num_seqs=32, speculative="mtp", num_speculative_tokens=3)
    graphs = captured_graphs(options, limits_of(options))
    assert graphs == (33, 17)
    alone, both = (graphs_gib(graphs, 64, options, several=False, draft_layers=n) for n in (0, 1))
    assert 1024 * alone == pytest.approx(50 * (3.2 + 64 * 0.085))
    assert 1024 * (both - alone) == pytest.approx(33 * (3.2 + 0.085))


@pytest.mark.parametrize(
    ("version", "layers", "several", "gib"),
    [
        pytest.param("0.9.2", 28, False, 0.47, id="Qwen2.5-1.5B"),
        pytest.param("0.10.2", 48, False, 0.69, id="Qwen3-30B-A3B, H100"),
        pytest.param("0.10.0", 48, False, 1.06, id="Qwen3-30B-A3B in int4, RTX 3090"),
        pytest.param("0.11.0", 64, False, 1.13, id="Qwen2.5-32B in fp8, L40S"),
        pytest.param("0.9.2", 48, True, 1.03, id="Qwen2.5-14B on four"),
        pytest.param("0.10.0", 64, True, 1.17, id="Qwen3-32B, 8 x H100"),
    ],
)
def test_old_graphs_as_logged(version, layers, several, gib):
    """Within the range, up to 0.11, with 256 sequences."""
    options = VLLMOptions(version=version, max_num_seqs=256)
    found = graphs_range(options, limits_of(options), H100, layers, several=several)
    assert found.low <= gib <= found.high


def test_no_graphs_and_other_makers():
    eager, options = VLLMOptions(enforce_eager=True), VLLMOptions()
    assert graphs_range(eager, limits_of(eager), H100, 32, several=False) == NONE
    found = graphs_range(options, limits_of(options), gpus()["radeon-ai-pro-r9700"], 64, several=True)
    assert found.low <= 1.82
    assert found.high >= 2.0  # Qwen3.6-27B on two, vLLM 0.27


@pytest.mark.parametrize(
    ("gpu", "count", "version", "logged"),
    [
        ("rtx-pro-6000-ws", 1, "0.12.0", [0.06]),  # Qwen3-4B
        ("h100-sxm", 1, "0.10.2", [0.07]),  # Qwen3-30B-A3B
        ("rtx-4090", 4, "0.11.0", [0.09]),  # OPT-2.7B
        ("gh200-96gb", 4, "0.23.0", [0.07, 0.12, 0.18, 0.63]),  # GLM-5.2
        ("h200-sxm", 2, "0.10.2", [1.38]),  # Qwen3-Next-80B-A3B
        ("h100-sxm", 4, "0.10.2", [1.84]),
    ],
)
def test_non_torch_as_logged(gpu, count, version, logged):
    found = non_torch(gpus()[gpu], count, VLLMOptions(version=version, enforce_eager=True))
    assert found.low <= min(logged)
    assert max(logged) <= found.high


@pytest.mark.parametrize(
    ("model", "gpu", "tp", "options", "context", "gib"),
    [  # "Available KV cache memory"
        ("meta-llama/Llama-3.1-8B", "a100-sxm-80gb", 1, {"version": "0.17.1"}, 32_768, 55.79),
        (
            "meta-llama/Llama-3.1-70B",
            "h100-sxm",
            8,
            {
                "version": "0.20",
                "enforce_eager": True,
                "gpu_memory_utilization": 0.85,
                "max_num_seqs": 256,
                "max_num_batched_tokens": 16_384,
            },
            8192,
            48.63,
        ),
        ("Qwen/Qwen2.5-7B", "rtx-3090", 1, {"version": "0.20"}, 4096, 5.82),
        # profiled with one video of 153,600 tokens, which nothing here was fitted to
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", "h100-sxm", 2, {"version": "0.12", "max_num_seqs": 64}, 65_536, 38.15),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", "h100-sxm", 2, {"version": "0.12", "max_num_seqs": 256}, 65_536, 37.23),
        # with one image of 16,384 tokens: sampling for 256 sequences takes more than its pass, or for one less
        ("Qwen/Qwen3.5-27B", "rtx-4090", 4, {**EAGER_19, "gpu_memory_utilization": 0.92}, 32_768, 7.47),
        ("Qwen/Qwen3.5-27B", "rtx-4090", 4, {**EAGER_19, "gpu_memory_utilization": 0.9}, 32_768, 7.0),
        (
            "Qwen/Qwen3.5-27B",
            "rtx-4090",
            4,
            {**EAGER_19, "gpu_memory_utilization": 0.92, "max_num_seqs": 1},
            50_000,
            7.56,
        ),
    ],
)
def test_available_cache_as_logged(model, gpu, tp, options, context, gib):
    """Within 0.5 % of the GPU and within the range that we print."""
    architecture = Architecture.from_config(models()[model].config)
    laid_out = Serving.of(architecture, VLLM(VLLMOptions(**options)), Precision(), Layout(tp=tp), Overhead())
    allocation = laid_out.on(gpus()[gpu], Workload(context=context))
    found = allocation.kv_budget
    assert found.bytes == pytest.approx(gib * 2**30, abs=0.005 * allocation.gpu.usable_bytes)
    assert found.bytes_low <= gib * 2**30 <= found.bytes_high
