"""What a run sends reaches the browser whole and in order, in few pieces."""

import asyncio

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue

from pages.parts import direct
from pages.parts.direct import Asking, Sender, Together

pytestmark = pytest.mark.skipif(not direct.is_on(), reason="This is about the Streamlit that direct.py knows.")


def begins(name="run"):
    message = ForwardMsg()
    message.new_session.name = name
    return message


def status(*, running):
    message = ForwardMsg()
    message.session_status_changed.script_is_running = running
    return message


def element(text):
    message = ForwardMsg()
    message.delta.new_element.markdown.body = text
    return message


END = ForwardMsg(script_finished=ForwardMsg.FINISHED_SUCCESSFULLY)


def event(message):
    return {"type": "websocket.send", "bytes": message.SerializeToString()}


class Browser:
    """What has arrived, as lists of what came at once."""

    def __init__(self):
        self.pieces = []

    async def get(self, message):
        self.pieces.append(message.get("bytes"))

    def since(self):
        pieces, self.pieces = self.pieces, []
        return [ForwardMsg.FromString(piece) for piece in pieces]


def test_a_short_run_comes_as_its_beginning_and_the_rest():
    async def run():
        browser = Browser()
        sender = Sender(browser.get)
        await sender.take(event(begins()))
        assert browser.since() == [begins()]
        for message in (status(running=True), element("a"), element("b"), END):
            await sender.take(event(message))
        assert browser.since() == []
        await sender.take(event(status(running=False)))
        assert browser.since() == [element("a"), element("b")]
        await sender.due
        assert browser.since() == [END, status(running=False)]
        await sender.take(event(element("out of a run")))
        assert browser.since() == [element("out of a run")]

    asyncio.run(run())


def at(message, *path):
    message.metadata.delta_path.extend(path)
    return message


def block():
    message = ForwardMsg()
    message.delta.add_block.vertical.SetInParent()
    return message


def test_the_answer_comes_before_the_sidebar():
    async def run():
        browser = Browser()
        sender = Sender(browser.get)
        outline, answer, sliders = at(block(), 1, 0), at(element("fits"), 0, 0), at(element("help"), 1, 0, 0)
        for message in (begins(), status(running=True), outline, answer):
            await sender.take(event(message))
        assert browser.since() == [begins()]
        await sender.take(event(sliders))
        assert browser.since() == [outline, answer]
        await sender.take(event(status(running=False)))
        assert browser.since() == [sliders, status(running=False)]

    asyncio.run(run())


def test_the_path_of_a_page_comes_behind_its_query_string(monkeypatch):
    monkeypatch.setattr(direct, "LONGEST", 0.01)
    path, address = ForwardMsg(), ForwardMsg()
    path.navigation.page_script_hash = "train"
    address.page_info_changed.query_string = "model=gpt2"

    async def run(patience, slow):
        monkeypatch.setattr(direct, "PATIENCE", patience)
        browser = Browser()
        sender = Sender(browser.get)
        for message in (begins(), status(running=True), path):
            await sender.take(event(message))
        await asyncio.sleep(slow)
        before = browser.since()
        await sender.take(event(address))
        await sender.take(event(status(running=False)))
        return before, browser.since()

    end = status(running=False)
    assert asyncio.run(run(1000, 0.1)) == ([begins()], [address, path, end])
    assert asyncio.run(run(2, 0.2)) == ([begins(), status(running=True), path], [address, end])


def test_a_slow_browser_gets_what_was_sent_first_first(monkeypatch):
    monkeypatch.setattr(direct, "LONGEST", 0.01)

    async def run():
        browser = Browser()

        async def get(message):
            await asyncio.sleep(0.02)
            await browser.get(message)

        sender = Sender(get)
        for message in (begins(), status(running=True), element("a"), element("b"), element("c")):
            await sender.take(event(message))
        await asyncio.sleep(0.03)  # the first of the three is on its way
        for message in (element("d"), END, status(running=False)):
            await sender.take(event(message))
        assert [message for message in browser.since() if message.WhichOneof("type") == "delta"] == [
            element(text) for text in "abcd"
        ]

    asyncio.run(run())


def test_a_long_run_says_that_it_runs_and_shows_what_there_is(monkeypatch):
    monkeypatch.setattr(direct, "LONGEST", 0.01)

    async def run():
        browser = Browser()
        sender = Sender(browser.get)
        for message in (begins(), status(running=True), element("a")):
            await sender.take(event(message))
        await asyncio.sleep(0.05)
        assert browser.since() == [begins(), status(running=True), element("a")]
        await sender.take(event(element("b")))
        await asyncio.sleep(0.05)
        assert browser.since() == [element("b")]

    asyncio.run(run())


