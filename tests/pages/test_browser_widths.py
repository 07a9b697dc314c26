"""Nothing is wider than the screen, from the narrowest phone to the widest desk; on a phone a table is cards."""

import re

import pytest
from playwright.sync_api import expect

from tests.pages.readers import viewed

SIZES = ((320, 900), (390, 844), (768, 900), (1024, 900), (1440, 900), (2560, 900))
USUAL = ((390, 844), (1440, 900))
"""Of a phone, and of a desk: what a page has found is seen there without a move."""
FITS = """width => {
  const main = document.querySelector("[data-testid=stMain]");
  return document.documentElement.scrollWidth <= width && main.scrollWidth <= main.clientWidth;
}"""
BEYOND = """width => [...document.querySelectorAll("[data-testid=stMain] [role=radio]")]
  .filter((choice) => choice.getBoundingClientRect().right > width).map((choice) => choice.textContent)"""
IN_SIGHT = """() => {
  const places = document.querySelector(".st-key-places").getBoundingClientRect();
  const foot = places.top > innerHeight / 2 ? places.top : innerHeight;
  return [...document.querySelectorAll("h1, .weighbridge-facts")].every((found) => {
    const box = found.getBoundingClientRect();
    return box.top >= 0 && box.bottom <= foot;
  });
}"""


@pytest.mark.parametrize("view", viewed())
def test_a_page_fits_every_screen_and_its_answer_comes_first(page, address, view):
    page.goto(f"{address}/{view}")
    page.get_by_role("heading", level=1).first.wait_for()
    page.locator(".stApp[data-test-script-state=notRunning]").wait_for()
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(FITS, arg=width)  # a chart follows its container
        assert page.evaluate(BEYOND, width) == []
        if (width, height) in USUAL:
            page.wait_for_function(IN_SIGHT)


@pytest.mark.parametrize(
    ("view", "table", "row"),
    [
        ("plan", "Plans", "L4"),
        ("machine", "Which file to download", "Q6_K"),
        ("hardware", "GPUs", "B200 SXM"),
        ("train_plan", "Plans", "H100 SXM 80GB"),
    ],
)
def test_on_a_phone_every_table_is_cards(page, address, view, table, row):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/{view}")
    rows = page.get_by_role("table", name=table, exact=True)
    rows.wait_for()
    search = page.get_by_role("searchbox", name=f"Search these rows: {table}")
    if search.is_visible():
        search.fill(row)
    card = rows.get_by_role("row").filter(has=page.get_by_role("button", name=row, exact=True))
    box = card.bounding_box()
    assert (box["width"] > 300, box["height"] > 80) == (True, True)
    card.get_by_role("button", name=row, exact=True).click()
    opened = "aria-pressed" if view == "hardware" else "aria-expanded"
    expect(card.get_by_role("button", name=row, exact=True)).to_have_attribute(opened, "true")
    expect(page.get_by_test_id("stDataFrame")).to_have_count(0)
    with page.expect_download() as download:
        page.get_by_role("button", name=f"{table} .csv", exact=True).click()
    assert row in download.value.path().read_text("utf-8")


@pytest.mark.parametrize(
    ("view", "section", "table", "row"),
    [
        ("accuracy", None, "Record by record", "Llama-3-8B, bf16"),
        ("accuracy", "Start-ups", "Record by record", "Qwen/Qwen3-32B"),
        ("accuracy", "Speed", "Record by record", "meta-llama/Llama-3.1-8B"),
        ("verify", "All presets", "All presets", "Qwen/Qwen3-8B"),
        ("?model=Qwen/Qwen3-8B", "Tensors", "Tensors", "lm_head.weight"),
    ],
)
def test_on_a_phone_records_are_cards_too(page, address, view, section, table, row):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/{view}")
    if section is not None:
        page.get_by_role("radio", name=section, exact=True).click()
    rows = page.get_by_role("table", name=table, exact=True)
    rows.wait_for()
    page.locator(".stApp[data-test-script-state=notRunning]").wait_for()
    page.get_by_role("searchbox", name=f"Search these rows: {table}").fill(row)
    card = rows.get_by_role("row").filter(has=page.get_by_role("rowheader", name=row)).first
    card.hover()  # goes on where the rows are drawn anew
    box = card.bounding_box()
    assert (300 < box["width"] <= 390, box["height"] > 80) == (True, True)
    expect(page.get_by_test_id("stDataFrame")).to_have_count(0)
    with page.expect_download() as download:
        page.get_by_role("button", name=f"{table} .csv", exact=True).click()
    assert row in download.value.path().read_text("utf-8")


def test_on_a_phone_a_row_is_a_card_that_opens_and_has_an_address(page, address):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/?model=Qwen/Qwen3-8B")
    row = page.get_by_role("row").filter(has=page.get_by_role("button", name="L40S", exact=True))
    box = row.bounding_box()
    assert box["width"] > 300
    assert box["height"] > 80
    row.get_by_role("button", name="L40S", exact=True).click()
    expect(page.get_by_text("Max context length:").first).to_be_in_viewport()
    expect(page).to_have_url(re.compile("opened=l40s"))
    page.reload()
    expect(page.get_by_text("Max context length:").first).to_be_visible()
    expect(page.get_by_role("button", name="L40S", exact=True)).to_have_attribute("aria-expanded", "true")
    page.get_by_role("button", name="L40S", exact=True).click()
    expect(page).not_to_have_url(re.compile("opened"))


def test_the_scale_swings_where_the_verdict_changes_and_only_there(page, address):
    page.goto(f"{address}/?model=Qwen/Qwen3-8B&gpu=l4")
    scale = page.locator(".weighbridge-scale")
    expect(scale).to_have_attribute("data-verdict", "green")
    needed = scale.locator(".left .figure")
    before = needed.text_content()
    page.get_by_role("spinbutton", name="Batch size").press("ArrowUp")
    expect(needed).not_to_have_text(before)
    expect(scale).not_to_have_class("weighbridge-scale swings")
    page.get_by_role("combobox", name="Context length").select_option(label="1M")
    expect(scale).to_have_attribute("data-verdict", "red")
    expect(scale).to_have_class("weighbridge-scale swings")
