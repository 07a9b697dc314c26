"""The Accuracy page and the READMEs show what the formulas of today give beside the public records."""

import re
from statistics import median

import pytest

from benchmarks.accuracy import disaggregated, served_evidence, startup_evidence, time
from benchmarks.accuracy.evidence import READMES, evidence, in_readme, readme_table
from benchmarks.accuracy.judged import rows_of
from benchmarks.accuracy.served import Server, predicted
from benchmarks.accuracy.startups import load
from pages.parts.verify.accuracy import agreement, errors
from pages.parts.verify.evidence import (
    COMPUTED,
    EXPLAINED,
    KINDS,
    SPEEDS,
    accuracy,
    servers,
    speeds,
    startups,
    summaries,
    why,
)
from pages.parts.verify.speeds import REASONS
from pages.parts.verify.speeds import errors as speed_errors
from tests import DATA
from tests.pages.app import finding, page, rows, run

QWEN = "Qwen/Qwen3-30B-A3B"


@pytest.mark.slow
def test_the_file_is_what_the_formulas_give_now():
    """Else run python -m benchmarks.accuracy."""
    assert accuracy() == evidence()


@pytest.mark.parametrize(("language", "readme"), READMES.items())
def test_the_readme_agrees_with_the_file(language, readme):
    """Likewise."""
    assert in_readme(readme.read_text(encoding="utf-8")) == readme_table(accuracy(), language)


def test_every_kind_is_explained_and_every_record_counted():
    found = accuracy()
    assert {row.kind for row in found.rows} == set(KINDS) == set(EXPLAINED)
    assert sum(kind.records for kind in summaries(found)) == len(found.rows)
    assert all(row.measured > 0 and row.predicted > 0 for row in found.rows)
    assert all(row.count > 0 and row.reason for row in found.left_out)


def test_the_charts_hold_every_record():
    kinds = accuracy().by_kind()
    sizes = sum(row.unit == "bytes" for row in accuracy().rows)
    assert sum(len(trace["x"]) for trace in agreement(kinds)["data"] if trace["mode"] == "markers") == sizes
    assert sum(len(trace["x"]) for trace in errors(kinds)["data"]) == len(accuracy().rows)


@pytest.mark.slow
def test_the_page():
    app = page("accuracy")
    measured = [abs(row.error) for row in accuracy().rows if row.kind != COMPUTED]
    number, bound = re.fullmatch(r"Half of (\d+) measured figures are met within (.*)%", finding(app)).groups()
    assert int(number) == len(measured)
    assert 0 <= float(bound) - 100 * median(measured) < 0.01
    assert len(rows(app, "records")) == len(accuracy().rows)


def test_the_file_of_speeds_is_what_the_formulas_give_now():
    """Else run python -m benchmarks.accuracy.time."""
    assert SPEEDS.read_text(encoding="utf-8") == time.as_text(time.whole(time.found(time.rows_of(time.ROWS))))


def test_the_speeds_are_those_of_the_file():
    found = speeds()
    app = run(page("accuracy").segmented_control(key="sections").set_value("speed"))
    shown_rows = rows(app, "speed_records")
    assert len(shown_rows) == len(found.rows)
    assert all(row["Source"].startswith("https://") for row in shown_rows)
    assert sum(len(trace["x"]) for trace in speed_errors(found)["data"]) == sum(
        row.rows for row in found.by_kind.values()
    )
    # Megatron-Bridge's docs/performance-summary.md (25.11): Qwen3-30B-A3B on 8 GPUs, micro-batches of 4 and of 1
    sizes = {row["gpu"]: row["batch"] for row in found.records() if (row["model"], row["gpus"]) == (QWEN, 8)}
    assert sizes.items() >= {"gb200": 4, "b200": 1}.items()
    shown = "\n".join(element.value for element in app.markdown)
    for row in found.by_kind.values():
        assert f"**{row.median_error:.1%}**" in shown
    assert all(str(why(REASONS, row.reason)) in shown for row in found.left_out)


def test_the_file_of_start_ups_is_what_the_formulas_give_now():
    """Else run python -m benchmarks.accuracy.startup_evidence. The court's configurations are not in a clone."""
    now = startup_evidence.of_logs(load(str(startup_evidence.LOGS)))
    assert now == {name: getattr(startups(), name) for name in now}


def test_the_court_is_a_table_of_four_cells():
    found = startups()
    app = run(page("accuracy").segmented_control(key="sections").set_value("starts"))
    tables = [element.value for element in app.markdown if element.value.startswith("| ")]
    cells = [cell.strip(" *") for line in tables[0].splitlines()[2:] for cell in line.split("|")[2:4]]
    # 772 configurations of servers in starts.json are graded A or B; 18 of them do not start
    assert sum(map(int, cells)) == 772
    assert sum(map(int, cells[2:])) == 18
    assert len(found.misses) == int(cells[1]) + sum(
        cell.count for cell in found.court if not cell.starts and cell.word == "fits"
    )
    assert [row["Model"] for row in rows(app, "startup_records")] == [log.model for log in found.logs]


def test_servers_are_what_the_formulas_give_now():
    """Of those that a clone holds, every 25th; else run python -m benchmarks.accuracy.served_evidence."""
    known = {row.model_copy(update={"source": ""}) for row in servers().servers()}
    shared, separate = rows_of(DATA / "served.json"), rows_of(DATA / "disaggregated.json")
    together = [server for server in predicted(*shared) if isinstance(server, Server)]
    sample = [served_evidence.served(server, "") for server in (*together, *disaggregated.predicted(*separate))]
    assert len(sample) > 50
    assert known.issuperset(sample)


def test_the_page_says_how_near_servers_under_a_steady_load_are():
    app = run(page("accuracy").segmented_control(key="sections").set_value("speed"))
    tables = [element.value for element in app.markdown if "Width of the range" in element.value]
    # 939 servers of served.json are under a steady load; vLLM, SGLang and TensorRT-LLM on two generations
    assert ["| All on the same GPUs | 939 | " in table for table in tables] == [True, True]
    # 182 more have prefill and decode on GPUs of their own
    assert ["| All with prefill and decode on separate GPUs | 182 | " in table for table in tables] == [True, True]
    groups = {(row.separate, row.engine, row.generation) for row in servers().servers()}
    assert all(len(table.splitlines()) == 2 + 2 + len(groups) for table in tables)
