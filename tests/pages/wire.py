"""A browser, a server and the wire between them, each of which goes on when a test says so. The server runs Streamlit's
own script runner and merges what waits as Streamlit does; the browser does what Streamlit's does with what it gets."""

import asyncio
from unittest.mock import MagicMock
from urllib.parse import parse_qsl

from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from streamlit.runtime import Runtime
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from streamlit.runtime.fragment import MemoryFragmentStorage
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import RerunData, ScriptRunner, ScriptRunnerEvent
from streamlit.runtime.scriptrunner.script_cache import ScriptCache
from streamlit.runtime.scriptrunner_utils.script_requests import ScriptRequests, ScriptRequestType
from streamlit.runtime.state import SessionState

from pages.parts.direct import Asking
from tests import ROOT

SCRIPT = str(ROOT / "tests" / "pages" / "small_app.py")
ENDS = {
    ScriptRunnerEvent.SCRIPT_STOPPED_WITH_SUCCESS: ForwardMsg.FINISHED_SUCCESSFULLY,
    ScriptRunnerEvent.FRAGMENT_STOPPED_WITH_SUCCESS: ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY,
    ScriptRunnerEvent.SCRIPT_STOPPED_FOR_RERUN: ForwardMsg.FINISHED_EARLY_FOR_RERUN,
}


VALUES = ("slider", "number_input")
"""Elements that a browser says the value of."""


class Server:
    """One session."""

    def __init__(self):
        self.state, self.fragments, self.queue = SessionState(), MemoryFragmentStorage(), ForwardMsgQueue()
        PagesManager.uses_pages_directory = None
        Runtime._instance = MagicMock(spec=Runtime)
        self.pages = PagesManager(SCRIPT, ScriptCache(), setup_watcher=False)
        self.pending = None

    def ask(self, asked, cut=None):
        """Take a message: one for the whole page stops what runs, which may have sent so many messages by then."""
        if asked.fragment_id and not self.fragments.contains(asked.fragment_id):
            return
        if not asked.fragment_id:
            if cut:
                self.run(cut)
            self.pending = None
        self.pending = self.pending or ScriptRequests()
        self.pending.request_rerun(
            RerunData(
                query_string=asked.query_string,
                widget_states=asked.widget_states,
                page_script_hash=asked.page_script_hash,
                page_name=asked.page_name,
                fragment_id=asked.fragment_id or None,
                is_history_navigation=asked.is_history_navigation,
                context_info=asked.context_info,
            )
        )

    def run(self, cut=None):
        """Run what waits, or that many messages of it."""
        if self.pending is None:
            return
        request, self.pending = self.pending.on_scriptrunner_ready(), None
        assert request.type == ScriptRequestType.RERUN
        loop = asyncio.new_event_loop()
        runner = ScriptRunner(
            session_id="one",
            main_script_path=SCRIPT,
            session_state=self.state,
            uploaded_file_mgr=MemoryUploadedFileManager("/"),
            script_cache=ScriptCache(),
            initial_rerun_data=request.rerun_data,
            user_info={},
            fragment_storage=self.fragments,
            pages_manager=self.pages,
            event_loop=loop,
        )
        sent = 0

        def record(_, event, forward_msg=None, **about):
            nonlocal sent
            if cut is not None and sent >= cut:
                return
            if event == ScriptRunnerEvent.SCRIPT_STARTED:
                self.queue.clear(True, about["fragment_ids_this_run"])
                message = ForwardMsg()
                message.new_session.SetInParent()
                message.metadata.run.fragment_ids.extend(about["fragment_ids_this_run"] or [])
                self.queue.enqueue(message)
            elif event == ScriptRunnerEvent.ENQUEUE_FORWARD_MSG:
                self.queue.enqueue(forward_msg)
                sent += 1
                if sent == cut:
                    runner.request_stop()
            elif event in ENDS:
                self.queue.enqueue(ForwardMsg(script_finished=ENDS[event]))

        runner.on_event.connect(record, weak=False)
        runner.start()
        runner._script_thread.join()
        loop.close()


