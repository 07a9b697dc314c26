"""What people's GPUs held while they trained: README tables and logs, each with its address in the data."""

from functools import cache
from statistics import median

import pytest

from benchmarks.accuracy.training import compare, read
from tests import load

RECORDS = load("train_peaks.json")
CASES, LEFT_OUT = read(RECORDS)


@cache
def compared():
    """Each case's measured peak next to the computed one."""
    return compare(CASES)


def test_every_record_is_compared_or_left_out_with_a_reason():
    assert len(CASES) + len(LEFT_OUT) == len(RECORDS) == 202
    assert all(left.reason for left in LEFT_OUT)


def test_half_of_the_records_are_within_ten_percent():
    assert median(abs(row.error) for row in compared()) < 0.1


@pytest.mark.parametrize(
    ("framework", "method", "off"),
    [
        ("torchtune", "full", 0.06),
        ("torchtune", "lora", 0.06),
        ("torchtune", "qlora", 0.06),
        ("litgpt", "lora", 0.05),
        ("litgpt", "qlora", 0.1),
        ("HF Trainer+DeepSpeed", "full", 0.12),
    ],
)
def test_groups_whose_settings_are_published(framework, method, off):
    groups = [(row, (row.case.record["framework"], row.case.work.method)) for row in compared()]
    errors = [row.error for row, group in groups if group == (framework, method)]
    assert errors
    assert all(abs(error) < off for error in errors)


@pytest.mark.parametrize(
    ("told", "off"),
    [
        pytest.param({"ac": "full", "model": "Llama-3.1-8B"}, 0.01, id="FSDP2 and CP, each layer recomputed"),
        pytest.param({"ac": "selective"}, 0.04, id="FSDP2, every other product kept, compiled or not"),
        pytest.param({"ac": "per-op SAC"}, 0.04, id="FSDP2 of 2025, the embedding apart"),
    ],
)
def test_what_each_stream_of_fsdp2_keeps_reserved(told, off):
    """torchtitan's logs print what the allocator has reserved."""
    rows = [row for row in compared() if told.items() <= row.case.record.items()]
    assert rows
    assert all(abs(row.error) < off for row in rows)


@pytest.mark.parametrize(("model", "off"), [("Qwen-72B", 0.06), ("Qwen-1.8B", 0.2)])
def test_qlora_of_qwen(model, off):
    """The 1.8B is 1.0 GiB above its parts at 256 tokens, which no source explains (docs/training.md)."""
    rows = [row for row in compared() if row.case.record["model"] == model and row.case.work.method == "qlora"]
    assert len(rows) == 6
    assert all(abs(row.error) < off for row in rows)
