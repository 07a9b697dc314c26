"""The five places in a browser: by mouse, by keyboard, on a phone, and the way back."""

import re

import pytest
from playwright.sync_api import expect

from tests.pages.readers import go, ways


def marked(page, *names):
    """The line under it, and what a screen reader says."""
    for name in names:
        expect(page.locator("[class*=st-key-current_] p").filter(has_text=re.compile(f"^{name}$"))).to_be_visible()
    expect(page.locator(".st-key-navigation [aria-current=page] p")).to_have_text(names)


def test_a_walk_through_the_places_and_back(page, address):
    """The question goes along, each place is one step of Back, and an old address is none."""
    page.goto(f"{address}/plan?purpose=train&model=Qwen/Qwen3-0.6B&gpus=8&global_batch=32&plan_gpus=h100-sxm")
    marked(page, "Train", "Training plan")
    expect(page).to_have_url(re.compile("/train_plan.*plan_gpus=h100-sxm"))
    go(page, "Model")
    marked(page, "Model", "Design")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Qwen3-0.6B")
    go(page, "Derive")
    marked(page, "Model", "Derive")
    page.go_back()
    marked(page, "Model", "Design")
    ways(page).filter(has=page.get_by_text("Serve", exact=True)).press("Enter")
    marked(page, "Serve", "Weigh")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Qwen3-0.6B fits on")
    page.go_back()
    marked(page, "Model", "Design")


def test_a_way_is_one_step_of_the_history_whatever_the_queries_are(page, address):
    page.goto(f"{address}/?model=Qwen/Qwen3-0.6B&batch=4")
    marked(page, "Serve", "Weigh")
    steps = page.evaluate("history.length")
    go(page, "Train")
    marked(page, "Train", "Training step")
    expect(page).to_have_url(re.compile("/train\\?model=Qwen[^&]*$"))
    page.get_by_role("spinbutton", name="Micro-batch size").press("ArrowUp")
    expect(page).to_have_url(re.compile("micro_batch=2"))
    go(page, "Training plan")
    marked(page, "Train", "Training plan")
    expect(page).to_have_url(re.compile("/train_plan.*batch=4"))
    assert page.evaluate("history.length") == steps + 3
    page.go_back()
    expect(page).to_have_url(re.compile("/train\\?.*micro_batch=2"))
    page.go_back()
    page.go_back()
    expect(page).to_have_url(re.compile("/\\?model=Qwen.*batch=4"))
    marked(page, "Serve", "Weigh")


AT_THE_FOOT = """() => {
  const box = document.querySelector(".st-key-places").getBoundingClientRect();
  return box.left === 0 && box.width === 390 && box.bottom === 844;
}"""


def test_on_a_phone_the_places_are_at_the_foot(page, address):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/derive?model=Qwen/Qwen3-0.6B")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Qwen3-0.6B")
    places = page.locator(".st-key-places")
    for scrolled in (0, 2000):
        page.get_by_test_id("stMain").evaluate(f"main => main.scrollTo(0, {scrolled})")
        page.wait_for_function(AT_THE_FOOT)  # once the page has its styles
    for link in places.locator("a").all():
        assert link.bounding_box()["height"] >= 44  # WCAG 2.2, 2.5.5
    for stays in (".st-key-views", ".weighbridge-pinned"):
        expect(page.locator(stays)).to_be_in_viewport()
    go(page, "My machine")
    marked(page, "My machine")
    expect(page.locator(".st-key-views")).to_have_count(0)


def test_on_a_phone_the_controls_are_closed_for_who_comes_again(page, address):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/quantize?model=Qwen/Qwen3-0.6B")
    page.get_by_test_id("stExpandSidebarButton").click()
    expect(page.get_by_test_id("stSidebar")).to_have_attribute("data-collapsed", "false")
    page.reload()
    expect(page.get_by_test_id("stExpandSidebarButton")).to_be_visible()


@pytest.mark.sweep
def test_b_is_kept_and_seen_against_a(page, address):
    page.goto(f"{address}/design?model=Qwen/Qwen3-0.6B&num_hidden_layers=14")
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
    page.get_by_role("button", name="Keep as B").click()
    expect(page).to_have_url(re.compile("with=Qwen/?.*num_hidden_layers"))
    page.reload()
    page.get_by_role("link", name="Compare A with B").click()
    expect(page.get_by_text("B · Qwen3-0.6B").first).to_be_visible()


def test_a_frame_of_another_site_has_no_ways(page, address):
    page.goto(f"{address}/?model=Qwen/Qwen3-0.6B&embed=true")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Qwen3-0.6B")
    expect(ways(page)).to_have_count(0)
