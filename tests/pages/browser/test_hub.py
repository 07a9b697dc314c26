"""Models of the Hub and the Verify screen in a real Chromium, against a small local Hub with its faults."""

import json
import re

import pytest
from playwright.sync_api import expect

from calc import Architecture
from presets import models
from tests import EXAMPLES
from tests.hub_server import TOKEN, Files, hub, safetensors
from tests.pages.browser.conftest import DESK, running_app
from tests.pages.browser.test_first_link import follow
from tests.pages.readers import go, search


def published(model: str, without: tuple[str, ...] = (), **more: tuple[str, tuple[int, ...], int]) -> Files:
    """A repository with the config of a preset and the tensors that its class has."""
    config = models()[model].config
    tensors = {
        name: ("BF16", tensor.shape, 2 * tensor.numel)
        for tensor in Architecture.from_config(config).tensors()
        for name in tensor.names()
        if name not in without
    }
    return {"config.json": json.dumps(config).encode(), "model.safetensors": safetensors(tensors | more)}


STRANGE = {"model_type": "strange", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
REPOSITORIES = {
    "Qwen/Qwen2.5-0.5B": published("Qwen/Qwen2.5-0.5B"),
    "own/changed": published("Qwen/Qwen2.5-0.5B", without=("model.norm.weight",), adapter=("F32", (3, 4), 48)),
    "own/opens-with-token": {"config.json": json.dumps(models()["Qwen/Qwen3-0.6B"].config).encode()},
    "own/strange": {
        "config.json": json.dumps(STRANGE | {"intermediate_size": 128, "vocab_size": 100}).encode(),
        "model.safetensors": safetensors({"anything": ("F8_E4M3", (1000, 64), 64_000), "scale": ("F32", (4,), 16)}),
    },
}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with hub(REPOSITORIES) as server:
        home = str(tmp_path_factory.mktemp("hf"))
        with running_app(HF_ENDPOINT=server.endpoint, HF_HOME=home, NO_PROXY="127.0.0.1") as where:
            yield where


def number(page, label):
    card = page.locator(".weighbridge-figures button").filter(has_text=re.compile(f"^{re.escape(label)}"))
    return card.locator("b")


def metric(page, label):
    card = page.get_by_test_id("stMetric").filter(has_text=re.compile(f"^{re.escape(label)}"))
    return card.get_by_test_id("stMetricValue")


def test_first_link_of_a_fresh_process(browser, address):
    """Before any other test here has asked the process for a page."""
    context = browser.new_context(viewport=DESK)
    follow(context.new_page(), address, "derive")
    context.close()


def test_a_model_is_found_as_one_types_and_its_link_shows_the_same(page, address):
    page.goto(address)
    page.get_by_text("Any model on the Hugging Face Hub").click()
    page.get_by_label("Find a model").press_sequentially("own/ch")
    page.get_by_role("button", name="own/changed").click()
    expect(page.get_by_role("heading", name="own/changed")).to_be_visible()
    expect(number(page, "Parameters")).to_have_text("494.03 M")
    expect(page).to_have_url(re.compile("model=own(/|%2F)changed"))
    page.reload()
    expect(number(page, "Parameters")).to_have_text("494.03 M")


def test_theory_and_checkpoint_agree(page, address):
    page.goto(f"{address}/verify?model=Qwen/Qwen2.5-0.5B")
    page.get_by_role("button", name="Read the headers").click()
    expect(page.get_by_text("All 290 tensors agree in name and shape.")).to_be_visible()
    expect(metric(page, "Checkpoint")).to_have_text("494,032,768")
    expect(metric(page, "Stored")).to_have_text("942.29 MiB")


@pytest.mark.sweep
def test_every_tensor_that_differs_is_named(page, address):
    page.goto(f"{address}/verify?model=own/changed")
    page.get_by_role("button", name="Read the headers").click()
    expect(metric(page, "Difference")).to_have_text("-884")
    expect(metric(page, "Matching tensors")).to_have_text("289")
    expect(page.get_by_role("heading", name="Differences")).to_be_visible()


def test_a_print_out_is_compared(page, address):
    page.goto(f"{address}/verify?model=Qwen/Qwen2.5-0.5B")
    page.get_by_role("radio", name="print(model)").click()
    box = page.get_by_label("Paste what print(model) shows")
    box.fill("Qwen2ForCausalLM(\n  (model): Qwen2Model(\n    (embed_tokens): Embedding(151936, 897)\n  )\n)")
    box.press("Control+Enter")
    expect(metric(page, "Checkpoint")).to_have_text("136,286,592")
    expect(page.get_by_role("heading", name="Differences")).to_be_visible()


def test_a_file_is_compared(page, address):
    page.goto(f"{address}/verify?model=Qwen/Qwen2.5-0.5B")
    page.get_by_role("radio", name="File").click()
    chooser = page.get_by_test_id("stMain").get_by_test_id("stFileUploaderDropzoneInput")
    header = REPOSITORIES["own/changed"]["model.safetensors"]
    chooser.set_input_files({"name": "model.safetensors", "mimeType": "application/octet-stream", "buffer": header})
    expect(metric(page, "Difference")).to_have_text("-884")
    chooser.set_input_files({"name": "other.bin", "mimeType": "application/octet-stream", "buffer": b"PK\x03\x04"})
    expect(page.get_by_text("This is no safetensors file")).to_be_visible()


@pytest.mark.sweep
def test_all_presets_meet_their_published_totals(page, address):
    page.goto(f"{address}/verify")
    page.get_by_role("radio", name="All presets").click()
    published = sum(preset.published is not None for preset in models().values())
    expect(metric(page, "Presets whose published total")).to_have_text(f"{published} of {published}")


@pytest.mark.sweep
def test_the_choice_of_model_goes_along_from_screen_to_screen(page, address):
    page.goto(f"{address}/?model=Qwen/Qwen2.5-0.5B&num_hidden_layers=12")
    expect(number(page, "Parameters")).to_have_text("315.08 M")
    go(page, "Evidence")
    expect(page).to_have_url(re.compile("verify.*num_hidden_layers=12"))
    go(page, "Accuracy")
    expect(page.get_by_role("heading", name="measured figures")).to_be_visible()
    go(page, "Serve")
    expect(number(page, "Parameters")).to_have_text("315.08 M")
    expect(page).to_have_url(re.compile("num_hidden_layers=12"))


def test_a_token_opens_a_gated_model_and_is_in_no_link(page, address):
    page.goto(f"{address}/?model=own/opens-with-token&batch=4")
    expect(page.get_by_text("is gated").first).to_be_visible()
    token = page.get_by_label("Token", exact=True)
    token.fill(TOKEN)
    token.press("Enter")
    expect(number(page, "Parameters")).to_have_text("596.05 M")
    assert TOKEN not in page.url
    assert "batch=4" in page.url
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_text("Link copied.")).to_be_visible()
    assert TOKEN not in page.evaluate("navigator.clipboard.readText()")


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("x/missing", "The Hub knows no x/missing"),
        pytest.param("x/busy", "takes no more requests", marks=pytest.mark.sweep),
        pytest.param("x/broken", "a fault of its own (500)", marks=pytest.mark.sweep),
    ],
)
def test_a_fault_is_a_sentence_and_the_rest_goes_on(page, address, model, sentence):
    page.goto(f"{address}/?model={model}")
    expect(page.get_by_text(sentence).first).to_be_visible()
    search(page, "Model", "Qwen2.5-3B", "Qwen2.5-3B ·")
    expect(number(page, "Parameters")).to_have_text("3.09 B")


