"""One answer for all who ask the same at the same time, or within a minute."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from time import monotonic
from typing import Any, Generic, TypeVar

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


class Lately(Generic[Answer]):
    """Answers for some seconds: so many at most, the oldest of which go first."""

    def __init__(self, seconds: float, most: int, clock: Callable[[], float] = monotonic) -> None:
        self.seconds, self.most, self.clock = seconds, most, clock
        self.lock, self.answers = Lock(), dict[Hashable, tuple[float, Answer]]()

    def put(self, question: Hashable, answer: Answer) -> None:
        with self.lock:
            self.answers.pop(question, None)
            self.answers[question] = self.clock() + self.seconds, answer
            while len(self.answers) > self.most:
                del self.answers[next(iter(self.answers))]

    def get(self, question: Hashable) -> Answer | None:
        until, answer = self.answers.get(question, (0.0, None))
        return answer if self.clock() < until else None