class Browser:
    """One tab. Elements by their path: widget id, what it is, the part of the page, the run that drew it."""

    def __init__(self, server, path="", query=""):
        self.server, self.path, self.query, self.page = server, path, query, ""
        self.history, self.is_back = [], False
        self.elements, self.states, self.pages = {}, {}, {}
        self.run, self.parts = 0, []
        self.connect()
        self.send(())

    def connect(self):
        """A new connection, over which nothing has come or gone."""
        self.asking, self.out, self.wire = Asking(None), [], []

    def send(self, states, **about):
        asked = ClientState(query_string=self.query, page_script_hash=self.page, **about)
        if not self.page:
            asked.page_name = self.path
        asked.widget_states.widgets.extend(states)
        asked.context_info.url = f"http://here/{self.path}"
        self.asking.complete(asked)
        self.out.append(asked)

    def flush(self):
        """Put on the wire what the server has."""
        for message in self.server.queue.flush():
            self.asking.answered(message)
            self.wire.append(message)

    def get(self, number=None):
        """Take so many messages from the wire."""
        taken, self.wire = self.wire[:number], self.wire[number or len(self.wire) :]
        for message in taken:
            getattr(self, f"on_{message.WhichOneof('type')}", lambda _: None)(message)

    def on_new_session(self, message):
        self.run, self.parts = self.run + 1, list(message.metadata.run.fragment_ids)

    def on_navigation(self, message):
        page = message.navigation.page_script_hash
        self.pages = {one.page_script_hash: one.url_pathname for one in message.navigation.app_pages}
        if page != self.page:
            self.elements = {}
            if self.page and self.pages[page] != self.path:
                self.go(self.pages[page], self.query)
            self.page = page

    def on_page_info_changed(self, message):
        self.go(self.path, message.page_info_changed.query_string)

    def go(self, path, query):
        if (path, query) != (self.path, self.query) and not self.is_back:
            self.history.append((self.path, self.query))
        self.path, self.query = path, query

    def on_delta(self, message):
        path, delta = tuple(message.metadata.delta_path), message.delta
        element = delta.new_element
        kind = element.WhichOneof("type")
        widget = getattr(element, kind) if kind in (*VALUES, "button") else None
        mounted = {one[0] for one in self.elements.values()}
        shown = element.markdown.body if kind == "markdown" else None
        self.elements[path] = (widget.id if widget else None, kind, delta.fragment_id, self.run, shown)
        is_new = kind in VALUES and widget.id not in self.states and widget.id not in mounted
        if is_new or (kind in VALUES and widget.set_value):
            self.states[widget.id] = state_of(widget, kind)

    def on_script_finished(self, message):
        if message.script_finished == ForwardMsg.FINISHED_EARLY_FOR_RERUN:
            return
        self.is_back = False
        if message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY:
            self.elements = {path: one for path, one in self.elements.items() if one[3] == self.run}
        else:
            self.elements = {
                path: one for path, one in self.elements.items() if one[2] not in self.parts or one[3] == self.run
            }
        mounted = {one[0] for one in self.elements.values()}
        self.states = {widget: state for widget, state in self.states.items() if widget in mounted}

    def widget(self, name):
        """The id of the widget that is on the screen, and its part of the page."""
        for widget, _, part, *_ in self.elements.values():
            if widget and widget.split("-", 2)[-1].partition("~")[0] == name:
                return widget, part
        return None, None

    def move(self, name, change):
        """What a reader does with a slider or a box; the value, or None where there is none."""
        widget, part = self.widget(name)
        if widget is None:
            return None
        state = self.states[widget]
        kind = "double_array_value" if state.HasField("double_array_value") else "int_value"
        before = state.double_array_value.data[0] if kind == "double_array_value" else state.int_value
        self.states[widget] = new = WidgetState(id=widget)
        if kind == "int_value":
            new.int_value = max(1, before + change)
        else:
            new.double_array_value.data.append(max(1, before + change))
        self.send(self.states.values(), fragment_id=part)
        return max(1, before + change)

    def empty(self, name):
        widget, part = self.widget(name)
        if widget is not None:
            self.states[widget] = WidgetState(id=widget)
            self.send(self.states.values(), fragment_id=part)

    def click(self, name):
        widget, part = self.widget(name)
        if widget is not None:
            self.send([*self.states.values(), WidgetState(id=widget, trigger_value=True)], fragment_id=part)

    def visit(self, path):
        """Go to a page by the navigation, which says nothing of the widgets of this one."""
        found = [page for page, known in self.pages.items() if known == path]
        if found and self.page:
            page, query = self.page, self.query
            self.page, self.query = found[0], ""
            self.send(())
            self.page, self.query = page, query

    def back(self):
        if self.history and self.page:
            self.path, self.query = self.history.pop()
            page, self.is_back = self.page, True
            self.page = next((known for known, path in self.pages.items() if path == self.path), page)
            self.send((), is_history_navigation=True)
            self.page = page

    def reconnect(self):
        """The connection breaks, and what was on its way is lost."""
        self.connect()
        self.server.pending = None
        self.server.queue.flush()
        self.send(self.states.values())

    def rest(self):
        """Everything arrives, and nothing more is done."""
        for _ in range(60):
            while self.out:
                self.server.ask(self.out.pop(0))
            self.server.run()
            self.flush()
            if not self.wire:
                return
            self.get()
        raise AssertionError("It never comes to rest.")

    def screen(self):
        """What its reader sees: the value of each widget by its name, and the figures."""
        shown = {}
        for widget, kind, _, _, text in self.elements.values():
            if kind == "markdown":
                shown["figures"] = text
            elif kind in VALUES:
                shown[widget.split("-", 2)[-1].partition("~")[0]] = (
                    self.states[widget].SerializeToString().split(widget.encode())[1]
                )
        return shown

    def address(self):
        return self.path, dict(parse_qsl(self.query))


def state_of(widget, kind):
    """What a browser says of a widget that it has just drawn."""
    state = WidgetState(id=widget.id)
    if kind == "slider":
        state.double_array_value.data.extend(widget.value if widget.set_value else widget.default)
    elif widget.set_value or widget.HasField("default"):
        state.int_value = int(widget.value if widget.set_value else widget.default)
    return state
