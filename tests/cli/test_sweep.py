"""`weighbridge sweep`: rows are those of calc.report, whoever weighs them and however often it was cut."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import duckdb
import pyarrow.parquet
import pytest

from calc import ConfigError, Layout, Workload, report
from calc.formats import native
from calc.hardware.custom_gpu import find_gpu
from calc.serving.engines import ENGINES
from cli import main
from cli.sweep.grid import read_grid
from cli.sweep.rows import columns, leaves
from presets import models
from tests import ROOT

GRID = """
models = ["Qwen/Qwen3-8B", "openai/gpt-oss-20b"]
gpus = ["h100-sxm", "l4", "mine:48GiB:960GB/s:bf16=181"]
engines = ["vllm", "llamacpp"]
weights = ["auto", "fp8"]
layouts = [{}, {tp = 2}, {num_gpus = 4}]
context = [4096, 100000]
batch = [1, 16]

[options.vllm]
gpu_memory_utilization = 0.95
"""
SLOW = """
models = ["Qwen/Qwen3-8B", "openai/gpt-oss-20b", "Qwen/Qwen3-0.6B", "google/gemma-3-4b-it"]
gpus = "all"
context = 2048
batch = [1, 16]
"""
"""Four parts, each of a second."""
COMMAND = (sys.executable, "-m", "calc", "sweep")


@pytest.fixture
def grid(tmp_path):
    """Writes a grid."""

    def write(text):
        path = tmp_path / "grid.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The rows of SLOW, swept at once."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "grid.toml").write_text(SLOW, encoding="utf-8")
    assert main(["sweep", str(folder / "grid.toml"), "--out", str(folder / "rows.parquet"), "--jobs", "1"]) == 0
    return pyarrow.parquet.read_table(folder / "rows.parquet")


def wait_for(condition):
    end = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def point(model, engine, weights, given, context, batch, gpu):
    """What calc.report says of one point."""
    config, options = models()[model].config, {"gpu_memory_utilization": 0.95} if engine == "vllm" else {}
    layout = Layout(**given) if "num_gpus" not in given else None
    made = ENGINES[engine](ENGINES[engine].options_type(**options))
    result = report(
        config,
        model=model,
        workload=Workload(context=context, batch=batch),
        engine=made,
        precision=made.precision(native(config), None if weights == "auto" else weights, None),
        layout=layout,
        num_gpus=given.get("num_gpus"),
        gpus=[find_gpu(gpu)],
    ).model_dump(mode="json")
    (verdict,), budgets = result["verdicts"], result["kv_budget"]
    assert result["memory"] == verdict["memory"]
    return result | verdict | {"kv_budget": budgets[0] if budgets else {}}


@pytest.mark.slow
def test_rows_are_those_of_the_report(grid, tmp_path):
    out = tmp_path / "rows.parquet"
    assert main(["sweep", str(grid(GRID)), "--out", str(out), "--jobs", "1"]) == 0
    rows = iter(pyarrow.parquet.read_table(out).to_pylist())
    layouts = ({}, {"tp": 2}, {"num_gpus": 4})
    axes = (("Qwen/Qwen3-8B", "openai/gpt-oss-20b"), ("vllm", "llamacpp"), ("auto", "fp8"), layouts)
    refusals = 0
    for words in product(*axes, (4096, 100_000), (1, 16), ("h100-sxm", "l4", "mine:48GiB:960GB/s:bf16=181")):
        row = next(rows)
        stated = {name: value for name, value in row.items() if value is not None}
        try:
            expected = dict(leaves(point(*words)))
        except ConfigError as error:
            refusals += 1
            assert (row["verdict"], row["reason"]) == ("does not run", str(error)), words
            assert (row["model"], row["scenario.engine"]) == words[:2]
            assert (row["scenario.workload.context"], row["scenario.workload.batch"]) == words[4:6]
            assert row["gpu"] == find_gpu(words[6]).id
        else:
            assert stated == {name: value for name, value in expected.items() if value is not None}, words
    assert next(rows, None) is None
    # llama.cpp reads no fp8 (2 models, 3 layouts) and shares no layers (2 models more); vLLM does not cut gpt-oss's
    # 2,880 columns into fp8 tiles for two GPUs: each on 4 workloads and 3 GPUs
    assert refusals == (6 + 2 + 1) * 4 * 3


def test_columns_are_paths_of_the_report():
    assert {
        "verdict": "string",
        "required": "integer",
        "memory.total": "integer",
        "parameters.components.experts_routed": "integer",
        "kv_budget.concurrency": "number",
        "notes": "array",
        "scenario.options": "object",
    }.items() <= columns().items()


@pytest.mark.slow
def test_a_sweep_that_is_killed_goes_on(grid, tmp_path, whole):
    path, cut = grid(SLOW), tmp_path / "cut.parquet"
    parts = tmp_path / "cut.parquet.parts"
    process = subprocess.Popen([*COMMAND, path, "--out", cut, "--jobs", "1"], cwd=ROOT, start_new_session=True)
    try:
        wait_for(lambda: len(list(parts.glob("0*.parquet"))) >= 2)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not cut.exists()
    before = {file.name: file.stat().st_mtime_ns for file in parts.glob("0*.parquet")}
    assert 2 <= len(before) < 4
    done = subprocess.run([*COMMAND, path, "--out", cut], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"{1936 - 484 * len(before):,} of them new" in done.stdout  # 242 GPUs x 2 workloads in a part
    assert pyarrow.parquet.read_table(cut).equals(whole)
    assert not parts.exists()
    query = f"""select count(*), count(distinct (model, gpu, "scenario.precision.weights",
        "scenario.workload.context", "scenario.workload.batch")) from '{cut}'"""
    assert duckdb.sql(query).fetchall() == [(1936, 1936)]
    assert main(["sweep", str(path), "--out", str(cut)]) == 0  # all there


CLUSTER = """
import os, signal, subprocess, sys, time
from pathlib import Path
from distributed import LocalCluster

