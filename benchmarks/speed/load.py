"""Many readers at once: websocket sessions, each of which moves a slider every two seconds.

python -m benchmarks.speed.load [SESSIONS ...]

Of each number of sessions: from the request to the end of the run, the process's CPU, and its memory while they are
open. At the end, the memory while a thousand sessions are opened and closed. The readers' own work runs on the
same machine and counts against it.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from statistics import median

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.speed.moves import ROOT, high, server

EVERY, ROUNDS = 2.0, 5
LINK = "model=Qwen/Qwen3-8B"
KEY = "-field_num_hidden_layers"


class Session:
    """One reader of Weigh."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket, self.slider, self.layers = socket, "", 0.0

    async def run(self) -> float:
        """Seconds of a run, with the slider where it is."""
        message = BackMsg()
        message.rerun_script.query_string = LINK
        if self.slider:
            state = message.rerun_script.widget_states.widgets.add(id=self.slider)
            state.double_array_value.data.append(self.layers)
        start = time.perf_counter()
        await self.socket.send(message.SerializeToString())
        while True:
            answer = ForwardMsg.FromString(bytes(await self.socket.recv(decode=False)))
            slider = answer.delta.new_element.slider
            if slider.id.endswith(KEY):
                self.slider, self.layers = slider.id, self.layers or slider.default[0]
            if answer.WhichOneof("type") == "script_finished":
                return time.perf_counter() - start

    async def move(self, wait: float) -> list[float]:
        """Seconds of each move."""
        await asyncio.sleep(wait)
        found = []
        for number in range(ROUNDS):
            self.layers += (-1) ** number
            begin = time.perf_counter()
            found.append(await self.run())
            await asyncio.sleep(max(0.0, EVERY - (time.perf_counter() - begin)))
        return found


async def opened(address: str) -> Session:
    url = f"{address.replace('http', 'ws')}/_stcore/stream"
    session = Session(await connect(url, subprotocols=["streamlit"], max_size=None, origin=address))  # type: ignore[list-item,arg-type]
    await session.run()
    return session


def used(process: int) -> tuple[float, float]:
    """Seconds of CPU and MB of memory of the server."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds, pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def readers(address: str, process: int, count: int) -> None:
    sessions = [await opened(address) for _ in range(count)]
    before, start = used(process)[0], time.perf_counter()
    waits = [EVERY * number / count for number in range(count)]
    times = [t for each in await asyncio.gather(*map(Session.move, sessions, waits)) for t in each]
    cpu, memory = used(process)
    share = (cpu - before) / (time.perf_counter() - start)
    print(
        f"{count:5} sessions: p50 {1000 * median(times):7.0f} ms  p95 {1000 * high(times):7.0f} ms  "
        f"{share:4.0%} of a core  {memory:6.0f} MB",
        flush=True,
    )
    for session in sessions:
        await session.socket.close()


async def come_and_go(address: str, process: int, count: int) -> None:
    for number in range(count):
        if number % (count // 4) == 0:
            print(f"{number:5} sessions came and went: {used(process)[1]:6.0f} MB", flush=True)
        session = await opened(address)
        await session.socket.close()
    print(f"{count:5} sessions came and went: {used(process)[1]:6.0f} MB")


def main(counts: list[int]) -> None:
    with server(ROOT / "app.py") as (address, process):
        for count in counts:
            asyncio.run(readers(address, process, count))
        asyncio.run(come_and_go(address, process, 1000))


if __name__ == "__main__":
    main([*map(int, sys.argv[1:])] or [10, 50, 100, 200])
