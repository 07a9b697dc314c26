"""The catalogue as a table, and a GPU of the reader's own."""

import numpy as np
import pytest

from calc import Architecture, Layout, Precision
from calc.hardware.engine_rules import runs
from calc.serving import MOST_TOKENS
from calc.serving.engines import ENGINES
from calc.time.report import operating_points
from pages.parts.outputs import charts
from pages.parts.outputs import fitted as map_of_rows
from pages.parts.state import fitted, query
from pages.parts.state.scenario import Scenario
from pages.parts.state.weighed import looked, weighed
from presets import gpus, models
from tests.pages.app import charts as drawn
from tests.pages.app import finding, opened, page, rows, run, script, texts


def test_every_gpu_is_a_row():
    shown = rows(page("hardware", "catalogue_columns"), "catalogue")
    for row, gpu in zip(shown, newest(gpus().values()), strict=True):
        assert row["Id in links"] == gpu.id
        assert (row["Memory, GB"], row["Bandwidth, GB/s"]) == (gpu.memory_gb, gpu.bandwidth_gb_s)
        assert (
            row["Engines"].split(", ") == [engine.title for engine in ENGINES.values() if runs(gpu, engine.support)]
            or not row["Engines"]
        )
        assert row["Specification"] == gpu.sources["specification"]


@pytest.mark.parametrize(
    ("place", "query", "found"),
    [
        ("weigh", {}, "Qwen3-8B fits on H100 SXM 80GB MIG 3g.40gb"),
        ("weigh", {"num_gpus": "2"}, "Qwen3-8B does not run on 2 × H100 SXM 80GB MIG 3g.40gb"),
        ("train", {"dp": "2", "method": "lora"}, "LoRA of Qwen3-8B does not run on 2 × H100 SXM 80GB MIG 3g.40gb"),
    ],
)
def test_a_slice_is_a_gpu_of_its_own(place, query, found):
    app = page(place, model="Qwen/Qwen3-8B", gpu="h100-sxm:3g.40gb", **query)
    assert finding(app) == found


def test_more_slices_do_not_help_a_model():
    app = page(model="Qwen/Qwen3-8B", gpu="h100-sxm:1g.10gb")
    assert any("Min. GPUs: **none**: a model is on one slice" in text for text in texts(app.markdown))


def newest(some):
    return sorted(some, key=lambda gpu: (gpu.year or 0, gpu.bandwidth_gb_s), reverse=True)


def test_rows_that_are_open_are_weighed():
    app = page("hardware")
    assert app.button(key="weigh_on").disabled
    app.session_state["catalogue_open"] = ("h100-sxm", "l4", "gone")
    run(run(app).button(key="weigh_on").click())
    assert set(app.session_state.scenario.gpu) == {"h100-sxm", "l4"}


@pytest.mark.parametrize(
    ("key", "value", "holds"),
    [
        pytest.param("vendors", ["Apple"], lambda gpu: gpu.vendor == "Apple", id="vendor"),
        pytest.param("forms", ["laptop"], lambda gpu: gpu.form == "laptop", id="form"),
        pytest.param("runs", ["sglang"], lambda gpu: runs(gpu, ENGINES["sglang"].support), id="engine"),
    ],
)
def test_a_filter(key, value, holds):
    app = run(page("hardware").multiselect(key=key).set_value(value))
    assert [row["GPU"] for row in rows(app, "catalogue")] == [
        gpu.name for gpu in newest(filter(holds, gpus().values()))
    ]


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


def test_the_map_of_models_is_what_fits_and_a_row_of_its_table_is_weighed():
    app = opened(page("gpus", view="models", card="l4", length="4096"), "map_table_models")
    found = fitted.models_on("l4", 1, 4096, "vllm")
    shown = rows(app, "map_rows_models")
    named = {preset.name: row for row, preset in enumerate(models()[name] for name in found.names)}
    assert len(shown) == min(60, sum(found.max_context.max(axis=1) > 0))
    for row in shown:
        tokens = found.max_context[named[row["Name"]]][fitted.FORMATS.index("int4")]
        assert row["Context, int4"] == ("no limit" if tokens == MOST_TOKENS else tokens or None)
    assert list(drawn(app)) == ["map_models"]


