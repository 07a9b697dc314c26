"""`python -m tests.pages.every_page ADDRESS`: every page and every tab of a running app in a browser."""

import sys
from collections.abc import Iterator

from playwright.sync_api import ConsoleMessage, Page, Response
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from pages.parts.state.query import PAGES
from tests.browser import chromium

SECTIONS = "[data-testid=stMain] [data-testid=stButtonGroup] [role=radio]"
"""One of each group is open; to click another runs the script."""
TABS = "[data-testid=stMain] [role=tab]"
ERRORS = "[data-testid=stException], [data-testid=stAlertContentError]"
OWN_PROBES = "/_stcore/"
"""What Streamlit's own script looks for below every path, to find where the server's root is."""


def faults(page: Page, address: str) -> Iterator[str]:
    """Error boxes and exceptions on a page or under one of its tabs, errors of scripts, files that the server does not
    have, and what its own policy does not let the browser do."""
    broken: list[str] = []

    def note(reply: Response) -> None:
        if reply.status >= 400 and OWN_PROBES not in reply.url:
            broken.append(f"{reply.status} {reply.url}")

    page.on("response", note)

    def refused(line: ConsoleMessage) -> None:
        if "Content Security Policy" in line.text:
            broken.append(f"refused: {line.text}")

    page.on("console", refused)
    page.on("pageerror", lambda error: broken.append(f"script: {error}"))
    for place in PAGES:
        with page.expect_websocket() as connection:
            page.goto(f"{address}/{place.path}")
        page.get_by_role("heading", level=1).first.wait_for()
        opened: set[str] = set()
        while True:
            draw(page)
            opened.update(page.locator(f"{SECTIONS}[aria-checked=true]").all_inner_texts())
            for text in page.locator(ERRORS).all_inner_texts():
                yield f"/{place.path} {sorted(opened)}: {' '.join(text.split())}"
            others = page.locator(f"{SECTIONS}[aria-checked=false]").all()
            unopened = [section for section in others if section.inner_text() not in opened]
            if not unopened:
                break
            with connection.value.expect_event("framereceived", is_last):
                unopened[-1].click()  # within an open section first
    yield from broken


def draw(page: Page) -> None:
    """Waits until the page stands as the server means it, and opens each of its tabs, which are there already."""
    page.locator(".stApp[data-test-script-state=notRunning]").wait_for()
    page.wait_for_function("document.querySelectorAll('[data-testid=stSkeleton]').length === 0")
    for tab in page.locator(TABS).all():
        tab.click()


def is_last(frame: bytes | str) -> bool:
    """Whether the script has ended with this message to the browser."""
    return ForwardMsg.FromString(frame).WhichOneof("type") == "script_finished"


def main() -> None:
    with chromium() as browser:
        found = list(faults(browser.new_page(), sys.argv[1]))
    print(*found, sep="\n", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
