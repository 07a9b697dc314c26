"""axe-core finds nothing on any page and state, light and dark, at a desk and on a phone, but what
docs/accessibility.md lists of Streamlit's own; and nothing is wider than the screen, from the narrowest phone to the
widest desk."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests import ROOT
from tests.pages.readers import put_in_address, viewed

ROWS = (ROOT / "docs" / "accessibility.md").read_text(encoding="utf-8")
LISTED = set(re.findall(r"^\| [^|]+ \| `([a-z-]+)` \([a-z]+\) \| `([^|]+)` \|", ROWS, re.MULTILINE))
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
STRUCTURE = {"rules": {"color-contrast": {"enabled": False}}}
AXE = Axe(f"if (!window.axe) {{{Axe().axe_script}}}")  # compiled once in a document
WITHOUT_FORMULAS = {"exclude": [[".katex"]]}
"""KaTeX's own: thousands of pieces of a page that has the colour of its text."""
EMPTY_FORMULAS = "document.querySelectorAll('.katex').forEach(formula => formula.replaceChildren())"
"""Where colours alone are looked at, for axe lists the pieces even of what it leaves out."""
PHONE = {"width": 390, "height": 844}
SIZES = ((320, 900), (390, 844), (768, 900), (1024, 900), (1440, 900), (2560, 900))
USUAL = ((390, 844), (1440, 900))
"""Of a phone, and of a desk: what a page has found is seen there without a move."""
IN_EVERY_RUN = (SIZES[0], *USUAL, SIZES[-1])
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


def findings(page, options=None):
    """Rule and element of each finding that stays: what is still being drawn is paler than it will be. One that is
    listed is given as it is listed. The mouse rests where nothing has a tooltip, which stands outside all regions."""
    page.mouse.move(0, 0)
    for _ in range(6):
        asked = {"resultTypes": ["violations"], **(options or {})}
        violations = AXE.run(page, context=WITHOUT_FORMULAS, options=asked).response["violations"]
        nodes = [(rule["id"], node["html"]) for rule in violations for node in rule["nodes"]]
        found = {
            next(((rule, mark) for rule, mark in LISTED if rule == name and mark in html), (name, html))
            for name, html in nodes
        }
        if found <= LISTED:
            break
        page.wait_for_timeout(500)
    return found


def dark(page):
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("getComputedStyle(document.querySelector('.stApp')).colorScheme === 'dark'")


def settled(page):
    page.get_by_role("heading", level=1).first.wait_for()
    page.locator(".stApp[data-test-script-state=notRunning]").wait_for()
    page.wait_for_load_state("networkidle")


@pytest.mark.parametrize("language", ["en", pytest.param("zh", marks=pytest.mark.sweep)])
@pytest.mark.parametrize("view", viewed())
def test_nothing_keeps_anybody_out(page, address, view, language):
    """On one visit: no finding of axe, and on every screen the page fits, and its answer is seen without a move."""
    page.goto(f"{address}/{view}{'&' if '?' in view else '?'}lang={language}")
    settled(page)
    found = findings(page)
    desk = page.viewport_size
    for width, height in SIZES if language == "zh" else IN_EVERY_RUN:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(FITS, arg=width)  # a chart follows its container
        assert page.evaluate(BEYOND, width) == []
        if (width, height) in USUAL:
            page.wait_for_function(IN_SIGHT)
    page.set_viewport_size(PHONE)
    found |= findings(page, STRUCTURE)
    page.set_viewport_size(desk)
    dark(page)
    page.evaluate(EMPTY_FORMULAS)
    assert (found | findings(page, CONTRAST)) - LISTED == set()


@pytest.mark.sweep
@pytest.mark.parametrize("path", ["verify", "accuracy"])
def test_no_section_keeps_anybody_out(page, address, path):
    page.goto(f"{address}/{path}")
    settled(page)
    found, radios = set(), page.locator("[data-testid=stMain] [data-testid=stButtonGroup] [role=radio]")
    for at in range(radios.count()):
        radios.nth(at).click()
        page.locator(".stApp[data-test-script-state=notRunning]").wait_for()
        found |= findings(page)
    dark(page)
    assert (found | findings(page, CONTRAST)) - LISTED == set()


def test_no_table_keeps_anybody_out(page, address):
    """With all columns, rows that are chosen and a search that finds few of them."""
    page.goto(f"{address}/hardware")
    settled(page)
    page.get_by_text("More columns").click()
    found = findings(page)
    page.get_by_role("searchbox").fill("sxm b200")
    page.get_by_role("button", name="B200 SXM", exact=True).click()
    expect(page.get_by_role("button", name="Weigh on this GPU")).to_be_enabled()
    found |= findings(page)
    page.set_viewport_size(PHONE)
    found |= findings(page, STRUCTURE)
    dark(page)
    assert found | findings(page, CONTRAST) == set()


@pytest.mark.sweep
def test_no_state_keeps_anybody_out(page, address):
    page.goto(f"{address}/?model=Qwen/Qwen2.5-3B&gpu=v100-sxm2-16gb,a100-sxm-40gb,l40s,h100-sxm,h200-sxm")
    settled(page)
    page.get_by_role("button", name="Derivation").first.click()
    expect(page.get_by_text("With values").first).to_be_visible()
    found = findings(page)
    page.get_by_role("button", name="L40S", exact=True).click()
    page.get_by_test_id("stPopover").last.filter(has_text="Derivation").get_by_role("button").click()
    expect(page.get_by_text("usable − required")).to_be_visible()
    found |= findings(page)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Launch, embed, API").click()
    expect(page.get_by_text("In a web page")).to_be_visible()
    found |= findings(page)
    page.keyboard.press("Escape")

    page.get_by_role("button", name=re.compile("^GPU models")).click()
    page.keyboard.type("24")  # GB
    for name in ("L4 · 24 GB", "A10 · 24 GB", "A30 · 24 GB", "RTX 3090 · 24 GB", "RTX 4090 · 24 GB"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_visible()
    found |= findings(page)
    page.keyboard.press("Escape")
    page.get_by_role("combobox", name="KV cache format").click()
    expect(page.get_by_role("listbox")).to_be_visible()
    found |= findings(page, STRUCTURE)
    page.keyboard.press("Escape")

    for name in ("Layout by hand", "Engine flags", "Overhead", "More sizes", "Your own config.json"):
        page.get_by_test_id("stSidebar").get_by_text(name, exact=True).click()
        page.locator(".stApp[data-test-script-state=notRunning]").wait_for()
    expect(page.get_by_test_id("stFileUploaderDropzone")).to_be_visible()  # of the last drawer, once it is filled
    put_in_address(page, num_attention_heads=17)
    expect(page.get_by_text("Below, dimmed: the last answer there was.")).to_be_visible()
    found |= findings(page)
    dark(page)
    assert found | findings(page, CONTRAST) == LISTED