@pytest.mark.slow
def test_the_map_of_gpus_has_ones_own():
    own = "Mine:96GiB:4000GB/s:bf16=900"
    app = opened(page("gpus", gpu=own, figure="speed"), "map_table_formats")
    assert "Mine" in [row["Name"] for row in rows(app, "map_rows_formats")]


def test_a_heat_map_is_empty_where_nothing_fits():
    found = fitted.models_on("l4", 1, 4096, "vllm")
    figure = charts.heat_map(found.names, fitted.FORMATS, found.max_context, charts.short_tokens)
    (cells,) = figure["data"]
    for shades, sizes in zip(cells["z"], found.max_context, strict=True):
        assert [shade is None for shade in shades] == [size == 0 for size in sizes]


def test_a_map_of_lengths_colours_what_memory_takes_away(monkeypatch):
    """A model made for 1,000 tokens: a cell that holds them all is at the pale end, the others the darker the less."""
    lengths = np.array([[1000, 250, 0], [1000, 1000, 1000]])
    for theme in (charts.LIGHT, charts.DARK):
        monkeypatch.setattr(charts, "theme", lambda theme=theme: theme)
        figure = charts.heat_map("ab", "xyz", lengths, charts.short_tokens, np.array([1000, 1000]))
        (cells,) = figure["data"]
        assert cells["z"][1] == [cells["zmax"]] * 3
        assert cells["z"][0] == [cells["zmax"], cells["zmin"], None]
        monkeypatch.undo()
    app = page("gpus", model="Qwen/Qwen3-8B")
    assert any(text.endswith("Rows that are grey in every format come last.") for text in texts(app.caption))
    (cells,) = drawn(app)["map_formats"]["data"]
    grey = [all(cell == cells["zmax"] for cell in row) for row in cells["z"]]
    assert grey == sorted(grey)
    assert grey.count(False) > 20


LEFT_ON_WEIGH = {
    "sizes and layout": {"batch": "64", "context": "1024", "generated": "512", "num_gpus": "4"},
    "flags": {"gpu_memory_utilization": "0.5", "enforce_eager": "true"},
    "cache": {"kv": "fp8", "cuda_context": "3-4"},
}
"""Settings of Weigh that a map does not read."""


@pytest.mark.parametrize("left", [pytest.param(left, id=name) for name, left in LEFT_ON_WEIGH.items()])
@pytest.mark.parametrize(
    ("model", "gpu", "cards", "length"),
    [
        pytest.param("meta-llama/Llama-3.3-70B-Instruct", "gaudi2", "1", "131072", id="the first format holds less"),
        pytest.param("Qwen/Qwen3-30B-A3B", "rtx-4090", "8", "2048", id="another layout in fp8"),
    ],
)
def test_a_row_of_the_map_is_weighed_as_the_map_has_it(model, gpu, cards, length, left, monkeypatch):
    link = {"model": model, "view": "formats", "cards": cards, "length": length}
    on_weigh, _ = query.decode({"model": model, **left}, query.WEIGH, Scenario(), lambda _: {})
    scenario, _ = query.decode(link, query.GPUS, on_weigh, lambda _: {})
    _, found = fitted.of_scenario(looked(scenario), "vllm")
    row, clicked = found.names.index(gpu), {}
    monkeypatch.setattr(map_of_rows, "change", clicked.update)
    map_of_rows.taken(scenario, found, row, "formats")
    opened_link = query.encode(scenario.model_copy(update=clicked), query.WEIGH)
    after, problems = query.decode(opened_link, query.WEIGH, Scenario(), lambda _: {})
    answer = weighed(after)
    (verdict,) = answer.report.verdicts
    form = found.formats.index(answer.report.scenario.precision.weights)
    assert (problems, verdict.verdict, verdict.max_context) == ([], "fits", found.max_context[row, form])
    assert answer.user_rate(verdict) == pytest.approx(found.tokens_per_s[row, form], rel=1e-12)


