"""The page Derive without a browser: its sections, the way to them, what they come to."""

import pytest

from calc.model.paper import SECTIONS
from tests.pages.app import opened, page, texts

QWEN = {"model": "Qwen/Qwen2.5-3B", "gpu": "h100-sxm"}


def anchors(app):
    return tuple(header.proto.anchor for header in app.header if header.proto.anchor)


@pytest.mark.slow
def test_all_sections_in_their_order():
    assert anchors(page("derive", **QWEN)) == SECTIONS
    without_hand = tuple(anchor for anchor in SECTIONS if anchor != "hand")
    gemma = {"model": "google/gemma-3-4b-it", "gpu": "h100-sxm"}
    assert anchors(page("derive", **gemma, method="lora")) == without_hand
    not_trained_there = tuple(anchor for anchor in without_hand if anchor != "training_time")
    assert anchors(page("derive", **gemma)) == not_trained_there


def test_the_contents_lead_to_every_section():
    app = page("derive", **QWEN)
    written = " ".join(texts(app.markdown))
    assert all(f"(#{anchor})" in written for anchor in anchors(app))


def test_no_hand_calculation_of_another_design():
    assert "hand" not in anchors(page("derive", **QWEN, num_hidden_layers="12"))


@pytest.mark.parametrize(
    "line",
    [
        r"n_{q} \cdot d_{\mathrm{head}} \times h",
        r"2{,}048 \times 2{,}048",
        r"= {}&3{,}085{,}938{,}688".replace("= ", "="),
        r"36{,}864",
        "**3,085,938,688**",  # exactly, beside the hand's 3.4 B
        "**3,397,103,616**",
    ],
)
def test_the_lines_of_a_study(line):
    written = "\n".join(texts(page("derive", **QWEN).markdown))
    assert line in written or line.replace("{,}", ",") in written


def test_a_link_opens_a_section():
    app = page("derive", **QWEN, derive="kv_cache")
    assert any('"kv_cache"' in html.proto.body for html in app.get("html"))
    assert app.query_params["derive"] == ["kv_cache"] or app.query_params["derive"] == "kv_cache"
    assert not app.warning


def test_a_link_to_no_section_says_so():
    assert "derive" in page("derive", **QWEN, derive="nowhere").warning[0].value


def test_every_engine_has_its_lines():
    """Tensors of llama.cpp's buffers are symbols of several words."""
    app = page("derive", model="Qwen/Qwen3-8B", gpu="rtx-4090", engine="llamacpp", weights="Q4_K_M", kv="q8_0")
    assert r"\text{gaps and padding" in "\n".join(texts(app.markdown))


def test_the_seconds_of_generation():
    app = page("derive", model="Qwen/Qwen3-0.6B", gpu="h100-sxm", method="grpo", rollout="colocated")
    written = "\n".join(texts(app.markdown))
    seconds = r"\left(t_{\mathrm{prompts}} + \left(C - 1\right) \cdot t_{\mathrm{last}}\right)"
    assert rf"g \cdot {seconds}" in written
    assert "A step has g generations." in written


def test_a_figure_leads_to_its_line():
    app = opened(page(**QWEN), "derive_kv_cache")
    link = next(link.proto for link in app.get("page_link") if link.proto.label == "Step by step")
    assert "derive=kv_cache" in link.query_string
    assert "model=Qwen" in link.query_string


def files(app):
    """What each button hands over, by its label."""
    return {button.label: button.proto for button in app.get("download_button")}


def test_what_can_be_taken_along():
    assert {"Markdown", "HTML", "Tensors (CSV)", "Verdicts (CSV)", "config.json"} <= set(files(page("derive", **QWEN)))