def test_a_run_that_is_cut_short_keeps_what_it_sent():
    async def run():
        browser = Browser()
        sender = Sender(browser.get)
        for message in (begins("1"), status(running=True), element("a"), begins("2"), element("b"), END):
            await sender.take(event(message))
        await sender.take(event(status(running=False)))
        await sender.due
        assert browser.since() == [begins("1"), element("a"), begins("2"), element("b"), END, status(running=False)]

    asyncio.run(run())


PART = "the answer"


def of_run(message, name, *fragments):
    message.metadata.run.script_run_id = name
    message.metadata.run.fragment_ids.extend(fragments)
    return message


def of_part(text):
    message = element(text)
    message.delta.fragment_id = PART
    return message


def whole():
    """A run of the whole page, whose answer still waits for the browser when that asks for the answer again."""
    end = of_run(ForwardMsg(script_finished=ForwardMsg.FINISHED_SUCCESSFULLY), "whole")
    return [
        of_run(begins(), "whole"),
        status(running=True),
        at(element("Weighbridge"), 1, 0),
        at(of_part("before"), 0, 0),
        end,
        status(running=False),
    ]


def asked_again(how, text="after"):
    """What Streamlit has left to send when the run of a part begins, and that run."""
    queue = ForwardMsgQueue()
    for message in whole():
        queue.enqueue(message)
    queue.clear(retain_lifecycle_msgs=True, fragment_ids_this_run=[PART])
    end = of_run(ForwardMsg(script_finished=how), "part", PART)
    rest = [status(running=True), at(of_part(text), 0, 0), end, status(running=False)]
    return [*queue.flush(), of_run(begins(), "part", PART), *rest]


def test_a_part_that_is_asked_for_while_the_whole_page_runs_ends_with_it():
    """Streamlit drops its answer, and yet says that the page is complete, which would take it off the page."""

    async def run():
        browser = Browser()
        sender = Sender(browser.get)
        for message in asked_again(ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY):
            await sender.take(event(message))
        await sender.due
        begin, _, sidebar, _, *end = whole()
        assert browser.since() == [begin, sidebar, at(of_part("after"), 0, 0), *end]

    asyncio.run(run())


def test_a_part_that_finds_that_the_whole_page_must_run_leaves_its_end_to_that():
    async def run():
        browser = Browser()
        sender = Sender(browser.get)
        for message in [*asked_again(ForwardMsg.FINISHED_EARLY_FOR_RERUN), *whole()]:
            await sender.take(event(message))
        await sender.due
        kinds = [message.WhichOneof("type") for message in browser.since()]
        assert kinds.count("new_session") == 2
        assert kinds.count("script_finished") == 1
        assert kinds[-2:] == ["script_finished", "session_status_changed"]

    asyncio.run(run())


def test_a_part_that_is_asked_for_later_is_a_run_of_its_own():
    async def run():
        browser = Browser()
        sender = Sender(browser.get)
        for message in whole():
            await sender.take(event(message))
        await sender.due
        assert browser.since() == [message for message in whole() if message != status(running=True)]
        begin = of_run(begins(), "part", PART)
        await sender.take(event(begin))
        assert browser.since() == [begin]

    asyncio.run(run())


def test_a_browser_that_is_gone_is_no_error(monkeypatch):
    monkeypatch.setattr(direct, "LONGEST", 0.01)

    async def gone(message):
        raise OSError

    async def run():
        sender = Sender(gone)
        sender.running = True
        await sender.take(event(element("a")))
        await sender.due

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_only_websockets_are_held(kind):
    async def send(message):
        raise AssertionError

    passed = []

    async def app(scope, receive, send):
        passed.append(send)

    asyncio.run(Together(app)({"type": kind}, None, send))
    assert (passed == [send]) == (kind == "http")


def test_a_switch_turns_it_off(monkeypatch):
    monkeypatch.setattr(direct.st, "__version__", f"{direct.WRITTEN_FOR}.9")
    assert [one.cls for one in direct.middleware()] == [Together]
    monkeypatch.setenv("WEIGHBRIDGE_DIRECT", "0")
    assert direct.middleware() == []


def other_version(monkeypatch):
    monkeypatch.setattr(direct.st, "__version__", "1.999.0")


def module_gone(monkeypatch):
    monkeypatch.setattr(direct, "MISSING", "No module named 'streamlit.proto.BackMsg_pb2'")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (other_version, "this is Streamlit 1.999.0"),
        (module_gone, "No module named"),
    ],
)
def test_it_stands_aside_where_streamlit_is_another(monkeypatch, caplog, change, sentence):
    monkeypatch.setattr(direct.st, "__version__", direct.WRITTEN_FOR)
    change(monkeypatch)
    assert direct.middleware() == []
    assert sentence in caplog.text


