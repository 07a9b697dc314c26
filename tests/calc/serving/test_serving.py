"""Serving against public logs: what fits a cache, what vLLM leaves for it, and peaks of transformers' generate."""

from functools import cache
from statistics import median

import pytest

from benchmarks.accuracy.found import Comparison, LeftOut
from benchmarks.accuracy.serving import other_engines, transformers_peaks, vllm_budgets, vllm_tokens
from benchmarks.accuracy.sglang import logs
from tests import load

MEASURED = load("measured.json")


@cache
def compared():
    """Each measured figure next to the computed one, and those left out."""
    kinds = (transformers_peaks, vllm_tokens, vllm_budgets, other_engines)
    return [*(row for kind in kinds for row in kind(MEASURED)), *logs(MEASURED + load("sglang.json"))]


@pytest.mark.parametrize(
    ("kind", "records", "middle", "most", "share"),
    [  # the median, and a bound that so large a share of the records keeps
        pytest.param("transformers peaks, 16 bits", 48, 0.01, 0.05, 0.95, id="Qwen's speed benchmarks on A100 and H20"),
        pytest.param("KV tokens given KV bytes", 25, 0.001, 0.01, 0.95, id="start-up logs of vLLM 0.6 to 0.21"),
        pytest.param("vLLM KV budget", 9, 0.03, 0.08, 1, id="by the settings of the log alone"),
        pytest.param("cache of other engines", 17, 0.001, 0.003, 0.9, id="SGLang and llama.cpp"),
        pytest.param("SGLang weights", 11, 0.01, 0.02, 0.8, id="beside which libraries take up to 0.15 GiB"),
        pytest.param("SGLang KV budget", 5, 0.015, 0.055, 1, id="by SGLang's share of the free memory"),
    ],
)
def test_as_measured(kind, records, middle, most, share):
    errors = [abs(row.error) for row in compared() if isinstance(row, Comparison) and row.kind == kind]
    assert len(errors) >= records
    assert median(errors) < middle
    assert sum(error < most for error in errors) >= share * len(errors)


def test_every_record_is_compared_or_left_out_with_a_reason():
    kinds = {row["kind"] for row in MEASURED}
    assert kinds == {"vllm_startup", "hf_inference_peak", "sglang_startup", "llamacpp"}
    assert all(row.reason for row in compared() if isinstance(row, LeftOut))
