"""Straight to the websocket, past Streamlit's public doors: the one module that knows private parts of it.

What a run of the script sends goes out in few pieces, for a browser goes through the whole page for each that it gets;
what a browser asks loses nothing on the way; its mark of Back is read, and what it had drawn before a restart. The app
works without all that: a move of a slider takes longer, Back is told by addresses and time, and the first key after a
restart may be lost. It stands aside where `WEIGHBRIDGE_DIRECT=0` says so, and where this
Streamlit is not the one it was written for.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakSet

import streamlit as st
from google.protobuf.message import DecodeError
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

try:
    from streamlit import config
    from streamlit.proto.BackMsg_pb2 import BackMsg
    from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
    from streamlit.proto.RootContainer_pb2 import RootContainer
    from streamlit.runtime.scriptrunner import get_script_run_ctx
except ImportError as error:
    MISSING: str | None = str(error)
else:
    MISSING = None
if TYPE_CHECKING:
    from streamlit.proto.ClientState_pb2 import ClientState
    from streamlit.proto.WidgetStates_pb2 import WidgetState

DIRECT = "WEIGHBRIDGE_DIRECT"
"""Environment variable: `0` leaves websockets to Streamlit alone."""
WRITTEN_FOR = "1.67"
"""The Streamlit whose messages these are; patch releases of it may come."""
NO_MESSAGE, NO_BYTES = 1002, 1003
LONGEST = 0.15
"""Seconds that a message waits for those behind it."""
PATIENCE = 6
"""Times as long as the path of a page waits for its query string."""
HELD = 0.02
"""Seconds that the end of a run of the whole page waits for a run of a part that follows at once."""


def middleware() -> list[Middleware]:
    """Middleware between the browsers and Streamlit: this, or none, for a reason that the log states."""
    if is_on():
        return [Middleware(Together)]
    unlike = difference(st.__version__)
    if unlike is not None:
        logging.getLogger(__name__).warning("Websockets are left to Streamlit alone: %s.", unlike)
    return []


def quicken() -> None:
    """Python collects by itself; a full pass after each run costs as much as a third of the run. Where Streamlit's
    options stand, which it hides, when it has read them."""
    if is_on():
        try:
            config.set_option("runner.postScriptGC", False)
        except RuntimeError as error:
            logging.getLogger(__name__).warning("A run ends with a full collection of garbage: %s", error)


def is_on() -> bool:
    """Whether it is wanted, and this is the Streamlit that it was written for."""
    return os.environ.get(DIRECT) != "0" and difference(st.__version__) is None


def marked_as_back() -> bool | None:
    """Whether the browser marks what it asks in this run as Back or forward; None where one cannot know."""
    return getattr(get_script_run_ctx(), "is_history_navigation", None) if is_on() else None


def drawn_before() -> dict[str, int]:
    """The widgets that a browser had drawn before this process knew it, for its server was started again: the number
    of each name. None where one cannot know."""
    context = get_script_run_ctx() if is_on() else None
    states = [] if context is None else context.session_state.get_widget_states()
    parts = (state.id.split("-", 2)[-1].partition("~") for state in states)
    return {name: int(number or 0) for name, _, number in parts if not number or number.isdecimal()}


def difference(version: str) -> str | None:
    """Difference of a Streamlit of this version from the one that this was written for."""
    if version.split(".")[:2] != WRITTEN_FOR.split("."):
        return f"this is Streamlit {version}, and not {WRITTEN_FOR}"
    return MISSING


class Runs:
    """Runs of the script in this process."""

    def __init__(self) -> None:
        self.running: WeakSet[Sender] = WeakSet()
        """The ways to browsers for which one is under way."""
        self.observe: Callable[[float], None] = lambda seconds: None
        """Hears how many seconds each took."""

    def note(self, sender: Sender, kind: str | None) -> None:
        if kind == "new_session":
            sender.started = time.perf_counter()
            self.running.add(sender)
        elif kind == "script_finished" and sender in self.running:
            self.running.discard(sender)
            self.observe(time.perf_counter() - sender.started)


RUNS = Runs()


class Together:
    """Websockets on which what a run sends waits for its end, and what is asked loses nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            asking = Asking(receive)
            await self.app(scope, asking.next, Sender(send, asking.answered).take)
            if asking.refused is not None:
                await send({"type": "websocket.close", "code": asking.refused})
        else:
            await self.app(scope, receive, send)


