"""The time on paper: its lines end with what the report says, and every formula can be typeset."""

import pytest

from calc import Architecture, TrainingLayout, TrainingWorkload, Workload
from calc.hardware.gpus import gpus
from calc.model.formula import Formula, number, quotient
from calc.model.paper import Code, PaperTable
from calc.time.figures import shown
from calc.time.paper import step_time_section, time_section
from calc.time.report import time_report
from calc.time.training import training_speed
from calc.training import TrainingScenario
from presets import models
from tests.calc.time.test_derivation import CASES, serving

WORK = Workload(batch=16, context=6000, generated=500)


@pytest.mark.parametrize(("model", "weights", "layout"), CASES)
def test_the_lines_end_with_the_report(model, weights, layout):
    weighed, gpu = serving(model, weights, **layout), gpus()["h100-sxm"]
    tables = [item for item in time_section(weighed, gpu, WORK).items if isinstance(item, PaperTable)]
    results = {str(row[0]): row[1].text for table in tables for row in table.rows if isinstance(row[1], Code)}
    report = time_report(weighed, gpu, WORK)
    step, first = report.decode.step_ms.expected, report.prefill.ttft_ms.expected
    assert results["step"] == (f"{step:.4g} ms" if step < 1000 else f"{step / 1000:,.4g} s")
    assert results["ttft"] == (f"{first:.4g} ms" if first < 1000 else f"{first / 1000:,.4g} s")
    for table in tables:
        for cell in (cell for row in table.rows for cell in row if isinstance(cell, Formula)):
            assert cell.latex()
            assert cell.mathml()


@pytest.mark.parametrize(("layout", "work"), [({"dp": 8, "zero": 3}, {}), ({"pp": 4, "vp": 4}, {"accumulation": 8})])
def test_the_lines_of_a_step_end_with_its_seconds(layout, work):
    architecture = Architecture.from_config(models()["meta-llama/Llama-3.1-8B"].config)
    asked = TrainingWorkload(**work)
    scenario = TrainingScenario(workload=asked, layout=TrainingLayout(**layout))
    speed = training_speed(architecture, scenario, gpus()["h100-sxm"])
    tables = [item for item in step_time_section(speed).items if isinstance(item, PaperTable)]
    formulas = {str(row[0]): row for table in tables for row in table.rows if isinstance(row[0], Formula)}
    seconds = speed.time().step_s.expected
    assert formulas["step"][1].text == (f"{1000 * seconds:.4g} ms" if seconds < 1 else f"{seconds:,.4g} s")
    assert ("vp" in str(formulas["step"][2])) == ("vp" in layout)
    for table in tables:
        for cell in (cell for row in table.rows for cell in row if isinstance(cell, Formula)):
            assert cell.latex()
            assert cell.mathml()


def test_a_power_of_ten_under_a_fraction_bar_stays_there():
    """A divisor of 7.62 times ten to the 14th, not a quotient times it."""
    assert shown(7.6192e14) == "7.6192e14"
    assert quotient(6, number(shown(7.6192e14))).latex() == r"\frac{6}{7.6192 \cdot 10^{14}}"
    assert "<mn>14</mn>" in number("7.6192e14").mathml()