if __name__ == "__main__":
    grid, out = sys.argv[1:]
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        words = [sys.executable, "-m", "calc", "sweep", grid, "--out", out, "--dask", cluster.scheduler_address]
        sweep = subprocess.Popen(words)
        while len(list(Path(f"{out}.parts").glob("0*.parquet"))) < 2:
            assert sweep.poll() is None
            time.sleep(0.02)
        os.kill(cluster.workers[0].process.pid, signal.SIGKILL)
        status = sweep.wait()
    sys.exit(status)
"""


@pytest.mark.sweep
def test_a_cluster_loses_a_worker_and_no_row(grid, tmp_path, whole):
    path, out = grid(SLOW), tmp_path / "dask.parquet"
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, script, path, out], cwd=ROOT, env=environment, check=True, timeout=200)
    assert pyarrow.parquet.read_table(out).equals(whole)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "In the grid, models: It has to be there.", id="no-models"),
        pytest.param("models = []", "In the grid, models: It has to be there.", id="empty"),
        pytest.param("models = ['Qwen/Qwen3-8B', 'no such']", "models, 2: “no such” is neither a preset", id="model"),
        pytest.param("models = 'all'\ngpus = ['l4', 'h1000']", "gpus, 2: ", id="gpu"),
        pytest.param("models = 'all'\nengines = ['vlm']", "“vlm” can't be taken: engines is one of ", id="engine"),
        pytest.param("models = 'all'\nweights = 'fp9'", "“fp9” can't be taken: weights is one of auto, ", id="weights"),
        pytest.param(
            "models = 'all'\ncontext = [4096, 'long']",
            "context, 2: “long” can't be taken: context is",
            id="context",
        ),
        pytest.param("models = 'all'\nbatch = 0", "batch: 0 can't be taken", id="batch"),
        pytest.param(
            "models = 'all'\nlayouts = [{tp = 0}]",
            "layouts, 1, tp: 0 can't be taken: tp is a",
            id="layout",
        ),
        pytest.param("models = 'all'\nprices = 3", "prices: No such field; there are models, gpus, ", id="field"),
        pytest.param("models = 'all'\nlayouts = [2]", "layouts is a table such as { tp", id="table"),
        pytest.param("models = 'all'\n[options.vlm]\nx = 1", "options, vlm: No such engine", id="options"),
        pytest.param("models = 'all'\n[options.vllm]\nx = 1", "options, vllm: ", id="option"),
        pytest.param("models = [", "is not TOML: ", id="toml"),
        pytest.param("#" * 1_000_001, "1,000,000 is the most that we read.", id="long"),
        pytest.param("models = " + "[" * 3000, "nests lists too deep", id="deep"),
    ],
)
def test_a_bad_grid_is_a_sentence_that_says_where(grid, tmp_path, capsys, text, says):
    out = tmp_path / "rows.parquet"
    assert main(["sweep", str(grid(text)), "--out", str(out)]) == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.glob("rows*")) == []


def test_the_grid_of_the_documentation_is_one(grid, tmp_path):
    text = re.search(r"```toml\n(.*?)```", (ROOT / "docs" / "sweep.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    config = tmp_path / "config.json"
    config.write_text(json.dumps(dict(models()["Qwen/Qwen3-8B"].config)), encoding="utf-8")
    parts = read_grid(str(grid(text.replace("./ours/config.json", str(config)))))
    # 2 models, 3 GPUs, 2 engines, 2 formats, 3 layouts, 2 lengths, 3 batches
    assert sum(part.rows for part in parts) == 2 * 3 * 2 * 2 * 3 * 2 * 3


def test_a_grid_that_is_not_there_is_a_sentence(tmp_path, capsys):
    assert main(["sweep", str(tmp_path / "none.toml"), "--out", str(tmp_path / "rows.parquet")]) == 2
    assert "can't be read: No such file" in capsys.readouterr().err


ONE = "models = 'Qwen/Qwen3-8B'\ngpus = 'l4'\nbatch = {}"


def test_rows_of_another_grid_stay(grid, tmp_path, capsys):
    out = tmp_path / "rows.parquet"
    assert main(["sweep", str(grid(ONE.format(1))), "--out", str(out), "--jobs", "1"]) == 0
    assert main(["sweep", str(grid(ONE.format(2))), "--out", str(out)]) == 2
    assert "not from this grid" in capsys.readouterr().err
    assert pyarrow.parquet.read_table(out)["scenario.workload.batch"].to_pylist() == [1]


def test_parts_of_another_grid_stay(grid, tmp_path, capsys):
    folder = tmp_path / "rows.parquet.parts"
    folder.mkdir()
    (folder / "grid").write_text("another", encoding="utf-8")
    assert main(["sweep", str(grid(ONE.format(1))), "--out", str(tmp_path / "rows.parquet")]) == 2
    assert "rows of another grid" in capsys.readouterr().err


def test_what_a_sweep_needs_is_named(grid, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("cli.sweep.find_spec", lambda name: None)
    assert main(["sweep", str(grid(ONE.format(1))), "--out", str(tmp_path / "rows.parquet"), "--dask", "x"]) == 2
    said = "A sweep needs pyarrow, joblib, tqdm, distributed: pip install 'weighbridge[sweep]' adds it.\n"
    assert capsys.readouterr().err == said


def test_a_cluster_that_is_not_there_is_a_sentence(grid, tmp_path, capsys):
    out = tmp_path / "rows.parquet"
    words = ["sweep", str(grid(ONE.format(1))), "--out", str(out), "--dask", "nonsense://127.0.0.1:1"]
    assert main(words) == 2
    assert "No Dask workers at nonsense://127.0.0.1:1" in capsys.readouterr().err
    assert Path(f"{out}.parts").exists()
