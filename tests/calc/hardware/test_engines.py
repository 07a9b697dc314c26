"""Which engine runs where."""

import pytest

from calc.hardware.custom_gpu import custom_gpu
from calc.hardware.engine_rules import note, runs
from calc.hardware.gpus import gpus
from calc.serving.engines import ENGINES
from tests.cases import in_one_test

SUPPORTED = {name: engine.support for name, engine in ENGINES.items()}


@pytest.mark.parametrize(
    ("gpu", "engines"),
    [
        # docs.vllm.ai (0.31), SGLang's, TensorRT-LLM's and llama.cpp's own pages
        ("h100-sxm", "vllm sglang transformers tensorrt-llm llamacpp"),
        ("t4", "vllm sglang transformers llamacpp"),
        ("v100-sxm2-16gb", "vllm transformers llamacpp"),
        ("p40", "transformers llamacpp"),
        ("mi300x", "vllm sglang transformers llamacpp"),
        ("rx-7900-xtx", "vllm transformers llamacpp"),
        ("mi50-32gb", "transformers llamacpp"),
        ("apple-m4-max", "vllm transformers llamacpp mlx"),
        ("arc-b580", "vllm transformers llamacpp"),
        ("tpu-v6e", "vllm sglang transformers"),
        ("gaudi3", "vllm transformers"),
        ("ascend-910b-64gb", "vllm sglang transformers llamacpp"),
        ("mtt-s4000", "vllm sglang transformers llamacpp"),
        ("metax-c500", "vllm transformers"),
        ("hygon-bw1000", "vllm transformers"),
        ("atlas-300i-duo-96gb", "vllm transformers llamacpp"),  # vllm-ascend's and llama.cpp's CANN pages
        ("mlu370-x8", "vllm transformers"),
        ("br104", ""),
    ],
)
def test_engines_of_a_gpu(gpu, engines):
    assert {name for name, engine in SUPPORTED.items() if runs(gpus()[gpu], engine)} == set(engines.split())


@pytest.mark.parametrize(
    ("gpu", "engine", "sentence"),
    [
        ("h100-sxm", "vllm", None),
        ("p40", "vllm", "vLLM needs compute capability 7.5; Tesla P40 has 6.1"),
        (
            "v100-sxm2-16gb",
            "vllm",
            "vLLM now needs compute capability 7.5: V100 SXM2 16GB, with 7.0, takes an older version",
        ),
        ("apple-m1", "vllm", "vLLM runs on Apple M1 16GB with vllm-metal"),
        (
            "mi100",
            "sglang",
            "SGLang does not run on Instinct MI100: its target gfx908 is not among gfx942, gfx950",
        ),
        ("tpu-v5e", "llamacpp", "llama.cpp does not run on TPU v5e"),
        (
            "ascend-950pr",
            "sglang",
            "SGLang does not run on Atlas 350 (Ascend 950PR) 112GB: its target 950 is not among 910B, 910_93",
        ),
        ("mlu370-x8", "vllm", "vLLM runs on MLU370-X8 (one of its two chips) with vllm-mlu"),
        ("br104", "vllm", "vLLM does not run on Biren BR104; suInfer-LLM does"),
        ("ascend-910b-64gb", "vllm", "vLLM runs on Ascend 910B3 64GB with vllm-ascend"),
    ],
)
def test_why_not(gpu, engine, sentence):
    found = note(gpus()[gpu], SUPPORTED[engine])
    assert (None if found is None else str(found)) == sentence


@in_one_test("gpu", [pytest.param(gpu, id=name) for name, gpu in gpus().items()])
def test_every_gpu_runs_something_and_a_refusal_has_a_reason(gpu):
    assert any(runs(gpu, engine) for engine in SUPPORTED.values()) or gpu.software is not None
    assert all(runs(gpu, engine) or note(gpu, engine) for engine in SUPPORTED.values())


def test_a_users_own_is_given_the_doubt():
    own = custom_gpu("A", 48, 960)
    assert all(runs(own, engine) and note(own, engine) is None for engine in SUPPORTED.values())
