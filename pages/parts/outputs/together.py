"""What a run of the script sends, in few pieces: a browser goes through the whole page for each piece that it gets."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.RootContainer_pb2 import RootContainer

LONGEST = 0.15
"""Seconds that a message waits for those behind it."""
PATIENCE = 6
"""Times as long as the path of a page waits for its query string."""


class Together:
    """Websockets on which what a run sends waits for its end, and which ask for the whole page first."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            receive, send = Asking(receive).next, Sender(send).take
        await self.app(scope, receive, send)


class Asking:
    """What one browser asks. The part of a page whose slider was moved is known to the server that drew it, and where
    that was started again the new one would not answer: what comes first over a connection is for the whole page."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.is_first = True

    async def next(self) -> Message:
        message = await self.receive()
        if self.is_first and message.get("bytes"):
            asked = BackMsg.FromString(message["bytes"])
            if asked.HasField("rerun_script"):
                self.is_first = False
                asked.rerun_script.ClearField("fragment_id")
                message["bytes"] = asked.SerializeToString()
        return message


class Run:
    """What one run has sent. Of a part of the page that runs again before all of its last run was on its way Streamlit
    drops the rest, and yet sends what the browser has already got by its hash alone: into a block that never came, for
    which a browser gives up the whole page. The new run sends it again."""

    def __init__(self) -> None:
        self.paths: set[tuple[int, ...]] = set()
        self.part: int | None = None
        """The part of the page that came last."""

    def has_place_for(self, sent: ForwardMsg) -> bool:
        """Whether the block of an element has come, and the element before it."""
        path = tuple(sent.metadata.delta_path)
        if sent.HasField("ref_hash") and not self.paths.issuperset(self.before(path)):
            return False
        self.paths.add(path)
        return True

    def turns_to_sidebar(self, sent: ForwardMsg) -> bool:
        """Whether the main part of the page is there, and the sidebar's turn comes."""
        if not sent.metadata.delta_path:
            return False
        before, self.part = self.part, sent.metadata.delta_path[0]
        return (before, self.part) == (RootContainer.MAIN, RootContainer.SIDEBAR)

    @staticmethod
    def before(path: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        *block, place = path
        if len(block) > 1:  # the page has a block for its main part, and one for its sidebar
            yield tuple(block)
        if place:
            yield (*block, place - 1)


class Sender:
    """The way to one browser. That a run begins is sent at once, and the answer before the sidebar: the browser goes
    through the page for it while the script computes. That the script is running costs it the same again, and is sent
    only of a run that takes long."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.run = Run()
        self.waiting: list[Message] = []
        self.status: Message | None = None
        """That the script is running, not sent yet."""
        self.running = False
        self.last: str | None = None
        """The kind of what was taken last."""
        self.due: asyncio.Task[None] | None = None
        self.sending = asyncio.Lock()

    async def take(self, message: Message) -> None:
        sent = ForwardMsg.FromString(message.get("bytes") or b"")
        entering, kind = self.last == "navigation", sent.WhichOneof("type")
        self.last = kind
        if kind == "new_session":
            self.run = Run()
        if not self.run.has_place_for(sent):
            return
        if self.run.turns_to_sidebar(sent):
            await self.release()
        if kind == "session_status_changed":
            self.running = sent.session_status_changed.script_is_running
            self.status = message if self.running else None
        if entering and kind == "page_info_changed" and self.waiting:
            self.waiting.insert(-1, message)  # behind the path, it would be a step of its own on the way back
        elif kind != "session_status_changed" or not self.running:
            self.waiting.append(message)
        if kind == "new_session" or not self.running:
            await self.release()
        elif self.due is None:
            self.due = asyncio.create_task(self.wait())

    async def wait(self) -> None:
        for _ in range(PATIENCE):
            await asyncio.sleep(LONGEST)
            if self.last != "navigation":
                break
        self.due = None
        if self.status is not None:
            self.waiting.insert(0, self.status)
            self.status = None
        with suppress(OSError):  # the browser is gone
            await self.release()

    async def release(self) -> None:
        if self.due is not None:
            self.due.cancel()
            self.due = None
        async with self.sending:  # a slow browser takes those before first
            waiting, self.waiting = self.waiting, []
            for message in waiting:
                await self.send(message)
