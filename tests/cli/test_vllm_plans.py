"""Plans of vLLM's own code, asked on the command line and read off its JSON."""

import json

import pytest

from benchmarks.accuracy.vllm_kv import REPORTED, differing, reported, sample
from calc.serving.memory import KVBudget
from cli import main
from cli.options import flag

CONFIGS, PLANS = sample()
KINDS = {
    (tuple(sorted(row["options"])), row["gpu"], row["kv"], row["tp"], row["pp"], "refused" in row): row for row in PLANS
}
"""One for each kind of settings."""


def words(row):
    """What vLLM was started with, as its command line has it."""
    yield from ("--gpu", row["gpu"], "--max-model-len", row["length"], "--kv-cache-dtype", row["kv"])
    yield from ("--tensor-parallel-size", row["tp"], "--pipeline-parallel-size", row["pp"])
    yield from ("--kv-cache-memory-bytes", row["budget"])
    for name, value in row["options"].items():
        if isinstance(value, bool):
            yield flag(name) if value else "--no-" + flag(name).removeprefix("--")
        else:
            yield from (flag(name), value)


@pytest.mark.parametrize("row", KINDS.values(), ids=lambda row: f"{row['model']} {row['gpu']} {row['options']}")
def test_as_vllm_plans(row, tmp_path, capsys):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIGS[row["model"]]), encoding="utf-8")
    assert main([str(config), "--json", *map(str, words(row))]) == 0
    found = json.loads(capsys.readouterr().out)
    (budget,), (verdict,) = found["kv_budget"], found["verdicts"]
    figures = reported(CONFIGS[row["model"]], row, KVBudget(**budget), verdict["limits"]["in_flight_tokens"])
    assert differing(figures, row, REPORTED) == []


def test_every_option_is_asked():
    asked = {name for names, *_ in KINDS for name in names}
    assert asked >= {"block_size", "enable_prefix_caching", "mamba_ssm_cache_dtype", "max_num_batched_tokens"}
