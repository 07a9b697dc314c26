"""The language of a reader: the browser's, until a link or the switch says another, and then on every page."""

import re

import pytest
from playwright.sync_api import expect

from tests.pages.browser.conftest import DESK, FORGET
from tests.pages.readers import go, ways


@pytest.fixture(scope="module")
def chinese(browser):
    """A reader whose browser is in Chinese."""
    context = browser.new_context(viewport=DESK, locale="zh-CN")
    context.set_default_timeout(60_000)
    context.add_init_script(FORGET)
    yield context
    context.close()


@pytest.fixture
def page(chinese):
    page = chinese.new_page()
    yield page
    page.close()


def test_the_language_goes_along(page, address):
    page.goto(f"{address}/?model=Qwen/Qwen2.5-3B&batch=4")
    tabs = ways(page)
    expect(tabs).to_contain_text(["推理", "训练", "我的机器", "模型", "验证", "估算", "规划", "所有 GPU"])
    assert "lang" not in page.url

    page.get_by_role("button", name="English").click(timeout=60_000)
    expect(tabs).to_contain_text(["Serve", "Train", "My machine", "Model", "Evidence", "Weigh", "Plan", "On all GPUs"])
    expect(page).to_have_url(re.compile(r"batch=4.*lang=en"))

    go(page, "Train")
    expect(page).to_have_url(re.compile(r"/train\?.*lang=en"))
    expect(page.get_by_text("Trainable parameters").first).to_be_visible()

    go(page, "Evidence")
    go(page, "Accuracy")
    expect(page.get_by_role("heading", level=1)).to_contain_text("measured figures")
    page.get_by_role("button", name="中文").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("实测值")
    expect(page).to_have_url(re.compile("lang=zh"))

    page.reload()
    expect(page.get_by_role("heading", level=1)).to_contain_text("实测值")


def test_lists_are_in_the_language_and_work_there(page, address):
    """The browser fetches the lists of each language."""
    page.goto(f"{address}/?model=Qwen/Qwen3-8B")
    english, chinese = ("English", "Weight format", "(default)"), ("中文", "权重格式", "（默认）")
    for language, label, shown in (english, chinese, english):
        page.get_by_role("button", name=language).click()
        chosen = page.get_by_role("combobox", name=label)  # a new one in each language
        option = chosen.locator("option:checked")
        expect(option).to_have_attribute("label", re.compile(re.escape(shown)))
        expect(option).to_have_attribute("value", "bf16")
    page.get_by_role("slider", name=re.compile("^Layers")).press("ArrowRight")
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("^Qwen3-8B .changed. fits on "))
