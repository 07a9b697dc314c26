"""Many readers at once: websocket sessions, each of which moves a slider of Weigh every two seconds.

python -m benchmarks.speed.load [--replicas N] [SESSIONS ...]

A browser visits the page and moves the slider on; all sessions then say what it said: the widgets, the part of the page
to run, and what it has got already. Of each number of sessions: from the request to the end of the run, the process's
CPU, and its memory while they are open. At the end, the memory while a thousand sessions are opened and closed. The
readers' own work runs on the same machine and counts against it. With --replicas, so many processes serve behind nginx,
and CPU and memory are those of all.
"""

import argparse
import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

from playwright.sync_api import WebSocket, sync_playwright
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.speed.moves import ROOT, high, server

EVERY, ROUNDS = 2.0, 5
PAGE = "/?model=Qwen/Qwen3-8B"
SLIDER = ".st-key-field_num_hidden_layers"


def said(address: str) -> list[bytes]:
    """What a browser sends: for the first visit, then for each move of the slider."""
    runs: list[bytes] = []

    def listen(socket: WebSocket) -> None:
        socket.on("framesent", lambda sent: runs.append(bytes(sent)))

    with sync_playwright() as playwright:
        path = os.environ.get("CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.on("websocket", listen)
        page.goto(address + PAGE)
        slider = page.locator(SLIDER).get_by_role("slider")
        for _ in range(ROUNDS):
            slider.wait_for()
            page.wait_for_timeout(3000)
            slider.press("ArrowRight")
        page.wait_for_timeout(3000)
        browser.close()
    parts = [BackMsg.FromString(run).rerun_script.fragment_id for run in runs]
    assert len(parts) == 1 + ROUNDS, "each move is one run"
    assert all(parts[1:]), "a move runs a part of the page"
    return runs


class Session:
    """One reader."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def run(self, message: bytes, ends: ForwardMsg.ScriptFinishedStatus.ValueType) -> float:
        """Seconds of a run."""
        start = time.perf_counter()
        await self.socket.send(message)
        while True:
            answer = ForwardMsg.FromString(await self.socket.recv(decode=False))
            if answer.WhichOneof("type") == "script_finished":
                assert answer.script_finished == ends
                return time.perf_counter() - start

    async def move(self, messages: tuple[bytes, ...], wait: float) -> list[float]:
        """Seconds of each move."""
        await asyncio.sleep(wait)
        found = []
        for message in messages:
            begin = time.perf_counter()
            found.append(await self.run(message, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY))
            await asyncio.sleep(max(0.0, EVERY - (time.perf_counter() - begin)))
        return found


@contextmanager
def behind_nginx(replicas: int) -> Iterator[tuple[str, list[int]]]:
    """The address and the processes of `weighbridge serve`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = [sys.executable, "-m", "calc", "serve", f"--workers={replicas}", f"--port={address.partition(':')[2]}"]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with suppress(OSError):
                urllib.request.urlopen(f"http://{address}/ready").close()
                break
            time.sleep(0.1)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield f"http://{address}", [*map(int, children)]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def cookie(address: str) -> dict[str, str]:
    """What leads to a reader's replica; nothing where there is only one."""
    with urllib.request.urlopen(address) as reply:
        value = reply.headers.get("Set-Cookie", "")
    return {"Cookie": value.partition(";")[0]} if "replica" in value else {}


async def opened(address: str, visit: bytes) -> Session:
    url, headers = f"{address.replace('http', 'ws')}/_stcore/stream", cookie(address)
    session = Session(
        await connect(url, subprotocols=["streamlit"], max_size=None, origin=address, additional_headers=headers)  # type: ignore[list-item,arg-type]
    )
    await session.run(visit, ForwardMsg.FINISHED_SUCCESSFULLY)
    return session


def used(processes: list[int]) -> tuple[float, float]:
    """Seconds of CPU and MB of memory of the server's processes."""
    each = [used_by(process) for process in processes]
    return sum(seconds for seconds, _ in each), sum(memory for _, memory in each)


def used_by(process: int) -> tuple[float, float]:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds, pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def readers(address: str, processes: list[int], count: int, visit: bytes, *moves: bytes) -> None:
    empty = used(processes)[1]
    sessions = [await opened(address, visit) for _ in range(count)]
    (before, full), start = used(processes), time.perf_counter()
    turns = (session.move(moves, EVERY * number / count) for number, session in enumerate(sessions))
    times = [seconds for each in await asyncio.gather(*turns) for seconds in each]
    cpu, memory = used(processes)
    share = (cpu - before) / (time.perf_counter() - start)
    print(
        f"{count:5} sessions: p50 {1000 * median(times):7.0f} ms  p95 {1000 * high(times):7.0f} ms  "
        f"{1000 * (cpu - before) / len(times):5.1f} ms of CPU a move  {share:4.0%} of a core  "
        f"{memory:6.0f} MB, a session {(full - empty) / count:.2f} MB",
        flush=True,
    )
    for session in sessions:
        await session.socket.close()


async def come_and_go(address: str, processes: list[int], count: int, visit: bytes) -> None:
    for number in range(count):
        if number % (count // 4) == 0:
            print(f"{number:5} sessions came and went: {used(processes)[1]:6.0f} MB", flush=True)
        session = await opened(address, visit)
        await session.socket.close()
    print(f"{count:5} sessions came and went: {used(processes)[1]:6.0f} MB")


def main(counts: list[int], replicas: int | None) -> None:
    if replicas is not None:
        with server(ROOT / "app.py") as (address, _):
            runs = said(address)
        with behind_nginx(replicas) as (address, processes):
            for count in counts:
                asyncio.run(readers(address, processes, count, *runs))
        return
    with server(ROOT / "app.py") as (address, process):
        runs = said(address)
        for count in counts:
            asyncio.run(readers(address, [process], count, *runs))
        asyncio.run(come_and_go(address, [process], 1000, runs[0]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicas", type=int)
    parser.add_argument("counts", type=int, nargs="*", default=[10, 50, 100, 200])
    arguments = parser.parse_args()
    main(arguments.counts, arguments.replicas)
