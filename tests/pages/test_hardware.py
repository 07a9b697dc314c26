"""The catalogue as a table, and a GPU of the reader's own."""

import pytest

from calc.hardware.engines import TITLES, runs
from presets import gpus
from tests.pages.app import page, run, texts


def test_every_gpu_is_a_row():
    table = page("hardware").dataframe[0].value
    assert list(table["id"]) == list(gpus())
    for (_, row), gpu in zip(table.iterrows(), gpus().values(), strict=True):
        assert (row["memory"], row["bandwidth"]) == (gpu.memory_gb, gpu.bandwidth_gb_s)
        assert (
            row["engines"].split(", ") == [title for name, title in TITLES.items() if runs(gpu, name)]
            or not row["engines"]
        )
        assert row["specification"] == gpu.sources["specification"]


@pytest.mark.parametrize(
    ("key", "value", "holds"),
    [
        pytest.param("vendors", ["Apple"], lambda gpu: gpu.vendor == "Apple", id="vendor"),
        pytest.param("forms", ["laptop"], lambda gpu: gpu.form == "laptop", id="form"),
        pytest.param("runs", ["sglang"], lambda gpu: runs(gpu, "sglang"), id="engine"),
    ],
)
def test_a_filter(key, value, holds):
    app = run(page("hardware").multiselect(key=key).set_value(value))
    assert list(app.dataframe[0].value["id"]) == [gpu.id for gpu in gpus().values() if holds(gpu)]


def test_a_gpu_of_ones_own():
    app = page("hardware")
    app.text_input(key="own_name").set_value("Mine")
    app.number_input(key="own_memory").set_value(48.0)
    app.number_input(key="own_bf16").set_value(181.0)
    run(app.button(key="own_add").click())
    text = "Mine:48GiB:1000GB/s:bf16=181"
    link = app.query_params["gpu"]
    assert text in (link[0] if isinstance(link, list) else link)
    assert any(text in line for line in texts(app.markdown))
    run(app.button(key=f"own_remove_{text}").click())
    assert "gpu" not in app.query_params


def test_what_is_no_gpu_is_a_sentence():
    app = page("hardware")
    app.text_input(key="own_name").set_value("a:b")
    run(app.button(key="own_add").click())
    assert "letters, digits" in texts(app.error)[0]
