"""Turns of runs of the script, first come, first served. Python computes one thing at a time: runs that share it all
end when the last one does."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock
from time import monotonic

TURN = 0.1
"""Seconds of a turn: the next run begins beside one that takes longer, or waits for the Hub."""


class Turn:
    """A run that waits, computes, or has ended."""

    def __init__(self) -> None:
        self.until: float | None = None
        """When the next may begin, on the clock of `time.monotonic`; None while it waits."""
        self.ended = Event()

    def make_way(self) -> None:
        """Return once it has ended, or takes longer than a turn."""
        while self.until is None or self.until > monotonic():
            if self.ended.wait(TURN if self.until is None else self.until - monotonic()):
                return


class Turns:
    """Turns in the order in which they were asked for."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.last: Turn | None = None

    @contextmanager
    def take(self) -> Iterator[None]:
        """A turn for what is within, once it is there."""
        own = Turn()
        with self.lock:
            before, self.last = self.last, own
        try:
            if before is not None:
                before.make_way()
            own.until = monotonic() + TURN
            yield
        finally:
            own.ended.set()


TURNS = Turns()
"""Turns of this process."""
