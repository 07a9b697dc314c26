"""One budget of CPU and memory for each calculation: one that goes beyond it ends in a sentence, not in an outage.

Sizes have bounds of their own where they are read; this is for the next one that somebody misses. It holds where loops
look at it: `spend` stands where fields are read, tensors listed, formats looked up, steps recorded, stages weighed.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from time import thread_time
from typing import TypeVar

from calc.errors import ConfigError, Message

SECONDS, SECONDS_OF_PLANS = 6.0, 30.0
"""Seconds of CPU for one report, and for plans; those of a published model take 0.01 to 2.1, and 0.1 to 3."""
MEGABYTES = 1500
"""By which the process may grow meanwhile, where Linux says how large it is."""
BETWEEN_LOOKS = 0.1
"""Seconds of CPU between two looks at the memory."""
SIZE = Path("/proc/self/statm")
PAGE = 4096


class Allowance:
    """Seconds of CPU and bytes of memory at which a calculation ends."""

    def __init__(self, seconds: float) -> None:
        now = thread_time()
        self.seconds, self.until, self.next_look = seconds, now + seconds, now + BETWEEN_LOOKS
        self.most_bytes = resident() + MEGABYTES * 10**6


CURRENT: ContextVar[Allowance | None] = ContextVar("budget", default=None)
Spent = TypeVar("Spent")


@contextmanager
def budget(seconds: float = SECONDS) -> Iterator[None]:
    """A budget for what is within, unless that is a part of what another budget is for. A decorator, too."""
    if CURRENT.get() is not None:
        yield
        return
    token = CURRENT.set(Allowance(seconds))
    try:
        yield
    finally:
        CURRENT.reset(token)


def spend() -> None:
    """Raise ConfigError where the budget is spent."""
    current = CURRENT.get()
    if current is None or (now := thread_time()) < current.next_look:
        return
    current.next_look = now + BETWEEN_LOOKS
    if now > current.until or resident() > current.most_bytes:
        raise ConfigError(
            Message(
                "This calculation was given up: it takes more than {seconds:g} seconds or {megabytes:,} MB. Fewer "
                "layers that differ, or fewer patterns and settings, take less.",
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
