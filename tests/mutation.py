"""JSON values of which some parts are left out or are something else, for every door that takes JSON."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

JUNK = [
    *(None, True, False, 0, -1, 1, 3, 7, 2**31, 10**12, -(10**30), 10**400, 1.5, 4096.0),
    *(float("nan"), float("inf"), "", "4096", "x" * 5000, "\x00", [], [1], [None], [[]], [{}], ["x"], [1] * 5000),
    *({}, {"a": 1}, {"a": {"b": [1]}}),
]
GONE = object()


@st.composite
def mutated(draw: st.DrawFn, originals: Sequence[Any], junk: Sequence[Any] = JUNK) -> Any:
    """One of the originals with one to three parts left out or replaced."""
    value = copy.deepcopy(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(value))
        if places:
            holder, key = draw(st.sampled_from(places))
            instead = draw(st.sampled_from([GONE, *junk]))
            if instead is GONE:
                del holder[key]
            else:
                holder[key] = copy.deepcopy(instead)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every field of an object, and the ends of every list."""
    keys = list(value) if isinstance(value, dict) else sorted({0, len(value) - 1}) if value else []
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])
