"""The table of GPUs."""

import pytest

from calc.hardware.gpus import gpus


@pytest.mark.parametrize("gpu", [pytest.param(gpu, id=name) for name, gpu in gpus().items()])
def test_gpu_is_physical(gpu):
    assert 8_000 < gpu.memory_mib < 600_000
    assert 0.95 < gpu.usable_bytes / (gpu.memory_mib * 2**20) <= 1
    assert 200 < gpu.bandwidth_gb_s < 20_000
    assert all(0 < peak < 50_000 for peak in gpu.tflops.values())
    assert gpu.tflops.get("fp8", 0) <= 2.05 * gpu.tflops["fp16"]  # L40S: 733 and 362 by its datasheet
    assert 2017 <= gpu.year <= 2026


def test_the_usual_five():
    usual = {name: gpu.memory_mib for name, gpu in gpus().items() if gpu.default}
    # totals that nvidia-smi prints in public logs
    assert usual == {
        "v100-sxm2-16gb": 16_384,
        "v100-sxm2-32gb": 32_768,
        "a100-sxm-40gb": 40_960,
        "a100-sxm-80gb": 81_920,
        "h100-sxm": 81_559,
    }


@pytest.mark.parametrize(
    ("gpu", "storage", "lacks"),
    [
        ("v100-sxm2-16gb", "bf16", "no native bf16: run fp16"),
        ("v100-sxm2-16gb", "fp16", None),
        ("v100-sxm2-16gb", "fp8", "no fp8 units: fp8 saves memory only, arithmetic is in 16 bits"),
        ("a100-sxm-80gb", "bf16", None),
        ("a100-sxm-80gb", "fp8", "no fp8 units: fp8 saves memory only, arithmetic is in 16 bits"),
        ("h100-sxm", "fp8", None),
        ("h100-sxm", "mxfp4", "no fp4 units: mxfp4 saves memory only, arithmetic is in 16 bits"),
        ("b200", "mxfp4", None),
    ],
)
def test_what_a_card_can_not_do(gpu, storage, lacks):
    assert gpus()[gpu].lacks(storage) == lacks
