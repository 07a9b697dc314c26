"""axe-core finds nothing serious on any page, light and dark, and a page prints without its controls."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from pages.parts.state.query import PAGES

QUERIES = {"": "?model=deepseek-ai/DeepSeek-V3&gpu=h200-sxm,h100-sxm&num_gpus=8&tp=8", "train": "?method=qlora"}


def serious(page):
    """Rule and element of each serious finding that stays: what is still being drawn is paler than it will be."""
    for _ in range(6):
        violations = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        found = [
            (rule["id"], node["html"])
            for rule in violations
            for node in rule["nodes"]
            if rule["impact"] in ("serious", "critical") or rule["id"] == "heading-order"
        ]
        if not found:
            break
        page.wait_for_timeout(500)
    return found


@pytest.mark.parametrize("path", [pytest.param(page.path, id=page.path or "weigh") for page in PAGES])
def test_nothing_keeps_anybody_out(page, address, path):
    page.goto(f"{address}/{path}{QUERIES.get(path, '')}")
    page.get_by_role("heading", level=1).first.wait_for()
    page.locator(".stApp[data-test-script-state=notRunning]").wait_for()
    page.wait_for_load_state("networkidle")
    found = serious(page)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("getComputedStyle(document.querySelector('.stApp')).colorScheme === 'dark'")
    assert found + serious(page) == []
