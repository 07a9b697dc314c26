"""A reader's walk: a model, its cache on paper, the other language, the file, a comparison, the drawing, the link
elsewhere."""

import re

import pytest
from playwright.sync_api import expect

from tests.pages.readers import choose, go, search


@pytest.mark.sweep
def test_a_reader_s_walk(browser, page, address, tmp_path):
    page.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    page.goto(f"{address}/?gpu=h200-sxm&num_gpus=8")
    search(page, "Model", "DeepSeek-V3", "DeepSeek-V3 ·")
    expect(page.get_by_text("671,026,404,352").first).to_be_visible()

    page.get_by_role("button", name=re.compile("^KV cache, total")).click()
    page.get_by_role("link", name="Step by step").click()
    expect(page).to_have_url(re.compile("/derive.*derive=kv_cache"))
    expect(page.locator("#kv_cache")).to_be_in_viewport()

    page.locator(".st-key-speak_zh button").click()  # roles take long to look for among so many formulas
    expect(page.locator("#memory")).to_have_text("单卡显存")
    with page.expect_download() as download:
        page.locator(".st-key-take_html button").click()
    download.value.save_as(tmp_path / "report.html")

    page.get_by_role("button", name="保留为 B").click()
    page.get_by_role("link", name="将 A 与 B 对比").click()
    choose(page, "添加模型", "Qwen3-235B-A22B", "Qwen3-235B-A22B")
    expect(page.get_by_role("cell", name=re.compile(r"^235\.09 B"))).to_be_visible()
    expect(page).to_have_url(re.compile("with=.*Qwen3-235B"))
    link = page.url

    go(page, "模型")
    page.locator('[data-part="1.experts_routed"]').click(position={"x": 60, "y": 12})
    expect(page.get_by_role("dialog").get_by_text("mlp.experts.*.gate_proj.weight")).to_be_visible()
    page.keyboard.press("Escape")

    for ending, begins in (("png", b"\x89PNG"), ("svg", b"<svg")):
        with page.expect_download() as download:
            page.get_by_role("button", name=re.compile(rf" \.{ending}$")).first.click()
        download.value.save_as(tmp_path / f"chart.{ending}")
        assert (tmp_path / f"chart.{ending}").read_bytes().startswith(begins)

    elsewhere = browser.new_context(locale="en-US").new_page()
    elsewhere.goto(f"{link}&embed=true")  # the link says the language
    expect(elsewhere.get_by_role("cell", name=re.compile(r"^235\.09 B"))).to_be_visible()
    expect(elsewhere.get_by_role("cell", name="参数量", exact=True)).to_be_visible()
    expect(elsewhere.get_by_test_id("stAlert")).to_have_count(0)

    alone = browser.new_context(offline=True).new_page()
    failed = []
    alone.on("requestfailed", lambda request: failed.append(request.url))
    alone.goto((tmp_path / "report.html").as_uri())
    expect(alone.get_by_role("heading", name="DeepSeek-V3")).to_be_visible()
    alone.get_by_role("link", name="所有序列的 KV 缓存").click()
    expect(alone.locator("#kv_cache")).to_be_in_viewport()
    assert alone.locator("math").count() > 50
    assert failed == []
