"""The question on top: its search, its controls by keyboard and by thumb, in a real Chromium."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from pages.parts.inputs import lists
from tests import EXAMPLES, ROOT
from tests.calc.verify.test_logs import LOGS
from tests.pages.readers import paste, search

SCRIPT, NODES = ((ROOT / "pages" / "scripts" / name).read_text("utf-8") for name in ("question.js", "dom.js"))
SCRIPT = SCRIPT.replace("./dom.js", f"data:text/javascript,{quote(NODES)}")
MATCHING = """async ([script, rows, text]) => {
    const { matching } = await import(`data:text/javascript,${encodeURIComponent(script)}`);
    return matching(rows, text).map((row) => row.id);
}"""


@pytest.fixture(scope="module")
def find(browser):
    """Ids of what the search offers for a text."""
    page, offered = browser.new_page(), lists.contents("en")
    yield lambda text, kind="model": page.evaluate(MATCHING, [SCRIPT, offered[kind], text])
    page.close()


@pytest.mark.parametrize(
    ("text", "first"),
    [
        pytest.param("deepseek v3", "deepseek-ai/DeepSeek-V3", id="spaces"),
        pytest.param("v3 DEEPSEEK-", "deepseek-ai/DeepSeek-V3", id="any order and case"),
        pytest.param("qwen2.5 3b", "Qwen/Qwen2.5-3B", id="name"),
        pytest.param("Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-3B", id="instruct"),
        pytest.param("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B", id="id of instruct"),
        pytest.param("qwen/qwen3-8b", "Qwen/Qwen3-8B", id="id in small letters"),
        pytest.param("llama 405b", "meta-llama/Llama-3.1-405B", id="the only one"),
    ],
)
def test_words_find_a_model(find, text, first):
    assert find(text)[0] == first


@pytest.mark.parametrize(
    ("text", "has", "lacks"),
    [
        pytest.param("qwen moe", "Qwen/Qwen3-235B-A22B", "Qwen/Qwen3-8B", id="kind"),
        pytest.param("2024", "deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-R1", id="year"),
        pytest.param("2025-04 qwen", "Qwen/Qwen3-8B", "Qwen/Qwen2.5-7B", id="month"),
        pytest.param("gemma 12", "google/gemma-3-12b-it", "google/gemma-2-9b", id="size, not month"),
        pytest.param(
            "mistral 24", "mistralai/Mistral-Small-24B-Instruct-2501", "mistralai/Mixtral-8x22B-v0.1", id="size"
        ),
    ],
)
def test_words_leave_others_out(find, text, has, lacks):
    found = find(text)
    assert has in found
    assert lacks not in found


def test_a_gpu_by_its_memory(find):
    assert {"rtx-3090", "rtx-4090", "a10", "a30", "l4"} <= set(find("24", "gpu"))
    assert find("nobody's card", "gpu") == []


def test_mig_slices_come_where_they_are_sought(find):
    assert not any(":" in gpu for text in ("h100", "24", "nvidia") for gpu in find(text, "gpu"))
    assert find("h100 sxm mig 3g", "gpu") == ["h100-sxm:3g.40gb"]
    assert set(find("1g.10gb h100 pcie", "gpu")) == {"h100-pcie:1g.10gb"}


def test_by_keyboard_alone(page, address):
    """The whole sentence: a model, a format, a number, a GPU, and one more beside it; Back undoes the last."""
    page.goto(f"{address}/?gpu=h200-sxm")
    search(page, "Model", "deepseek v3", "DeepSeek-V3")
    expect(page.get_by_role("button", name="Model: DeepSeek-V3")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("combobox", name="Weight format")).to_be_focused()
    page.keyboard.press("Tab")
    count = page.get_by_role("spinbutton", name="How many of each")
    expect(count).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    expect(page).to_have_url(re.compile("num_gpus=3"))
    expect(count).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.type("h100 sxm")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("button", name="H100 SXM 80GB", exact=True)).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("Escape")
    expect(page).to_have_url(re.compile("gpu=h200-sxm(,|%2C)h100-sxm"))
    expect(page.get_by_role("button", name="GPU models: 2 GPU types")).to_be_focused()
    page.go_back()
    expect(page.get_by_role("button", name="GPU models: H200 SXM")).to_be_visible()
    expect(count).to_have_count(1)  # the browser may still hold what was drawn before it
    expect(count).to_have_value("3")


def test_a_number_counts_after_a_pause_and_nonsense_never(page, address):
    page.goto(f"{address}/?gpu=h200-sxm")
    users = page.get_by_role("spinbutton", name="Batch size")
    users.click()
    users.fill("64")
    expect(page).to_have_url(re.compile("batch=64"))
    expect(users).to_be_focused()
    for nonsense in ("0", "-3", "1.5", ""):
        users.fill(nonsense)
        users.blur()
        expect(users).to_have_value("64")
    assert "batch=64" in page.url


def test_a_lever_sets_the_sentence(page, address):
    """What anything else sets is said in it, and a reader goes on from there."""
    page.goto(f"{address}/?model=deepseek-ai/DeepSeek-V3&gpu=h200-sxm&num_gpus=8&batch=64&context=32768&engine=sglang")
    expect(page.get_by_role("combobox", name="Engine", exact=True)).to_have_value("sglang")
    page.get_by_role("button", name="Reset everything").click()
    expect(page.get_by_role("spinbutton", name="Batch size")).to_have_value("1")
    expect(page.get_by_role("combobox", name="Engine", exact=True)).to_have_value("vllm")
    page.get_by_role("combobox", name="Engine", exact=True).select_option("SGLang")
    expect(page).to_have_url(f"{address}/?model=deepseek-ai%2FDeepSeek-V3&engine=sglang")


@pytest.mark.parametrize("language", [pytest.param("en", marks=pytest.mark.sweep), "zh"])
def test_no_line_begins_with_a_comma(page, address, language):
    page.goto(f"{address}/train?model=Qwen/Qwen3-0.6B&method=grpo,lora&lang={language}")
    bar = page.locator(".weighbridge-question")
    expect(bar.locator(".kept").first).to_be_visible()
    alone = bar.locator("> :not(.kept)").all_text_contents()
    assert [text for text in alone if text.startswith((",", "，"))] == []
    for width in (320, 390, 1024):
        page.set_viewport_size({"width": width, "height": 844})
        heights = bar.locator(".kept").evaluate_all("parts => parts.map((part) => part.getBoundingClientRect().height)")
        assert max(heights) < 50


@pytest.fixture(scope="module")
def phone(browser):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    yield context
    context.close()


def test_with_a_thumb(phone, address):
    page = phone.new_page()
    page.goto(f"{address}/?model=deepseek-ai/DeepSeek-V3&gpu=h200-sxm&num_gpus=8&batch=64&context=32768")
    bar = page.get_by_role("group", name="The question")
    expect(bar.get_by_role("combobox", name="Context length")).to_have_value("32768")
    page.wait_for_load_state("networkidle")
    tops = bar.locator("> *").evaluate_all("parts => parts.map(part => part.getBoundingClientRect().bottom)")
    assert max(tops) - min(tops) < 60, "two rows"
    page.get_by_role("button", name="GPU models: H200 SXM").tap()
    panel = page.get_by_role("dialog", name="GPU models")
    box = panel.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    panel.get_by_role("searchbox").fill("b200")
    panel.get_by_role("button", name=re.compile("^B200 SXM")).tap()
    expect(page).to_have_url(re.compile("gpu=b200&"))
    page.close()


@pytest.mark.parametrize(
    ("query", "text", "said"),
    [
        # as vLLM stated it: github.com/vllm-project/vllm/issues/10517
        pytest.param(
            "?model=meta-llama/Llama-3.1-8B",
            (EXAMPLES / "startup.log").read_text("utf-8"),
            "Every figure that the log states agrees.",
            id="a start",
            marks=pytest.mark.sweep,
        ),
        pytest.param(
            "train?model=Qwen/Qwen3.6-27B", LOGS["vllm-state-blocks"], "The server did not start: ", id="a refusal"
        ),
        # 0.77 GiB and 140.75 MiB: github.com/vllm-project/vllm/issues/27508
        pytest.param(
            "plan",
            (EXAMPLES / "out_of_memory.log").read_text("utf-8"),
            "short by 0.63 GiB",
            id="out of memory",
            marks=pytest.mark.sweep,
        ),
    ],
)
def test_an_error_is_pasted_from_any_page(page, address, query, text, said):
    """By keyboard: the button, the text, which counts as it is pasted."""
    page.goto(f"{address}/{query}")
    page.get_by_role("button", name="Paste an error").press("Enter")
    area = page.get_by_role("textbox", name=re.compile("^A start-up log"))
    expect(area).to_be_focused()
    paste(area, text)
    expect(page).to_have_url(re.compile("/verify"))
    expect(page.get_by_text(said)).to_be_visible()
    expect(page.get_by_role("dialog", name="Paste an error")).to_be_hidden()


def test_an_error_is_typed_on_a_phone(phone, address):
    page = phone.new_page()
    page.goto(f"{address}/?model=openai/gpt-oss-120b")
    page.get_by_role("button", name="Paste an error").tap()
    panel = page.get_by_role("dialog", name="Paste an error")
    box = panel.bounding_box()
    assert (box["x"] >= 0, box["x"] + box["width"] <= 390) == (True, True)
    area, text = panel.get_by_role("textbox"), (EXAMPLES / "out_of_memory.log").read_text("utf-8").strip()
    area.fill(text[:-1])
    area.press_sequentially(text[-1])
    expect(area).to_have_value(text)
    panel.get_by_role("button", name="Read it").tap()
    expect(page.get_by_text("short by 0.63 GiB")).to_be_visible()
    page.get_by_role("button", name="It was training: what makes it fit").tap()
    expect(page).to_have_url(re.compile("/train\\?model=openai(/|%2F)gpt-oss-120b&gpu=h100"))
    page.close()
