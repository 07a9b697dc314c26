"""What a run of the script sends, in few pieces: a browser goes through the whole page for each piece that it gets."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from google.protobuf.message import DecodeError
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.RootContainer_pb2 import RootContainer
from streamlit.proto.WidgetStates_pb2 import WidgetState

LONGEST = 0.15
"""Seconds that a message waits for those behind it."""
PATIENCE = 6
"""Times as long as the path of a page waits for its query string."""


class Together:
    """Websockets on which what a run sends waits for its end, and what is asked loses nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            asking = Asking(receive)
            receive, send = asking.next, Sender(send, asking.answered).take
        await self.app(scope, receive, send)


class Asking:
    """What one browser asks, with what Streamlit would lose of it:

    - The part of a page whose slider was moved is known to the server that drew it, and where that was started again
      the new one would not answer: what comes first over a connection is for the whole page.
    - Whoever goes to another page, or back, says nothing of widgets, of which a move may wait for its answer, and is
      dropped: what was said of them last is said again.
    - A move that comes from the page before would bring that back: it is asked of the new one."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.page: str | None = None
        """The hash of the page that the browser is on, or on its way to."""
        self.query = ""
        """What it asked of that page."""
        self.is_there = True
        """Whether that page has answered."""
        self.is_drawn = False
        """Whether it is being drawn."""
        self.said: list[WidgetState] = []

    async def next(self) -> Message:
        message = await self.receive()
        with suppress(DecodeError):  # which Streamlit refuses
            asked = BackMsg.FromString(message.get("bytes") or b"")
            if asked.HasField("rerun_script"):
                self.complete(asked.rerun_script)
                message["bytes"] = asked.SerializeToString()
        return message

    def complete(self, asked: ClientState) -> None:
        said, page = asked.widget_states.widgets, asked.page_script_hash
        if self.page is None:
            asked.ClearField("fragment_id")
            self.page = page
        elif not said:
            said.extend(self.said)
            self.page, self.query, self.is_there, self.is_drawn = page, asked.query_string, False, False
        elif not self.is_there or page != self.page:
            asked.page_script_hash, asked.query_string = self.page, self.query
            asked.ClearField("fragment_id")
        self.said = [widget for widget in said if not is_click(widget)]

    def answered(self, sent: ForwardMsg) -> None:
        """Of what is sent: which page it is, which may be another than was asked, and that this is all of it."""
        page = sent.navigation.page_script_hash
        if sent.HasField("navigation") and self.is_there:
            self.page, self.query = page, ""
        elif sent.HasField("navigation"):
            self.is_drawn = page == self.page
        elif sent.HasField("script_finished") and self.is_drawn:
            self.is_there = True


def is_click(widget: WidgetState) -> bool:
    """Whether it is said once, and not how something is."""
    return str(widget.WhichOneof("value")).endswith("trigger_value")


class Sender:
    """The way to one browser. That a run begins is sent at once, and the answer before the sidebar: the browser goes
    through the page for it while the script computes. That the script is running costs it the same again, and is sent
    only of a run that takes long."""

    def __init__(self, send: Send, note: Callable[[ForwardMsg], None] = lambda sent: None) -> None:
        self.send = send
        self.note = note
        """Hears what is sent."""
        self.part: int | None = None
        """The part of the page that came last."""
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
        self.note(sent)
        if kind == "new_session":
            self.part = None
        if sent.metadata.delta_path:
            before, self.part = self.part, sent.metadata.delta_path[0]
            if (before, self.part) == (RootContainer.MAIN, RootContainer.SIDEBAR):
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