def test_an_option_that_is_gone_is_no_fault(monkeypatch, caplog):
    def gone(name, value):
        raise RuntimeError(f'Config key "{name}" not defined.')

    monkeypatch.setattr(direct.config, "set_option", gone)
    direct.quicken()
    assert "runner.postScriptGC" in caplog.text


def test_what_is_no_answer_goes_out_as_it_is():
    browser = Browser()
    frame = {"type": "websocket.send", "bytes": b"\xff" * 40}
    asyncio.run(Sender(browser.get).take(frame))
    assert browser.pieces == [frame["bytes"]]


@pytest.mark.parametrize(("words", "code"), [(b"\xff" * 40, 1002), (None, 1003)])
def test_what_is_no_question_ends_the_connection(words, code, caplog):
    """Streamlit would log a traceback for each."""
    sent = []

    async def receive():
        return {"type": "websocket.receive", "bytes": words}

    async def app(scope, receive, send):
        assert await receive() == {"type": "websocket.disconnect", "code": code}

    async def send(message):
        sent.append(message)

    asyncio.run(Together(app)({"type": "websocket"}, receive, send))
    assert sent == [{"type": "websocket.close", "code": code}]
    assert "no message of Streamlit's" in caplog.text


def test_an_empty_question_is_one():
    message = {"type": "websocket.receive", "bytes": b""}

    async def receive():
        return dict(message)

    assert asyncio.run(Asking(receive).next()) == message


def test_a_browser_asks_for_the_whole_page_first():
    """After a restart of the server it asks for a part that the new one does not know."""
    part = BackMsg()
    part.rerun_script.fragment_id = "part"
    part.rerun_script.query_string = "batch=2"
    events = [{"type": "websocket.connect"}, *2 * [{"type": "websocket.receive", "bytes": part.SerializeToString()}]]

    async def receive():
        return dict(events.pop(0))

    async def run():
        asking = Asking(receive)
        _, *asked = [await asking.next() for _ in range(3)]
        first, second = (BackMsg.FromString(message["bytes"]).rerun_script for message in asked)
        assert (first.fragment_id, first.query_string) == ("", "batch=2")
        assert (second.fragment_id, second.query_string) == ("part", "batch=2")

    asyncio.run(run())


def asked(page, *widgets, part="", query=""):
    """What a browser asks that is on this page and has these widgets, each with its value."""
    message = BackMsg()
    message.rerun_script.page_script_hash = page
    message.rerun_script.fragment_id = part
    message.rerun_script.query_string = query
    for name, value in widgets:
        message.rerun_script.widget_states.widgets.add(id=name, int_value=value)
    return message.rerun_script


def heard(state):
    return (
        state.page_script_hash,
        state.fragment_id,
        state.query_string,
        {widget.id: widget.int_value for widget in state.widget_states.widgets},
    )


def answer(page):
    """What is sent of a page, from its name to its end."""
    path = ForwardMsg()
    path.navigation.page_script_hash = page
    return path, END


def test_a_page_that_is_left_is_heard():
    """A browser that goes to another page says nothing of the widgets of the one before; what it says of them later is
    no way back there."""
    asking = Asking(None)
    states = [
        asked("", query="batch=2"),
        asked("weigh", ("layers", 36), part="part", query="batch=2"),
        asked("train", query="dp=2"),
        asked("weigh", ("layers", 35), part="part", query="batch=2"),
        asked("train", ("layers", 35), ("rank", 8), part="step"),
    ]
    for number, state in enumerate(states):
        asking.complete(state)
        if number in (0, 3):
            for message in answer(("weigh", "train")[number > 0]):
                asking.answered(message)
    assert [heard(state) for state in states] == [
        ("", "", "batch=2", {}),
        ("weigh", "part", "batch=2", {"layers": 36}),
        ("train", "", "dp=2", {"layers": 36}),
        ("train", "", "dp=2", {"layers": 35}),
        ("train", "step", "", {"layers": 35, "rank": 8}),
    ]


def test_the_server_may_choose_the_page():
    """A button of ours that leads to another page; the answer of a page that was left on the way is none."""
    asking = Asking(None)
    asking.complete(asked(""))
    for page in ("plan", "weigh"):
        for message in answer(page):
            asking.answered(message)
    asking.complete(moved := asked("weigh", ("batch", 2), part="part"))
    assert heard(moved) == ("weigh", "part", "", {"batch": 2})
    asking.complete(asked("train"))
    for message in answer("weigh"):
        asking.answered(message)
    asking.complete(late := asked("weigh", ("batch", 4), part="part"))
    assert heard(late) == ("train", "", "", {"batch": 4})
