"""`weighbridge serve --workers N`: the dashboard as several processes of one machine behind nginx, which keeps each
reader at one of them. One that ends is started again; SIGHUP replaces all, one after another; SIGTTIN adds one."""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from cli.options import Parser

APP = Path(__file__).parents[1] / "app.py"
TEMPLATE = Path(__file__).with_name("nginx.conf")
NOT_INSTALLED = "The dashboard is not installed: pip install 'weighbridge[app]' adds it."
LOCAL = "127.0.0.1"
DRAIN, QUIET = "WEIGHBRIDGE_DRAIN", {"STREAMLIT_LOGGER_HIDE_WELCOME_MESSAGE": "true"}
PATIENCE = 120.0
"""Seconds in which a process must have loaded everything."""
SHORT_LIFE, MOST_SHORT_LIVES = 5.0, 5
"""A process that ends within so many seconds, so many times in a row, is not started again."""


def parser(prog: str = "weighbridge serve") -> Parser:
    p = Parser(
        prog=prog,
        description="The dashboard as several processes behind nginx. SIGHUP replaces them one after another.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    p.add_argument("--workers", type=int, default=os.cpu_count(), metavar="N", help="processes, one a core")
    p.add_argument("--port", type=int, default=8501, help="where nginx listens")
    p.add_argument("--address", default=LOCAL, help="0.0.0.0 for all the world")
    p.add_argument("--drain", type=float, default=6.0, metavar="SECONDS", help="how long a process goes on to its end")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    if find_spec("streamlit") is None:
        print(NOT_INSTALLED, file=sys.stderr)
        return 2
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin")
    if nginx is None:
        print("No nginx here, which spreads the readers: install it, or start `weighbridge` alone.", file=sys.stderr)
        return 2
    if arguments.workers < 1:
        print(f"--workers is a number from 1, not {arguments.workers}.", file=sys.stderr)
        return 2
    with TemporaryDirectory(prefix="weighbridge-") as folder:
        Path(folder).chmod(0o711)  # nginx's own user goes through it
        return Servers(nginx, Path(folder), f"{arguments.address}:{arguments.port}", arguments.drain).run(
            arguments.workers
        )


def configuration(replicas: Iterable[str], listen: str, folder: str) -> str:
    """nginx's configuration for replicas at these addresses, each with its parameters; it writes below the folder
    alone."""
    servers = "\n".join(f"        server {replica};" for replica in replicas)
    text = TEMPLATE.read_text(encoding="utf-8")
    return text.replace("@REPLICAS@", servers).replace("@LISTEN@", listen).replace("@FOLDER@", folder)


class Replica:
    """A process of the dashboard at a port of its own."""

    def __init__(self, drain: float) -> None:
        with socket.socket() as free:
            free.bind((LOCAL, 0))
            self.port = free.getsockname()[1]
        self.environment = {DRAIN: str(drain), **QUIET, **os.environ}
        self.short_lives = 0
        self.start()

    @property
    def address(self) -> str:
        return f"{LOCAL}:{self.port}"

    def start(self) -> None:
        words = [sys.executable, "-m", "streamlit", "run", str(APP), "--server.headless=true"]
        words += [f"--server.address={LOCAL}", f"--server.port={self.port}"]
        # its own group: an interrupt from the keyboard is ours to hand on
        self.process = subprocess.Popen(words, cwd=APP.parent, env=self.environment, start_new_session=True)
        self.started = time.monotonic()

    def is_ready(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://{self.address}/ready", timeout=2) as reply:
            return bool(reply.status == 200)
        return False

    def wait_until_ready(self) -> bool:
        """False where it ends before, or takes too long."""
        while self.process.poll() is None and time.monotonic() < self.started + PATIENCE:
            if self.is_ready():
                return True
            time.sleep(0.1)
        return False

    def wait(self) -> None:
        try:
            self.process.wait(timeout=float(self.environment[DRAIN]) + 10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Servers:
    """Replicas and the proxy before them."""

    def __init__(self, nginx: str, folder: Path, listen: str, drain: float) -> None:
        self.nginx, self.folder, self.listen, self.drain = nginx, folder, listen, drain
        self.replicas: list[Replica] = []
        self.signals: list[int] = []

    def run(self, workers: int) -> int:
        """Exit status once a signal ends it, or nginx does."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTTIN):
            signal.signal(number, self.note)
        self.replicas = [Replica(self.drain) for _ in range(workers)]
        proxy = None
        try:
            if not all(replica.wait_until_ready() for replica in self.replicas):
                print("A process of the dashboard did not start; what it says stands above.", file=sys.stderr)
                return 1
            self.write()
            proxy = subprocess.Popen([self.nginx, "-c", str(self.file), "-p", str(self.folder)], start_new_session=True)
            print(f"{workers} processes behind http://{self.listen}", flush=True)
            return self.watch(proxy)
        finally:
            if proxy is not None and proxy.poll() is None:
                proxy.send_signal(signal.SIGTERM)
            for replica in self.replicas:
                replica.process.terminate()
            for replica in self.replicas:
                replica.wait()
            if proxy is not None:
                proxy.wait()

    def note(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)

    @property
    def file(self) -> Path:
        return self.folder / "nginx.conf"

    def write(self) -> None:
        # none is taken to be gone for a while: one that is refuses at once, and where they are replaced two would be
        addresses = [f"{replica.address} max_fails=0" for replica in self.replicas]
        self.file.write_text(configuration(addresses, self.listen, str(self.folder)), encoding="utf-8")

    def watch(self, proxy: subprocess.Popen[bytes]) -> int:
        """The exit status."""
        while proxy.poll() is None:
            number = self.signals.pop(0) if self.signals else None
            if number in (signal.SIGTERM, signal.SIGINT):
                return 0
            if number == signal.SIGHUP:
                self.replace()
            elif number == signal.SIGTTIN:
                self.add(proxy)
            if not self.restart_ended():
                print("A process of the dashboard ends as soon as it starts.", file=sys.stderr)
                return 1
            time.sleep(0.1)
        return proxy.returncode or 1

    def replace(self) -> None:
        """Starts each process anew while the others serve."""
        for replica in self.replicas:
            replica.process.terminate()
            replica.wait()
            replica.start()
            replica.wait_until_ready()

    def add(self, proxy: subprocess.Popen[bytes]) -> None:
        """One more process; most readers stay where they are."""
        replica = Replica(self.drain)
        self.replicas.append(replica)
        if replica.wait_until_ready():
            self.write()
            proxy.send_signal(signal.SIGHUP)

    def restart_ended(self) -> bool:
        """False where one ends again and again as soon as it starts."""
        for replica in self.replicas:
            if replica.process.poll() is not None:
                is_short = time.monotonic() < replica.started + SHORT_LIFE
                replica.short_lives = replica.short_lives + 1 if is_short else 0
                if replica.short_lives == MOST_SHORT_LIVES:
                    return False
                replica.start()
        return True
