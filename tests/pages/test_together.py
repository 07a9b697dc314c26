"""What a run sends reaches the browser whole and in order, in few pieces."""

import asyncio

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from pages.parts.outputs import together
from pages.parts.outputs.together import Asking, Sender, Together


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
        assert browser.since() == [element("a"), element("b"), END, status(running=False)]
        await sender.take(event(element("out of a run")))
        assert browser.since() == [element("out of a run")]

    asyncio.run(run())


def at(message, *path):
    message.metadata.delta_path.extend(path)
    return message


def known(name):
    message = ForwardMsg()
    message.ref_hash = name
    return message


def block():
    message = ForwardMsg()
    message.delta.add_block.vertical.SetInParent()
    return message


def test_what_a_browser_knows_goes_into_no_block_that_never_came():
    """Streamlit drops what a part of the page had not sent when it runs again, but not what is said by its hash."""

    async def run():
        browser = Browser()
        sender = Sender(browser.get)
        whole = [at(block(), 0, 0), at(known("a"), 0, 0, 0), at(known("b"), 0, 0, 1), at(known("c"), 1, 0)]
        cut = [at(block(), 0, 0), at(known("a"), 0, 1, 0), at(known("b"), 0, 0, 2)]
        for message in (begins(), *whole, END, begins(), *cut, END):
            await sender.take(event(message))
        assert browser.since() == [begins(), *whole, END, begins(), cut[0], END]

    asyncio.run(run())


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
    monkeypatch.setattr(together, "LONGEST", 0.01)
    path, address = ForwardMsg(), ForwardMsg()
    path.navigation.page_script_hash = "train"
    address.page_info_changed.query_string = "model=gpt2"

    async def run(patience, slow):
        monkeypatch.setattr(together, "PATIENCE", patience)
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
    monkeypatch.setattr(together, "LONGEST", 0.01)

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
    monkeypatch.setattr(together, "LONGEST", 0.01)

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
    """A browser holds what was sent by its hash, and is not sent it again."""

    async def run():
        browser = Browser()
        sender = Sender(browser.get)
        for message in (begins("1"), status(running=True), element("a"), begins("2"), element("b"), END):
            await sender.take(event(message))
        await sender.take(event(status(running=False)))
        assert browser.since() == [begins("1"), element("a"), begins("2"), element("b"), END, status(running=False)]

    asyncio.run(run())


def test_a_browser_that_is_gone_is_no_error(monkeypatch):
    monkeypatch.setattr(together, "LONGEST", 0.01)

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
