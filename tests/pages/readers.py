"""What a reader does with a control, in a browser."""

import re

from playwright.sync_api import Locator, Page, expect


def choose(page: Page, name: str, typed: str, option: str) -> None:
    """Types into a list, which then offers this option, and presses Enter. A list closes while the page moves and opens
    again with what is typed; below a mouse an option may move away."""
    page.get_by_role("combobox", name=name, exact=True).click()
    page.keyboard.type(typed)
    expect(page.get_by_role("option", name=option).first).to_be_visible()
    page.keyboard.press("Enter")


def search(page: Page, name: str, typed: str, first: str) -> None:
    """Types into a search of the question, which then offers this first, and presses Enter."""
    page.get_by_role("button", name=re.compile(f"^{name}: ")).click()
    page.keyboard.type(typed)
    panel = page.get_by_role("dialog", name=name)
    expect(panel.get_by_role("listitem").first).to_contain_text(first)
    page.keyboard.press("Enter")
    expect(panel).to_be_hidden()


def ways(page: Page) -> Locator:
    """The links to places and views."""
    return page.locator(".st-key-navigation a")


def go(page: Page, name: str) -> None:
    """Clicks on a place or a view."""
    ways(page).filter(has=page.get_by_text(name, exact=True)).click()
