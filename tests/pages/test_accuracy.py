"""The Accuracy screen shows what the formulas of today give beside the public records."""

import json

from benchmarks.accuracy.accuracy import FILE, summed_up
from pages.parts.outputs.charts import DARK, LIGHT
from pages.parts.verify.accuracy import EXPLAINED, KINDS
from pages.parts.verify.accuracy_charts import agreement, errors
from presets import accuracy
from tests.pages.app import page


def test_the_file_is_what_the_formulas_give_now():
    """Else run python -m benchmarks.accuracy."""
    assert json.loads(FILE.read_text(encoding="utf-8")) == summed_up()


def test_every_kind_is_explained_and_every_record_counted():
    found = accuracy()
    assert {row.kind for row in found.rows} == set(KINDS) == set(EXPLAINED)
    assert all(row.measured > 0 and row.predicted > 0 for row in found.rows)
    assert all(row.count > 0 and row.reason for row in found.left_out)


def test_the_charts_hold_every_record():
    kinds = {kind: [row for row in accuracy().rows if row.kind == kind] for kind in KINDS}
    sizes = sum(row.unit == "bytes" for row in accuracy().rows)
    assert sum(len(trace.x) for trace in agreement(kinds, LIGHT).data if trace.mode == "markers") == sizes
    assert sum(len(trace.x) for trace in errors(kinds, DARK).data) == len(accuracy().rows)


def test_the_page():
    app = page("accuracy")
    assert app.title[0].value == "Accuracy"
    assert len(app.dataframe) == 1
