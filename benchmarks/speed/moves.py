"""What a slider move costs in a browser, beside Streamlit's floor: a page with one slider and one `st.write`. With
`pages/parts/direct.py`, and without it.

python -m benchmarks.speed.moves [MOVES]

Each slider goes on in one direction, to values not seen before: of those it has been at, the browser still knows the
large messages. All pages take their moves in turn, each round in another order, so that what else the machine does
falls on all of them, and so does what a page does late. Of each move: from the key press to the headline in the
document, to its paint, to the last visible change; CPU of the server's process; what came over the websocket; changes
of the document; the longest task of the browser's main thread, and what it spends in scripts, on styles and layout, and
on all else, paint among it. Before, of each page's first visit: bytes over the wire and the time until nothing changes
any more.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[2]
FLOOR = 'import streamlit as st\nst.write("**value**", st.slider("Layers", 1, 200, 36))\n'
PAGES = {
    "Weigh, Qwen3-8B": "/?model=Qwen/Qwen3-8B",
    "Weigh, DeepSeek-V3": "/?model=deepseek-ai/DeepSeek-V3",
    "Train, Qwen3-8B": "/train?model=Qwen/Qwen3-8B",
}
WAYS = {"": "1", ", without direct": "0"}
"""How each page is served: what the environment says of `pages/parts/direct.py`."""
HEADLINE = '.weighbridge-figures b, [data-testid="stMarkdownContainer"] strong'
SETTLED = 600
"""Milliseconds without a change after which nothing more is expected."""
WATCH = """
() => {
  const seen = window.seen = {};
  const text = () => [...document.querySelectorAll(`HEADLINE`)].map(e => e.parentElement.textContent).join("|");
  const painted = then => requestAnimationFrame(() => setTimeout(() => then(performance.now())));
  window.arm = () => Object.assign(seen, {start: null, mutations: 0, last: null, shown: null, painted: null,
                                          longest: 0, before: text()});
  addEventListener("keydown", () => { seen.start ??= performance.now(); }, true);
  new MutationObserver(changes => {
    if (seen.start == null) return;
    const now = performance.now();
    seen.mutations += changes.length;
    if (seen.shown == null && text() !== seen.before) {
      seen.shown = now;
      painted(at => { seen.painted = at; });
    }
    seen.changed = now;
    painted(at => { seen.last = at; });
  }).observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});
  new PerformanceObserver(list => {
    if (seen.start != null) for (const e of list.getEntries()) seen.longest = Math.max(seen.longest, e.duration);
  }).observe({entryTypes: ["longtask"]});
}
"""

SETTLES = """
new MutationObserver(() => requestAnimationFrame(() => { window.settles = performance.now(); }))
  .observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
"""


@contextmanager
def server(script: Path, **environment: str) -> Iterator[tuple[str, int]]:
    """The address and the process of a page that runs by itself, with these environment variables."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.headless=true"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(
        [*command, f"--server.port={port}"], cwd=script.parent, env=os.environ | environment, **quiet
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{address}/_stcore/health").close()
                break
            except urllib.error.URLError:
                time.sleep(0.25)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait(timeout=10)


class Reader:
    """One page open in a browser, whose slider is moved."""

    def __init__(self, browser: Browser, url: str, process: int) -> None:
        self.process, self.bytes, self.messages, self.fetched = process, 0, 0, 0.0
        self.page: Page = browser.new_context(viewport={"width": 1440, "height": 1000}).new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("websocket", lambda socket: socket.on("framereceived", self.received))
        self.tools = self.page.context.new_cdp_session(self.page)
        self.tools.send("Performance.enable")
        self.tools.send("Network.enable")
        self.tools.on("Network.loadingFinished", self.loaded)
        self.page.add_init_script(SETTLES)
        self.page.goto(url)
        labelled = re.compile("^Layers")  # with a mark once it differs from the model's own
        self.slider = self.page.get_by_role("slider", name=labelled).or_(
            self.page.get_by_role("group", name=labelled).get_by_role("slider")
        )
        self.slider.first.wait_for()
        self.page.wait_for_timeout(4000)
        settled = self.page.evaluate("window.settles")
        print(f"{url}: first visit {self.fetched / 1e6:.2f} MB, settled after {settled:.0f} ms")
        self.page.evaluate(WATCH.replace("HEADLINE", HEADLINE))

    def received(self, payload: str | bytes) -> None:
        self.bytes, self.messages = self.bytes + len(payload), self.messages + 1

    def loaded(self, event: dict[str, Any]) -> None:
        self.fetched += event["encodedDataLength"]

    def browser(self) -> dict[str, float]:
        """Milliseconds that the browser's main thread has spent so far."""
        found = {entry["name"]: 1000 * entry["value"] for entry in self.tools.send("Performance.getMetrics")["metrics"]}
        script, shape = found["ScriptDuration"], found["LayoutDuration"] + found["RecalcStyleDuration"]
        return {"script": script, "styles and layout": shape, "paint and other": found["TaskDuration"] - script - shape}

    def cpu(self) -> float:
        """Milliseconds that the server has computed."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")

    def move(self, key: str) -> dict[str, float]:
        self.slider.first.focus()
        self.page.evaluate("arm()")
        self.bytes = self.messages = 0
        spent, busy = self.cpu(), self.browser()
        self.page.keyboard.press(key)
        self.page.wait_for_function(f"seen.shown != null && performance.now() - seen.changed > {SETTLED}")
        seen = self.page.evaluate("seen")
        return {
            "headline in the document": seen["shown"] - seen["start"],
            "headline painted": seen["painted"] - seen["start"],
            "all visible": seen["last"] - seen["start"],
            "longest task": seen["longest"],
            "server CPU": self.cpu() - spent,
            "kB": self.bytes / 1000,
            "messages": self.messages,
            "changes": seen["mutations"],
            **{f"browser: {what}": now - busy[what] for what, now in self.browser().items()},
        }


def high(values: list[float]) -> float:
    """The 95th percentile."""
    return sorted(values)[-(-95 * len(values) // 100) - 1]


def main(moves: int = 50) -> None:
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "floor.py").write_text(FLOOR)
        floor, floor_process = stack.enter_context(server(folder / "floor.py"))
        apps = {way: stack.enter_context(server(ROOT / "app.py", WEIGHBRIDGE_DIRECT=on)) for way, on in WAYS.items()}
        playwright = stack.enter_context(sync_playwright())
        browser = stack.enter_context(playwright.chromium.launch(executable_path=chromium, args=flags))
        readers = {"floor": Reader(browser, floor, floor_process)}
        for name, path in PAGES.items():
            readers |= {f"{name}{way}": Reader(browser, app + path, process) for way, (app, process) in apps.items()}
        found: dict[str, list[dict[str, float]]] = {name: [] for name in readers}
        order = Random(0)
        for number in range(moves + 2):
            for name, reader in sorted(readers.items(), key=lambda _: order.random()):
                figures = reader.move("ArrowRight")
                if number >= 2:  # the first moves warm both sides
                    found[name].append(figures)
    for name, rows in found.items():
        print(name)
        for what in rows[0]:
            values, least = [row[what] for row in rows], [row[what] for row in found["floor"]]
            ratio = f"{median(values) / median(least):8.2f} x floor" if median(least) else ""
            print(f"  {what:26}{median(values):10.1f}  p95{high(values):10.1f}{ratio}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
