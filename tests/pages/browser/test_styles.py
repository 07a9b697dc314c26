"""No rule of the stylesheet makes the browser go through the page for a class or a style that changes, or for an
element that comes or goes, as each move of a slider brings dozens of them."""

import pytest

TOUCH = """() => {
  for (const box of document.querySelectorAll("[data-testid=stElementContainer]")) {
    box.classList.toggle("of-no-rule");
    box.style.scrollMargin = "1px";
    box.append(document.createElement("i"));
  }
}"""
MOST = 5
"""Elements that are styled anew for each that was touched: itself, what was put into it, what stands around it, and on
a telephone the cells of tables; the page has some thirty for each."""


def restyled(page, script: str) -> int:
    """Elements whose style the browser computes for what a script changes."""
    page.wait_for_timeout(600)  # nothing else is under way
    session, events, ended = page.context.browser.new_browser_cdp_session(), [], []
    session.on("Tracing.dataCollected", lambda sent: events.extend(sent["value"]))
    session.on("Tracing.tracingComplete", lambda _: ended.append(True))
    session.send("Tracing.start", {"traceConfig": {"includedCategories": ["devtools.timeline"]}})
    page.evaluate(script)
    page.evaluate("new Promise(then => requestAnimationFrame(() => setTimeout(then)))")
    session.send("Tracing.end")
    while not ended:
        page.wait_for_timeout(50)
    session.detach()
    return sum(event["args"].get("elementCount", 0) for event in events if event["name"] == "UpdateLayoutTree")


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("path", ["/?model=Qwen/Qwen3-8B", "/design?model=Qwen/Qwen3-8B"])
def test_a_change_of_an_element_restyles_that_element_alone(page, address, path, width):
    page.set_viewport_size({"width": width, "height": 1200})
    page.goto(address + path)
    page.get_by_role("heading", level=1).first.wait_for()
    page.locator(".weighbridge-chart .main-svg").first.wait_for()
    touched = page.locator("[data-testid=stElementContainer]").count()
    assert touched > 20
    assert touched <= restyled(page, TOUCH) <= MOST * touched
