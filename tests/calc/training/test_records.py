"""What people's GPUs held while they trained: README tables and logs, each with its address in the data."""

from statistics import median

import pytest

from benchmarks.accuracy.training import compare, read
from tests import load

RECORDS = load("train_peaks.json")
CASES, LEFT_OUT = read(RECORDS)
ROWS = compare(CASES)


def test_every_record_is_compared_or_left_out_with_a_reason():
    assert len(CASES) + len(LEFT_OUT) == len(RECORDS) == 202
    assert all(left.reason for left in LEFT_OUT)


def test_half_of_the_records_are_within_ten_percent():
    assert median(abs(row.error) for row in ROWS) < 0.1


@pytest.mark.parametrize(
    ("framework", "method", "off"),
    [
        ("torchtune", "full", 0.06),
        ("torchtune", "lora", 0.06),
        ("torchtune", "qlora", 0.06),
        ("litgpt", "lora", 0.05),
        ("litgpt", "qlora", 0.1),
        ("HF Trainer+DeepSpeed", "qlora", 0.06),
    ],
)
def test_groups_whose_settings_are_published(framework, method, off):
    errors = [row.error for row in ROWS if (row.case.record["framework"], row.case.work.method) == (framework, method)]
    assert errors
    assert all(abs(error) < off for error in errors)