MOST_LATE = 100
"""Widgets of pages that were left, whose last values are said again."""


class Asking:
    """Messages of one browser, with those that Streamlit would lose:

    - The part of a page whose slider was moved is known to the server that drew it, and where that was started again
      the new one would not answer: what comes first over a connection is for the whole page.
    - A browser may have dropped by now a message that it lists, and gives up the page when it is sent its hash alone:
      it is taken to list none.
    - Whoever goes to another page, or back, says nothing of widgets, of which a move may wait for its answer, and is
      dropped: what was said of them last is said again.
    - A move that comes from the page before would bring that back: it is asked of the new one. What comes next says
      nothing of it, and of messages that wait Streamlit takes what the last one says: it is said again."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive
        self.page: str | None = None
        """The hash of the page that the browser is on, or on its way to."""
        self.query = ""
        """Messages of the browser to that page."""
        self.is_there = True
        """Whether that page has answered."""
        self.is_drawn = False
        """Whether it is being drawn."""
        self.said: list[WidgetState] = []
        self.late: dict[str, WidgetState] = {}
        """States of widgets that came late from a page before, the newest last, by id."""
        self.refused: int | None = None
        """Why the connection ends with what it sent last, by RFC 6455 section 7.4."""

    async def next(self) -> Message:
        message = await self.receive()
        if message["type"] != "websocket.receive":
            return message
        frame = message.get("bytes")
        if frame is None:
            return self.refuse(NO_BYTES)
        try:
            request = BackMsg.FromString(frame)
        except DecodeError:
            return self.refuse(NO_MESSAGE)
        if request.HasField("rerun_script"):
            self.complete(request.rerun_script)
            message["bytes"] = request.SerializeToString()
        return message

    def refuse(self, code: int) -> Message:
        """The end of the connection, as Streamlit hears it: it would log a traceback for a frame that it can't read."""
        logging.getLogger(__name__).warning("A websocket ends with a frame that is no message of Streamlit's.")
        self.refused = code
        return {"type": "websocket.disconnect", "code": code}

    def complete(self, state: ClientState) -> None:
        state.ClearField("cached_message_hashes")
        said, page = state.widget_states.widgets, state.page_script_hash
        if self.page is None:
            state.ClearField("fragment_id")
            self.page = page
        elif not said:
            said.extend(self.said)
            self.page, self.query, self.is_there, self.is_drawn = page, state.query_string, False, False
        elif not self.is_there or page != self.page:
            state.page_script_hash, state.query_string = self.page, self.query
            state.ClearField("fragment_id")
            for widget in said:
                if not is_click(widget):
                    self.late.pop(widget.id, None)
                    self.late[widget.id] = widget
            self.late = dict([*self.late.items()][-MOST_LATE:])
        if self.late:
            newer = {widget.id: widget for widget in said}  # moved after it, and heard after it
            del said[:]
            said.extend(widget for name, widget in self.late.items() if name not in newer)
            said.extend(newer.values())
        self.said = [widget for widget in said if not is_click(widget)]

    def answered(self, sent: ForwardMsg) -> None:
        """Note the page of what is sent, which may be another than was asked, and its end."""
        page = sent.navigation.page_script_hash
        if sent.HasField("navigation") and self.is_there:
            self.page, self.query = page, ""
        elif sent.HasField("navigation"):
            self.is_drawn = page == self.page
        elif sent.HasField("script_finished") and self.is_drawn:
            self.is_there = True