def test_a_model_that_makes_no_tokens_has_lengths_on_the_map_and_no_speed():
    link = {"model": "BAAI/bge-m3"}
    assert not any("no output tokens" in text for text in texts(page("gpus", **link).info))
    assert any("no output tokens" in text for text in texts(page("gpus", figure="speed", **link).info))


def test_the_link_of_a_roofline_has_the_formats_that_its_points_depend_on():
    link = {"view": "roofline", "weights": "fp8", "kv": "fp8"}
    scenario, _ = query.decode(link, query.GPUS, Scenario(), lambda _: {})
    assert query.encode(scenario, query.GPUS) == link


def test_a_map_says_what_it_leaves_on_weigh():
    link = {"num_gpus": "2", "enforce_eager": "true", "kv": "fp8", "share": "bandwidth=0.5/0.6/0.7"}
    left = "Left on Weigh, without effect here: `enforce_eager=true`; 2 GPUs; KV cache in fp8; efficiencies."
    assert left in texts(page("gpus", **link).caption)
    assert not any("Left on Weigh" in text for text in texts(page("gpus").caption))


def test_points_lie_under_the_roof():
    gpu, whole = gpus()["h100-sxm"], Architecture.from_config(models()["Qwen/Qwen3-8B"].config)
    points = operating_points(whole, ENGINES["vllm"](), Precision(), gpu, Layout(), 4096)
    assert [point.bound for point in points] == ["bandwidth"] * 4 + ["compute"]
    for point in points:
        assert point.tflops < min(gpu.tflops["bf16"], point.intensity * gpu.bandwidth_gb_s / 1000)
    assert points[0].intensity == pytest.approx(1, abs=0.3)  # a multiply-add for each weight of two bytes
    app = page("gpus", view="roofline")
    assert drawn(app).keys() == {"roofline"}


@pytest.mark.slow
def test_a_map_under_another_engine():
    """SGLang leaves other shares of a GPU free; what sets nothing aside has no map, and a sentence."""
    app = page("gpus", view="models", card="l4", length="4096", engine="sglang")
    found = fitted.models_on("l4", 1, 4096, "sglang")
    assert any("defaults of SGLang" in text for text in texts(app.caption))
    assert (found.max_context != fitted.models_on("l4", 1, 4096, "vllm").max_context).any()
    other = page("gpus", view="models", engine="transformers")
    assert any("allocates as requests arrive" in text for text in texts(other.error))


@pytest.mark.slow
def test_the_map_of_llamacpp_is_of_files():
    """What a card or a Mac holds whole, in the files that people download."""
    app = opened(page("gpus", model="Qwen/Qwen3-14B", engine="llamacpp"), "map_table_formats")
    first = rows(app, "map_rows_formats")[0]
    assert "Context, Q4_K_M" in first
    assert "Context, fp8" not in first
    link = {"model": "Qwen/Qwen3-14B", "length": "8192", "engine": "llamacpp"}
    scenario, _ = query.decode(link, query.GPUS, Scenario(), lambda _: {})
    kinds, found = fitted.of_scenario(looked(scenario), "llamacpp")
    row = found.max_context[[gpu.id for gpu in kinds].index("rtx-4070")]  # 12 GB; Q8_0 has 15.7 GB, Q4_K_M 9.0
    assert row[fitted.FILES.index("Q8_0")] == 0 < row[fitted.FILES.index("Q4_K_M")]


def test_a_config_that_could_not_be_read_is_no_problem_of_a_gpu():
    app = page("weigh", "own_drawer")
    app.text_area(key="own_text").set_value("no config")
    app.button(key="own_weigh").click()
    run(run(app).switch_page(script("hardware")))
