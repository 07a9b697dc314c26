"""A small server that speaks enough of the Hugging Face Hub's protocol for the real client: model info, file
downloads with commit and range, search, and the faults that the Hub can have."""

import json
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secret_of_the_reader"
Files = dict[str, bytes]

FAULTS = {  # name of the repository -> status, X-Error-Code
    "gated": (403, "GatedRepo"),
    "private": (401, "RepoNotFound"),
    "missing": (404, "RepoNotFound"),
    "busy": (429, None),
    "broken": (500, None),
    "away": (503, None),
}


def safetensors(tensors: dict[str, tuple[str, tuple[int, ...], int]]) -> bytes:
    """A file of which only the header is there: name -> dtype, shape, bytes."""
    header, at = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


class Odd(NamedTuple):
    """An answer as no Hub should give it."""

    data: bytes = b""
    status: int = 200
    headers: dict[str, str] = {}
    length: str | None = None
    """Content-Length, where it is not that of the data."""
    repeats: int = 1  # of the data, of which the length is not stated
    drops: bool = False  # the connection is closed before any answer


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, repositories: dict[str, Files]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories = repositories
        self.sizes: dict[str, int] = {}  # "organisation/name/file" -> bytes that the list of files states
        self.tokens_seen: list[str | None] = []
        self.ranges_seen: list[str | None] = []
        self.ignores_ranges = False
        self.odd: dict[str, Odd] = {}  # path -> its answer
        self.bytes_sent = 0  # of odd answers

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        words = unquote(url.path).strip("/").split("/")
        self.server.tokens_seen.append(self.headers.get("authorization"))
        if url.path in self.server.odd:
            self.odd(self.server.odd[url.path])
        elif words == ["api", "models"]:
            self.search(parse_qs(url.query).get("search", [""])[0])
        elif words[:2] == ["api", "models"]:
            self.model("/".join(words[2:4]), words[5] if len(words) > 5 else "main")
        elif len(words) > 4 and words[2] == "resolve":
            self.file("/".join(words[:2]), words[3], "/".join(words[4:]))
        else:
            self.fail(404)

    def search(self, text: str) -> None:
        found = [name for name in self.server.repositories if text.lower() in name.lower()]
        self.reply(json.dumps([{"id": name, "modelId": name} for name in found]).encode())

    def model(self, name: str, revision: str) -> None:
        if not self.stopped(name, revision):
            files = self.server.repositories[name]
            sizes = {file: self.server.sizes.get(f"{name}/{file}", len(data)) for file, data in files.items()}
            siblings = [{"rfilename": file, "size": size} for file, size in sizes.items()]
            self.reply(json.dumps({"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings}).encode())

    def file(self, name: str, revision: str, path: str) -> None:
        if self.stopped(name, revision):
            return
        data = self.server.repositories[name].get(path)
        if data is None:
            self.fail(404, "EntryNotFound")
            return
        wanted = self.headers.get("range")
        self.server.ranges_seen.append(wanted)
        if wanted and not self.server.ignores_ranges:
            first, last = (int(end) for end in wanted.removeprefix("bytes=").split("-"))
            part = data[first : last + 1]
            self.reply(part, 206, {"Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(data)}"})
        else:
            self.reply(data)

    def stopped(self, name: str, revision: str) -> bool:
        """Whether the request ends here: a fault, a closed door, an unknown name or revision."""
        fault = FAULTS.get(name.partition("/")[2])
        if name.endswith("/slow"):
            time.sleep(3)
        if name.endswith("/opens-with-token") and self.headers.get("authorization") != f"Bearer {TOKEN}":
            fault = FAULTS["gated"]
        if fault is None and name not in self.server.repositories:
            fault = FAULTS["missing"]
        elif fault is None and revision not in ("main", "v1", COMMIT):
            fault = (404, "RevisionNotFound")
        if fault is not None:
            self.fail(*fault)
        return fault is not None

    def fail(self, status: int, code: str | None = None) -> None:
        self.reply(b"{}", status, {"X-Error-Code": code} if code else {})

    def odd(self, answer: Odd) -> None:
        self.close_connection = True
        if answer.drops:
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(answer.status)
        stated = {} if answer.repeats > 1 else {"Content-Length": answer.length or str(len(answer.data))}
        for name, value in (stated | answer.headers | {"Connection": "close"}).items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):  # who asked has read enough
            for _ in range(answer.repeats if self.command != "HEAD" else 0):
                self.wfile.write(answer.data)
                self.server.bytes_sent += len(answer.data)

    def reply(self, data: bytes, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {
            "X-Repo-Commit": COMMIT,
            "ETag": f'"{zlib.crc32(data):08x}"',
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            with suppress(ConnectionError):  # who asked may have stopped waiting
                self.wfile.write(data)


@contextmanager
def hub(repositories: dict[str, Files]) -> Iterator[Hub]:
    server = Hub(repositories)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