def is_complete(sent: ForwardMsg) -> bool:
    """Whether a run of the whole page has come to its end, and not one of a part, or one that was cut short."""
    whole = not sent.metadata.run.fragment_ids
    return whole and sent.script_finished == ForwardMsg.ScriptFinishedStatus.FINISHED_SUCCESSFULLY


def is_click(widget: WidgetState) -> bool:
    """Whether it is said once, and not how something is."""
    return str(widget.WhichOneof("value")).endswith("trigger_value")


class Sender:
    """The way to one browser. That a run begins is sent at once, and the answer before the sidebar: the browser goes
    through the page for it while the script computes. That the script is running costs it the same again, and is sent
    only of a run that takes long.

    Where a part of the page is asked for while the whole runs, its run follows at once, and Streamlit drops what the
    whole has sent of that part and not delivered yet (`ForwardMsgQueue.clear`), and yet says that the whole is
    complete: a browser would take the part away, with the focus of its controls, and put it back when it comes. Here
    both are one run, which ends where the part ends."""

    def __init__(self, send: Send, note: Callable[[ForwardMsg], None] = lambda sent: None) -> None:
        self.send = send
        self.note = note
        """Hears what is sent."""
        self.part: int | None = None
        """The part of the page that came last."""
        self.waiting: list[Message] = []
        self.status: Message | None = None
        """Message that the script is running, not sent yet."""
        self.running = False
        self.started = 0.0
        """Start of the last run, on the clock of `time.perf_counter`."""
        self.last: str | None = None
        """The kind of what was taken last."""
        self.end: list[Message] = []
        """Messages that a run of the whole page is complete, and that none is under way any more, not sent yet."""
        self.due: asyncio.Task[None] | None = None
        self.sending = asyncio.Lock()

    async def take(self, message: Message) -> None:
        try:
            sent = ForwardMsg.FromString(message.get("bytes") or b"")
        except DecodeError:  # not ours to judge: it goes out as it is
            sent = ForwardMsg()
        entering, kind = self.last == "navigation", sent.WhichOneof("type")
        self.last = kind
        self.note(sent)
        RUNS.note(self, kind)
        if self.end and self.goes_on(sent, kind):
            return
        if kind == "new_session":
            self.part, self.end = None, []
        if sent.metadata.delta_path:
            before, self.part = self.part, sent.metadata.delta_path[0]
            if (before, self.part) == (RootContainer.MAIN, RootContainer.SIDEBAR):
                await self.release()
        if kind == "session_status_changed":
            self.running = sent.session_status_changed.script_is_running
            self.status = message if self.running else None
        if entering and kind == "page_info_changed" and self.waiting:
            self.waiting.insert(-1, message)  # behind the path, it would be a step of its own on the way back
        elif sent.HasField("script_finished") and is_complete(sent):
            self.end = [message]
        elif self.end and kind == "session_status_changed" and not self.running:
            self.end = [self.end[0], message]
        elif kind != "session_status_changed" or not self.running:
            self.waiting.append(message)
        if kind == "new_session" or not self.running:
            await self.release()
        if self.due is None and (self.waiting or self.end):
            self.due = asyncio.create_task(self.wait() if self.running else self.finish())

    def goes_on(self, sent: ForwardMsg, kind: str | None) -> bool:
        """Whether this is the beginning or the end of a part's run that goes on with the whole page's. It stays with
        us: the end of both is that of the whole page."""
        is_of_part = len(sent.metadata.run.fragment_ids) > 0
        if is_of_part and kind == "new_session":
            self.end = self.end[:1]
            self.stop_waiting()
        return is_of_part

    async def finish(self) -> None:
        await asyncio.sleep(HELD)
        self.due = None
        self.waiting, self.end = self.waiting + self.end, []
        with suppress(OSError):
            await self.release()

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

    def stop_waiting(self) -> None:
        if self.due is not None:
            self.due.cancel()
            self.due = None

    async def release(self) -> None:
        self.stop_waiting()
        async with self.sending:  # a slow browser takes those before first
            waiting, self.waiting = self.waiting, []
            for message in waiting:
                await self.send(message)
