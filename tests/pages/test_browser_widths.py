"""Nothing is wider than the screen, from the narrowest phone to the widest desk; on a phone a table is cards."""

import re

import pytest
from playwright.sync_api import expect

from pages.parts.state.query import PAGES

WIDTHS = (320, 390, 768, 1024, 1440, 2560)
FITS = """width => {
  const main = document.querySelector("[data-testid=stMain]");
  return document.documentElement.scrollWidth <= width && main.scrollWidth <= main.clientWidth;
}"""
VIEWS = [
    *((page.path, "") for page in PAGES),
    *(("gpus", f"?view={view}") for view in ("models", "roofline")),
]


@pytest.mark.parametrize(("path", "query"), [pytest.param(*view, id="".join(view) or "weigh") for view in VIEWS])
def test_nothing_is_wider_than_the_screen(page, address, path, query):
    page.goto(f"{address}/{path}{query}")
    page.get_by_role("heading", level=1).first.wait_for()
    page.locator(".stApp[data-test-script-state=notRunning]").wait_for()
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(FITS, arg=width)  # a chart follows its container


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
