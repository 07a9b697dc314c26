"""`weighbridge serve`: real processes behind a real nginx, one of which is killed, all of which are replaced, and which
another joins, while readers move on."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from cli import main, serve
from pages.parts.outputs import scripts
from tests import ROOT

NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
QUERY = "model=Qwen/Qwen3-8B&batch=3"
SECONDS = 60


def wait_for(condition):
    """The first true value."""
    end = time.monotonic() + SECONDS
    while not (value := condition()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return value


def ready(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready") as reply:
            return reply.status == 200
    except HTTPError as error:
        error.close()
    except OSError:
        pass
    return False


class Running:
    """A server with its processes."""

    def __init__(self, workers):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = [sys.executable, "-m", "calc", "serve", f"--workers={workers}", f"--port={self.port}", "--drain=2"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(words, cwd=ROOT, env=os.environ | {"WEIGHBRIDGE_METRICS": "1"}, **quiet)
        wait_for(lambda: ready(self.port))

    def replicas(self):
        """Process and port of each replica."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        commands = {int(child): Path(f"/proc/{child}/cmdline").read_text() for child in children}
        ports = {pid: re.search(r"--server\.port=(\d+)", command) for pid, command in commands.items()}
        return {pid: int(port[1]) for pid, port in ports.items() if port}

    def sessions(self):
        """Open websockets of each replica, by process; none of one that does not answer."""
        found = {}
        for pid, port in self.replicas().items():
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
                text = reply.read().decode()
                found[pid] = int(float(re.search(r"^weighbridge_sessions (\S+)", text, re.MULTILINE)[1]))
        return found

    def end(self):
        self.process.terminate()
        return self.process.wait(timeout=SECONDS)


@pytest.fixture
def server():
    running = Running(2)
    yield running
    left = running.replicas()
    assert running.end() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in left)


