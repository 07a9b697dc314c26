"""One answer for all who ask the Hub the same at the same time, or within a minute: in a process, and on a disk that
replicas share, in bounded space."""

import json
import os
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from functools import wraps
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from threading import Lock
from time import monotonic
from typing import Any, Generic, TypeVar

from filelock import FileLock, Timeout
from pydantic import ValidationError

from calc.errors import Frozen

Answer = TypeVar("Answer", bound=Frozen)
Result = TypeVar("Result")
Ask = Callable[[str, str | None, str | None, str | None], Answer]
FOLDER = "WEIGHBRIDGE_HUB_CACHE"
"""Environment variable: the shared folder, all of which may be removed; without it nothing is shared."""
MOST_MB = "WEIGHBRIDGE_HUB_CACHE_MB"
"""Environment variable: MB that the folder may take, 1,000 where it is not set. Where HF_HOME is in it, the files of
the Hub's client count too."""
FRESH = 60.0
"""Seconds for which an answer is as good as a new one."""
PATIENCE = 30.0
"""Seconds to wait for another process that asks the same."""
LOCK_LETTERS = 3
"""Hexadecimal letters of an answer's name that choose its lock."""


def shared(kind: type[Answer], hub: Callable[[], tuple[str, str]]) -> Callable[[Ask[Answer]], Ask[Answer]]:
    """Shares the answers of a function of model, revision, token and file; `hub` says the address of the Hub and the
    cache of its client. What a token opened stays out, and so does an answer with a note, which could not be translated
    any more."""

    def decorate(ask: Ask[Answer]) -> Ask[Answer]:
        @wraps(ask)
        def answer(model: str, revision: str | None, token: str | None, gguf: str | None) -> Answer:
            folder = os.environ.get(FOLDER)
            if folder is None or token is not None:
                return ask(model, revision, token, gguf)
            endpoint, client = hub()
            question = json.dumps([endpoint, model, revision, gguf])
            file = Path(folder) / f"{sha256(question.encode()).hexdigest()}.json"
            return stored(file, kind, Path(client), lambda: ask(model, revision, None, gguf))

        return answer

    return decorate


def stored(file: Path, kind: type[Answer], client: Path, ask: Callable[[], Answer]) -> Answer:
    """The answer of the file, or a new one, which is then in it. A disk that is full or read-only shares nothing."""
    answer = read(file, kind)
    if answer is not None:
        return answer
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(file.with_name(f"{file.name[:LOCK_LETTERS]}.lock")).acquire(timeout=PATIENCE)
    except (OSError, Timeout):
        return ask()
    with lock:
        answer = read(file, kind)
        if answer is None:
            answer = ask()
            with suppress(OSError):
                write(file, answer, client)
    return answer


def read(file: Path, kind: type[Answer]) -> Answer | None:
    """None where it is old, or not there, or damaged."""
    try:
        if time.time() - file.stat().st_mtime > FRESH:
            return None
        return kind.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


def write(file: Path, answer: Frozen, client: Path) -> None:
    if getattr(answer, "note", None) is not None:
        return
    new = file.with_suffix(f".{os.getpid()}")
    new.write_text(answer.model_dump_json(), encoding="utf-8")
    new.replace(file)
    trim(file.parent, client, 1_000_000 * int(os.environ.get(MOST_MB) or 1000))


def trim(folder: Path, client: Path, most_bytes: int) -> None:
    """Removes what was written longest ago, until the rest fits: answers, and models in the cache of the Hub's client
    where that lies in this folder."""
    paths = [path for path in folder.iterdir() if path.is_file() and path.suffix != ".lock"]
    if client.resolve().is_relative_to(folder.resolve()) and client.is_dir():
        paths += [path for path in client.iterdir() if path.name.startswith("models--")]
    entries = sorted((path.stat().st_mtime, size(path), path) for path in paths)
    total = sum(nbytes for _, nbytes, _ in entries)
    for _, nbytes, path in entries:
        if total <= most_bytes:
            break
        if path.is_dir():
            rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        total -= nbytes


def size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files)


class Once:
    """The first who asks does the work, those who come meanwhile wait for its result or its error. Nothing is kept."""

    def __init__(self) -> None:
        self.lock, self.pending = Lock(), dict[Hashable, Future[Any]]()

    def __call__(self, question: Hashable, work: Callable[[], Result]) -> Result:
        own = Future[Result]()
        with self.lock:
            answer: Future[Result] = self.pending.setdefault(question, own)
        if answer is own:
            try:
                own.set_result(work())
            except BaseException as error:  # handed on to all who wait
                own.set_exception(error)
            finally:
                with self.lock:
                    del self.pending[question]
        return answer.result()


class RecentAnswers(Generic[Result]):
    """Answers for some seconds: so many at most, the oldest of which go first."""

    def __init__(self, seconds: float, most: int, clock: Callable[[], float] = monotonic) -> None:
        self.seconds, self.most, self.clock = seconds, most, clock
        self.lock, self.answers = Lock(), dict[Hashable, tuple[float, Result]]()

    def put(self, question: Hashable, answer: Result) -> None:
        with self.lock:
            self.answers.pop(question, None)
            self.answers[question] = self.clock() + self.seconds, answer
            while len(self.answers) > self.most:
                del self.answers[next(iter(self.answers))]

    def get(self, question: Hashable) -> Result | None:
        until, answer = self.answers.get(question, (0.0, None))
        return answer if self.clock() < until else None
