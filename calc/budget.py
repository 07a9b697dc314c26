"""One budget of CPU and memory for each calculation: one that goes beyond it ends in a sentence, not in an outage.

Seconds are those of its thread. Memory is that of the process, for nothing says whose it is: where several calculations
run and it is too large, they go on by turns, and the one that makes it grow in its turns is given up.

Sizes have bounds of their own where they are read; this is for the next one that somebody misses. It holds where loops
look at it: `spend` stands where fields are read, tensors listed, formats looked up, steps recorded, stages weighed.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from threading import Lock
from time import monotonic, thread_time
from typing import TypeVar

from calc.errors import ConfigError, Message

SECONDS, SECONDS_OF_PLANS = 6.0, 30.0
"""Seconds of CPU for one report, and for plans; those of a published model take 0.01 to 2.1, and 0.1 to 3."""
MEGABYTES = 1500
"""MB by which the process may grow meanwhile, where Linux says how large it is."""
BETWEEN_LOOKS = 0.1
"""Seconds between two looks at CPU and memory, and of a turn. A thread has no more CPU than time passes, and asking how
much it had is a call to the system, of 2 to 200 us."""
MEGABYTES_OF_TURNS = 100
"""MB by which the process may grow in the turns of one calculation."""
WAIT = 5.0
"""Seconds for which a turn is waited for, so that none waits for one that waits for it."""
SIZE = Path("/proc/self/statm")
PAGE = 4096


class Allowance:
    """Seconds of CPU and bytes of memory at which a calculation ends."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.until, self.next_look = seconds, thread_time() + seconds, monotonic() + BETWEEN_LOOKS
        self.most_bytes: int | None = None  # from the first look on: asking gives Python's lock away, for up to 5 ms
        self.turn_bytes = 0  # by which the process grew in its turns
        self.turn: list[int] | None = None  # bytes of the process at each look in the turn that it has

    def is_used_up(self) -> bool:
        """Whether it ends; may wait for a turn of its own."""
        size = resident()
        if self.most_bytes is None:
            self.most_bytes = size + MEGABYTES * 10**6
        if self.turn is not None:
            self.turn.append(size)
            if len(self.turn) > 1:  # all others that are beyond it have come to wait before the first
                self.turn_bytes += size - self.turn[0]
                self.end_turn()
        if thread_time() > self.until:
            return True
        if size <= self.most_bytes or self.turn is not None:
            return False
        if len(RUNNING) == 1 or self.turn_bytes > MEGABYTES_OF_TURNS * 10**6:
            return True
        if TURN.acquire(timeout=WAIT):
            self.turn = []
        return False

    def end_turn(self) -> None:
        """Lets another have its turn."""
        if self.turn is not None:
            self.turn = None
            TURN.release()


RUNNING, TURN = set[Allowance](), Lock()
CURRENT: ContextVar[Allowance | None] = ContextVar("budget", default=None)
Spent = TypeVar("Spent")


@contextmanager
def budget(seconds: float = SECONDS) -> Iterator[None]:
    """A budget for what is within, unless that is a part of what another budget is for. A decorator, too."""
    if CURRENT.get() is not None:
        yield
        return
    allowance = Allowance(seconds)
    token = CURRENT.set(allowance)
    RUNNING.add(allowance)
    try:
        yield
    finally:
        RUNNING.discard(allowance)
        allowance.end_turn()
        CURRENT.reset(token)


def spend() -> None:
    """Raise ConfigError where the budget is spent."""
    current = CURRENT.get()
    if current is None or monotonic() < current.next_look:
        return
    current.next_look = monotonic() + BETWEEN_LOOKS
    if current.is_used_up():
        raise ConfigError(
            Message(
                "This calculation was stopped: it takes more than {seconds:g} seconds or {megabytes:,} MB. Fewer "
                "distinct layers, patterns or settings take less.",
                seconds=current.seconds,
                megabytes=MEGABYTES,
            )
        )


def spent(items: Iterable[Spent]) -> Iterator[Spent]:
    """The items, each of which counts."""
    for item in items:
        spend()
        yield item


def resident() -> int:
    """Bytes of memory that this process has; 0 where nothing says so."""
    with suppress(OSError, IndexError, ValueError):
        return int(SIZE.read_bytes().split()[1]) * PAGE
    return 0