class Reader:
    """One page, which connects again where it is cut off, as Streamlit's does."""

    def __init__(self, port):
        self.address, self.socket = f"http://127.0.0.1:{port}", None
        with urllib.request.urlopen(self.address) as reply:
            self.cookie = reply.headers["Set-Cookie"].partition(";")[0]

    async def connect(self):
        self.socket = await connect(
            f"{self.address.replace('http', 'ws')}/_stcore/stream",
            subprotocols=["streamlit"],
            origin=self.address,
            additional_headers={"Cookie": self.cookie},
            max_size=None,
        )

    async def ask(self, query=QUERY):
        """The figures of the page."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                if self.socket is None:
                    await self.connect()
                return await self.answer(query)
            except (ConnectionClosed, InvalidStatus, OSError):
                self.socket = None
                await asyncio.sleep(0.2)
        raise TimeoutError

    async def answer(self, query):
        message = BackMsg()
        message.rerun_script.query_string = query
        await self.socket.send(message.SerializeToString())
        figures = []
        while True:
            sent = ForwardMsg.FromString(await self.socket.recv(decode=False))
            figures += re.findall(r"\d[\d,.]* (?:GiB|GB|B)\b", str(sent.delta))
            if sent.WhichOneof("type") == "script_finished":
                assert sent.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY
                return figures


def pages(port, count):
    return [Reader(port) for _ in range(count)]


@pytest.mark.slow
@pytest.mark.skipif(NGINX is None, reason="There is no nginx here.")
def test_readers_go_on_where_a_replica_dies(server):
    asyncio.run(killed(server))


async def killed(server):
    first = Reader(server.port)
    figures = await first.ask()
    assert len(figures) > 5
    (serving,) = [pid for pid, number in server.sessions().items() if number]

    # the same cookie leads to the same replica
    again = Reader(server.port)
    again.cookie = first.cookie
    assert await again.ask() == figures
    assert server.sessions()[serving] == 2

    # the serving replica is killed: the other one goes on with the same figures, and a new one is started
    os.kill(serving, signal.SIGKILL)
    assert await first.ask() == figures
    wait_for(lambda: serving not in server.replicas() and len(server.sessions()) == 2)
    for reader in (first, again):
        await reader.socket.close()


@pytest.mark.sweep
@pytest.mark.skipif(NGINX is None, reason="There is no nginx here.")
def test_readers_go_on_where_all_replicas_are_replaced_and_one_more_joins(server):
    asyncio.run(replaced(server))


async def replaced(server):
    first, *others = pages(server.port, 4)
    figures = await first.ask()

    # all are replaced under load: each move is answered
    before = set(server.replicas())
    server.process.send_signal(signal.SIGHUP)
    while before & set(server.replicas()) or len(server.sessions()) < 2:
        assert await asyncio.gather(*(reader.ask() for reader in (first, *others))) == 4 * [figures]
        await asyncio.sleep(0.5)

    # a third joins: nobody is cut off, and it gets readers
    await asyncio.gather(*(reader.ask() for reader in (first, *others)))
    known = set(server.replicas())
    open_sockets = [reader.socket for reader in (first, *others)]
    server.process.send_signal(signal.SIGTTIN)
    more = []
    async with asyncio.timeout(SECONDS):  # until nginx has read its configuration, and then a third of who comes
        while not any(number for pid, number in server.sessions().items() if pid not in known):
            more += pages(server.port, 1)
            await more[-1].connect()
            await asyncio.sleep(0.2)
    assert await asyncio.gather(*(reader.ask() for reader in (first, *others))) == 4 * [figures]
    assert [reader.socket for reader in (first, *others)] == open_sockets
    for reader in (first, *others, *more):
        await reader.socket.close()


@pytest.mark.sweep
@pytest.mark.skipif(NGINX is None, reason="There is no nginx here.")
def test_an_old_and_a_new_version_serve_side_by_side(tmp_path, monkeypatch):
    """As in the middle of a rolling release: readers of both see the same figures, those of the old one go on at the
    new one, and a script of the old version is never answered with another."""
    newer = tmp_path / "newer"
    for name in ("calc", "cli", "pages", "presets", ".streamlit"):
        shutil.copytree(ROOT / name, newer / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "app.py", newer)
    script = next((newer / "pages" / "scripts").glob("*.js"))
    script.write_text(f"{script.read_text(encoding='utf-8')}\n// newer\n", encoding="utf-8")
    old = serve.Replica(2.0)
    monkeypatch.setattr(serve, "APP", newer / "app.py")
    new = serve.Replica(2.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = tmp_path / "nginx.conf"
    tmp_path.chmod(0o711)
    addresses = [old.address, new.address]
    file.write_text(serve.configuration(addresses, f"127.0.0.1:{port}", str(tmp_path)), encoding="utf-8")
    proxy = None
    try:
        assert old.wait_until_ready()
        assert new.wait_until_ready()
        proxy = subprocess.Popen([NGINX, "-c", file, "-p", tmp_path], stderr=subprocess.DEVNULL)
        asyncio.run(released(port, old, new, script.name))
    finally:
        for process in (proxy, old.process, new.process):
            if process is not None:
                process.terminate()
                process.wait(timeout=SECONDS)


async def released(port, old, new, script):
    def has_script(replica, version):
        try:
            with urllib.request.urlopen(f"http://{replica.address}/scripts/{version}/{script}") as reply:
                return reply.headers.get_content_type() == "text/javascript"
        except HTTPError as error:
            error.close()
            return False

    wait_for(lambda: ready(port))
    readers = pages(port, 8)  # all of which are at one replica once in 128 runs
    figures = await readers[0].ask()
    assert len(figures) > 5
    assert await asyncio.gather(*(reader.ask() for reader in readers)) == 8 * [figures]
    assert has_script(old, scripts.SCRIPTS.version)
    assert not has_script(new, scripts.SCRIPTS.version)
    old.process.terminate()
    old.wait()
    assert await asyncio.gather(*(reader.ask() for reader in readers)) == 8 * [figures]
    for reader in readers:
        await reader.socket.close()


def test_the_proxy_hides_the_figures_of_replicas():
    text = serve.configuration(["127.0.0.1:1"], "8501", "/tmp")
    for path in ("/metrics", "/_stcore/metrics"):
        assert re.search(rf"location = {path} {{\s*return 404;", text)


@pytest.mark.skipif(NGINX is None, reason="There is no nginx here.")
def test_nginx_takes_the_configuration(tmp_path):
    file = tmp_path / "nginx.conf"
    file.write_text(serve.configuration(["127.0.0.1:1", "127.0.0.1:2"], "127.0.0.1:8501", str(tmp_path)), "utf-8")
    done = subprocess.run([NGINX, "-t", "-c", file, "-p", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_nginx_there_is_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr("shutil.which", lambda *words, **more: None)
    assert main(["serve"]) == 2
    assert "No nginx here" in capsys.readouterr().err


def test_no_processes_are_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr("shutil.which", lambda *words, **more: "nginx")
    assert main(["serve", "--workers", "0"]) == 2
    assert "--workers is a number from 1, not 0." in capsys.readouterr().err
