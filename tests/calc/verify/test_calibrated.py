"""A log's machine in place of our ranges."""

import pytest

from calc import Overhead, Range, report
from calc.verify.logs import calibrated, read_log, weigh_as
from calc.verify.logs.log_weighing import engine_of
from presets import gpus, models
from tests.calc.verify.test_logs import GIB, LOGS

MODEL = "Qwen/Qwen3-30B-A3B"
H100 = (  # https://github.com/kolyangg/mlops-assignment/blob/daaf8cb3262f5daa5d099ff13a25e2a38e7cf765/logs/vllm.log
    "Initializing a V1 LLM engine (v0.10.2) with config: model='Qwen/Qwen3-30B-A3B', max_seq_len=6144, \n"
    "Free memory on device (78.57/79.18 GiB) on startup. Desired GPU memory utilization is (0.9, 71.26 GiB). Actual "
    "usage is 56.93 GiB for weight, {peak} GiB for peak activation, 0.07 GiB for non-torch memory, and 0.69 GiB for "
    "CUDAGraph memory.\nAvailable KV cache memory: 8.68 GiB"
)


def weighed(text, overhead=None, model=MODEL):
    """Our report of a log's server on its GPU."""
    log = read_log(text)
    config = models()[model].config
    asked = weigh_as(log, config, gpus().values()).scenario
    gpu = gpus()["h100-sxm"].model_copy(update={"usable_mib": log.total // 2**20})
    engine = engine_of(log)
    return report(config, engine=engine, workload=asked.workload, layout=asked.layout, gpus=[gpu], overhead=overhead)


def taken(text, model=MODEL):
    log = read_log(text)
    return calibrated(log, weigh_as(log, models()[model].config, gpus().values()))


def test_the_cache_with_the_figures_of_its_machine_is_that_of_the_log():
    text = H100.format(peak=5.58)
    found = taken(text)
    assert found.overhead_log == "vLLM 0.10.2, Qwen/Qwen3-30B-A3B"
    assert (found.libraries, found.cuda_graphs) == (Range(low=0.07, high=0.07), Range(low=0.69, high=0.69))
    (ours,), (usual,) = weighed(text, found).kv_budget, weighed(text).kv_budget
    assert abs(ours.bytes - 8.68 * GIB) < 0.05 * GIB < abs(usual.bytes - 8.68 * GIB)


def test_a_pass_that_took_more_than_ours_leaves_as_much_less_for_the_cache():
    """5.65 GiB are ours: 39 bytes a logit of 1,024 sequences x 151,936 words."""
    found = taken(H100.format(peak=7.65))
    assert found.peak_gap == Range(low=2, high=2)
    less = found.model_copy(update={"peak_gap": None})
    (with_gap,), (without,) = (weighed(H100.format(peak=5.65), overhead).kv_budget for overhead in (found, less))
    assert without.bytes - with_gap.bytes == 2 * GIB
    assert taken(H100.format(peak=4)).peak_gap is None


@pytest.mark.parametrize("name", ["torch-2.1", "vllm-2026-09"])
def test_a_log_that_states_nothing_of_it_changes_nothing(name):
    assert taken(LOGS[name]) is None


def test_what_others_freed_is_no_figure_of_this_machine():
    assert taken("LLM engine (v0.12.0) with config: \nGraph capturing finished in 3 secs, took -0.97 GiB") is None


def test_the_name_of_a_log_is_a_text_of_a_link():
    long = taken(f"LLM engine (v0.12.0) with config: model='{'m' * 200}', \nnon_torch_memory takes 0.16GiB;")
    assert Overhead(overhead_log=long.overhead_log) == Overhead(overhead_log=f"vLLM 0.12.0, {'m' * 107}")
