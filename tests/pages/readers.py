"""What a reader does with a control, in a browser."""

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from pages.parts.state.query import PAGES

QUERIES = {
    "": "?model=deepseek-ai/DeepSeek-V3&gpu=h200-sxm,h100-sxm&num_gpus=8&tp=8&batch=64",
    "train": "?method=qlora",
    "together": "?gpu=h100-sxm,l4&share_with=BAAI/bge-m3,context=512,batch=8;Qwen/Qwen3-Reranker-0.6B",
    "compare": "?with=Qwen/Qwen3-0.6B,deepseek-ai/DeepSeek-V3:weights=int4",
}
VIEWS = {
    **{page.path or "weigh": f"{page.path}{QUERIES.get(page.path, '')}" for page in PAGES},
    "all models on a GPU": "gpus?view=models",
    "a roofline": "gpus?view=roofline",
    "GPUs as rows": "?model=Qwen/Qwen3-8B",
    "what does not fit": "train?model=meta-llama/Llama-3.1-70B&gpu=rtx-4090",
    "a loss of TRL": "train?method=grpo,lora",
}
"""Every page, with something to show, and views that are unlike it."""
NIGHTLY = {
    *("derive", "steps", "attention", "together", "quantize", "all models on a GPU"),
    *("train_plan", "machine", "accuracy", "glossary", "plan", "gpus", "design"),
    *("a roofline", "GPUs as rows", "what does not fit", "a loss of TRL"),
}
"""Views that are looked at every night: what they are made of is on others, which every change is tried on."""


def viewed() -> list[Any]:
    """Cases of a test of views."""
    return [pytest.param(view, id=name, marks=[pytest.mark.sweep] * (name in NIGHTLY)) for name, view in VIEWS.items()]


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


def paste(area: Locator, text: str) -> None:
    """Pastes with Ctrl and V."""
    area.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    area.page.evaluate("text => navigator.clipboard.writeText(text)", text)
    area.press("ControlOrMeta+V")


def put_in_address(page: Page, **query: int) -> None:
    """Other values in the address, taken as Back takes them: the page is not loaded anew."""
    page.evaluate(
        """query => {
            const address = new URL(location);
            Object.entries(query).forEach(([name, value]) => address.searchParams.set(name, value));
            history.pushState({}, "", address);
            dispatchEvent(new PopStateEvent("popstate", { state: {} }));
        }""",
        query,
    )
