"""One answer for all who ask the same at the same time."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Any, TypeVar

Answer = TypeVar("Answer")


class Once:
    """The first who asks does the work, those who come meanwhile wait for its result or its error. Nothing is kept."""

    def __init__(self) -> None:
        self.lock, self.pending = Lock(), dict[Hashable, Future[Any]]()

    def __call__(self, question: Hashable, work: Callable[[], Answer]) -> Answer:
        own = Future[Answer]()
        with self.lock:
            answer: Future[Answer] = self.pending.setdefault(question, own)
        if answer is own:
            try:
                own.set_result(work())
            except BaseException as error:  # handed on to all who wait
                own.set_exception(error)
            finally:
                with self.lock:
                    del self.pending[question]
        return answer.result()
