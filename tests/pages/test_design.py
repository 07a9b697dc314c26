"""The page Design without a browser, and the drawing as what it is: an SVG."""

import re
from xml.etree import ElementTree

import pytest

from calc import Architecture, Workload
from calc.families import override
from calc.model.diagram import diagram
from pages.parts.outputs.blueprint import drawing, parts_of
from presets import models
from tests.pages.app import page, run, texts

SVG = "{http://www.w3.org/2000/svg}"


def drawn(name, **changes):
    architecture = Architecture.from_config(override(models()[name].config, changes))
    found = diagram(architecture)
    return ElementTree.fromstring(drawing(architecture, found, Workload(), f"Drawing of <{name}>")), found


def labels(svg):
    return [text.text for text in svg.iter(f"{SVG}text")]


@pytest.mark.parametrize(
    "name",
    ["deepseek-ai/DeepSeek-V3", "Zyphra/Zamba2-1.2B", "tiiuae/Falcon-H1-0.5B-Base", "google/gemma-4-26B-A4B"],
)
def test_every_part_can_be_chosen_and_says_what_it_is(name):
    svg, found = drawn(name)
    assert svg.get("aria-label") == f"Drawing of <{name}>"
    parts = [part for part in svg.iter(f"{SVG}g") if part.get("data-part")]
    assert {part.get("data-part") for part in parts} == parts_of(found).keys()
    assert all(
        part.get("role") == "button" and part.get("tabindex") == "0" and part.get("aria-label") for part in parts
    )


def test_layers_with_their_repeats_and_what_is_cached():
    svg, _ = drawn("deepseek-ai/DeepSeek-V3")
    said = " ".join(filter(None, labels(svg)))
    assert "× 3 ·" in said
    assert "× 58 ·" in said
    assert "256 routed experts, 8 for each token" in said
    assert (
        len([text for text in labels(svg) if text and text.endswith(": cached")]) == 4
    )  # latent and rotary key, twice


def test_the_drawing_follows_the_sliders():
    svg, _ = drawn("Qwen/Qwen3-8B", num_key_value_heads=32, num_hidden_layers=12)
    assert {"MHA", "4,096 × 4,096"} <= set(labels(svg))
    assert any(text.startswith("× 12 ·") for text in labels(svg) if text)


def test_a_tied_head_leads_back_to_the_embedding():
    svg, _ = drawn("Qwen/Qwen2.5-3B")
    assert "the embedding again (tied): stored once" in labels(svg)


def test_a_dense_model_becomes_experts():
    app = page("design", model="Qwen/Qwen3-8B")
    run(app.button(key="make_experts").click())
    assert "pasted" in app.query_params
    shown = {slider.key.partition("~")[0]: slider.value for slider in app.slider}
    assert shown["field_num_experts"] == 8
    assert shown["field_num_experts_per_tok"] == 2
    assert shown["field_moe_intermediate_size"] == 12_288 // 2
    assert "make_experts" not in [button.key for button in app.button]


def test_the_page():
    app = page("design", model="Qwen/Qwen3-8B")
    said = texts(app.markdown)
    assert any("Every side of every matrix is a multiple of 64." in text for text in said)
    assert any(re.search(r"164 B|163\.81 B", text) for text in said)  # 20 tokens for each of 8.19 B parameters
    run(app.number_input(key="scale_parameters_Qwen3-8B").set_value(14.0))
    run(app.selectbox(key="scale_field").set_value("num_hidden_layers"))
    assert any("`num_hidden_layers` = **66**" in text for text in texts(app.markdown))
    run(app.button(key="scale_use_66").click())
    assert app.query_params["num_hidden_layers"] in ("66", ["66"])
    run(app.selectbox(key="scale_kind").set_value("memory"))
    assert any("within the budget" in text for text in texts(app.markdown))
