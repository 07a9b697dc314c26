"""Formats that engines run on GPUs, as their documentation has it."""

import pytest

from calc import Precision, Workload, report
from calc.formats import FLOATS, KERNELS, WEIGHT_FORMATS
from calc.hardware.engine_rules import format_note, missing_kernel
from calc.serving.engines import ENGINES
from presets import gpus, models


@pytest.mark.parametrize(
    ("engine", "gpu", "weights", "words"),
    [
        # docs.vllm.ai, Quantization: FP8 from Turing on, as weights alone; MXFP4 not on Turing; INT8 not on AMD's GPUs
        ("vllm", "v100-sxm2-16gb", "fp8", "from compute capability 7.5 on"),
        ("vllm", "t4", "fp8", None),
        ("vllm", "t4", "mxfp4", "from compute capability 8.0 on"),
        ("vllm", "v100-sxm2-16gb", "int4", "from compute capability 7.5 on"),
        ("vllm", "v100-sxm2-16gb", "int4-gptq", None),
        ("vllm", "mi300x", "int8", "does not list int8"),
        ("vllm", "h100-sxm", "Q4_K_M", "with vllm-gguf-plugin"),
        # docs.vllm.ai, INT8 W8A8: "not supported on compute capability >= 10.0"
        ("vllm", "h100-sxm", "int8", None),
        ("vllm", "b200", "int8", "below compute capability 10.0"),
        ("vllm", "rtx-5090", "int8", "below compute capability 10.0"),
        ("vllm", "rtx-5090", "int8-gptq", None),
        # SGLang 0.5.23, get_min_capability; `initialize_fp4_gemm_config`: marlin from 8.0 to below 10.0
        ("sglang", "t4", "nvfp4", "from compute capability 8.0 on"),
        ("sglang", "h100-sxm", "nvfp4", None),
        ("sglang", "b200", "nvfp4", None),
        ("sglang", "t4", "fp8", "from compute capability 8.0 on"),
        ("sglang", "a100-sxm-80gb", "fp8", None),
        ("sglang", "h100-sxm", "mxfp8", "from compute capability 10.0 on"),
        # int8_gemm_kernel.cu: "No implemented int8_scaled_mm for current compute capability"
        ("sglang", "b200", "int8", "below compute capability 10.0"),
        # model_config.py, rocm_supported_quantization: neither gguf, gptq nor bitsandbytes, but awq, fp8 and mxfp4
        ("sglang", "mi300x", "Q4_K_M", "no kernels for Q4_K_M"),
        ("sglang", "mi300x", "int4-gptq", "no kernels for int4-gptq"),
        ("sglang", "mi355x", "nf4", "no kernels for nf4"),
        ("sglang", "mi355x", "int8", "no kernels for int8"),
        ("sglang", "mi355x", "nvfp4", "does not list nvfp4"),
        ("sglang", "mi300x", "int4", None),
        ("sglang", "mi355x", "fp8", None),
        ("sglang", "mi355x", "mxfp4", None),
        ("sglang", "h100-sxm", "int4-gptq", None),
        ("sglang", "h100-sxm", "nf4", None),
        # docs/features/quantization/bnb.md of 0.33: out of tree
        ("vllm", "h100-sxm", "nf4", "with vllm-bnb-plugin"),
        ("sglang", "h100-sxm", "Q4_K_M", None),
        ("vllm", "tpu-v5e", "fp8", None),  # its plugin has a list of its own
        # vllm_ascend/platform.py: ModelSlim's formats and compressed-tensors
        ("vllm", "ascend-910b-64gb", "fp8", "no kernels for fp8"),
        ("vllm", "ascend-910b-64gb", "int4-gptq", "no kernels for int4-gptq"),
        ("vllm", "ascend-910b-64gb", "int8", None),
    ],
)
def test_what_the_documentation_says(engine, gpu, weights, words):
    asked = gpus()[gpu], ENGINES[engine].support, weights
    note = missing_kernel(*asked) or format_note(*asked)
    assert words in str(note) if words else note is None


@pytest.mark.parametrize(
    ("model", "gpu", "verdict"),
    [
        pytest.param("Qwen/Qwen3-8B", "h100-sxm", "does not run", id="no method for a linear layer"),
        pytest.param("Qwen/Qwen3-8B", "mi355x", "fits", id="Quark's, of linear layers"),
        pytest.param("openai/gpt-oss-20b", "h100-sxm", "fits", id="routed experts"),
    ],
)
def test_sglang_reads_mxfp4_in_routed_experts(model, gpu, verdict):
    """SGLang 0.5.23 `mxfp4.py`, `Mxfp4Config.get_quant_method`; of compressed-tensors' schemes none is MXFP4's."""
    precision = Precision.of(models()[model].config, "mxfp4")
    found = report(models()[model].config, engine=ENGINES["sglang"](), precision=precision, gpus=[gpus()[gpu]])
    assert [row.verdict for row in found.verdicts] == [verdict]


def test_every_format_has_its_way_and_every_rule_its_source():
    assert set(KERNELS) | set(FLOATS) == set(WEIGHT_FORMATS)
    for engine in ENGINES.values():
        ways = engine.support.formats
        assert set(ways) <= set(KERNELS.values())
        assert all(needs.source.startswith("https://") for needs in ways.values())


def test_on_ascend_a_cache_has_blocks_of_128_tokens():
    """Public starts of vllm-ascend print multiples of 128: 47,104, 85,888, 158,720, 769,536."""
    found = report(models()["Qwen/Qwen2.5-7B"].config, workload=Workload(), gpus=[gpus()["ascend-910b4-32gb"]])
    longest = found.verdicts[0].max_context
    assert longest
    assert longest % 128 == 0


def test_a_verdict_says_it():
    found = report(
        models()["Qwen/Qwen3-8B"].config,
        workload=Workload(),
        precision=Precision(weights="fp8"),
        gpus=[gpus()["v100-sxm2-16gb"]],
    )
    assert found.verdicts[0].verdict == "does not run"
    assert "vLLM runs fp8 from compute capability 7.5 on" in str(found.verdicts[0].reason)
