"""A real Chromium, and a server for it to look at."""

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright


@contextmanager
def chromium() -> Iterator[Browser]:
    """That of CHROMIUM, or the one that is installed."""
    executable = os.environ.get("CHROMIUM") or shutil.which("chromium")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=flags)
        yield browser
        browser.close()


@contextmanager
def running(command: list[str], folder: Path, **environment: str) -> Iterator[str]:
    """The address of a server that this command starts in a folder; {port} in it stands for a free one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [word.format(port=port) for word in command]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(words, cwd=folder, env=os.environ | environment, **quiet)
    try:
        for _ in range(120):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health") as reply:
                    assert reply.read() == b"ok"
                break
            except OSError:  # not there yet, or not ready to listen
                time.sleep(0.5)
        else:
            raise TimeoutError("The app does not answer.")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=10)
