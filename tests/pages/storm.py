"""A reader who moves controls faster than they are answered, and what the page must be when it has come to rest."""

import json
from random import Random

from playwright.sync_api import Page

QUIET, SILENT = 900, 10_000
"""Milliseconds without a change after which a page has come to rest, and after which the server has no more answer to
what the page said last."""
WATCH = """
(() => {
  window.changed = window.said = window.told = performance.now();
  window.WebSocket = class extends WebSocket {
    constructor(...words) {
      super(...words);
      this.addEventListener("message", () => { window.told = performance.now(); });
    }
    send(message) {
      window.said = performance.now();
      super.send(message);
    }
  };
  new MutationObserver(() => { window.changed = performance.now(); })
    .observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  for (const move of ["keydown", "input"])
    addEventListener(move, () => { window.changed = performance.now(); }, true);
})();
"""
RESTS = f"""
() => {{
  const now = performance.now(), answered = told > said || now - said > {SILENT};
  const drawn = document.querySelector(".stApp[data-test-script-state=notRunning]");
  return drawn && answered && now - Math.max(changed, said, told) > {QUIET};
}}
"""
SEEN = """
() => {
  const text = name => document.querySelector(`[data-testid=${name}]`)?.innerText.replace(/\\s+/g, " ");
  const controls = [...document.querySelectorAll("[data-testid=stSidebar] input")].map(
    input => [input.getAttribute("aria-label"), input.type === "checkbox" ? input.checked
              : input.getAttribute("aria-valuetext") ?? input.value]);
  return JSON.stringify({main: text("stMain"), sidebar: text("stSidebarUserContent"), controls});
}
"""
FOCUS = """
label => {
  const control = [...document.querySelectorAll("input")]
    .find(input => input.getAttribute("aria-label")?.startsWith(label)
          || input.closest("[role=group]")?.getAttribute("aria-label")?.startsWith(label));
  control?.focus();
  return control !== undefined;
}
"""


def watch(page: Page) -> Page:
    page.add_init_script(WATCH)
    return page


def rest(page: Page) -> None:
    """Waits until the server has answered what the page said and nothing changes any more."""
    page.wait_for_function(RESTS, polling=50, timeout=60_000)


def seen(page: Page) -> dict:
    """The texts of a page and the values of its controls."""
    return json.loads(page.evaluate(SEEN))


def presses(random: Random, number: int, most: int, at: dict[str, int]) -> list[tuple[str, int]]:
    """Steps to and fro, in bursts on one of the controls, none of which leaves so many steps around zero; `at` is where
    they stand, and goes with them."""
    steps: list[tuple[str, int]] = []
    while len(steps) < number:
        label = random.choice(list(at))
        for _ in range(min(random.randint(1, 6), number - len(steps))):
            step = random.choice([-1, 1])
            step = -step if abs(at[label] + step) > most else step
            at[label] += step
            steps.append((label, step))
    return steps


def storm(
    page: Page, steps: list[tuple[str, int]], pause: float, keys: tuple[str, str] = ("ArrowLeft", "ArrowRight")
) -> None:
    """Presses the keys, with so many milliseconds between them."""
    now = None
    for label, step in steps:
        if label != now:
            page.wait_for_function(FOCUS, arg=label)
            now = label
        page.keyboard.press(keys[step > 0])
        if pause:
            page.wait_for_timeout(pause)