def test_an_unknown_family_is_weighed_by_its_own_table(page, address):
    page.goto(f"{address}/?model=own/strange")
    expect(metric(page, "Stored elements")).to_have_text("64.00 k")
    page.get_by_role("button", name="Read it as a Llama-like decoder").click()
    expect(page.get_by_text("Every number here depends on that assumption").first).to_be_visible()
    expect(page).to_have_url(re.compile("assume=llama"))


@pytest.mark.sweep
def test_a_log_is_laid_beside_ours(page, address):
    """github.com/vllm-project/vllm/issues/10517: Llama-3.1-8B on an RTX 3090, weights of 14.9888 GiB."""
    page.goto(f"{address}/verify?model=meta-llama/Llama-3.1-8B")
    page.get_by_role("radio", name="Start-up log").click()
    box = page.get_by_label("Paste a start-up log")
    box.fill("Model loading took 14.9888 GiB")
    box.press("Control+Enter")
    expect(page.get_by_text("Every figure that the log states agrees.")).to_be_visible()
    expect(page.get_by_text("14.99 GiB").first).to_be_visible()
    box.fill("Model loading took 29.9 GiB")
    box.press("Control+Enter")
    expect(page.get_by_text("What differs most")).to_be_visible()


@pytest.mark.sweep
def test_an_own_measurement_is_laid_beside_the_prediction(page, address):
    page.goto(f"{address}/verify")
    page.get_by_role("radio", name="Your own measurement").click()
    chooser = page.get_by_test_id("stMain").get_by_test_id("stFileUploaderDropzoneInput")
    chooser.set_input_files(EXAMPLES / "measurement.json")
    expect(page.get_by_text("qwen3 on")).to_be_visible()
    chooser.set_input_files({"name": "other.json", "mimeType": "application/json", "buffer": b"[1]"})
    expect(page.get_by_text("This is not a measurement")).to_be_visible()
