"""The largest and the least that still does."""

from collections.abc import Callable


def largest(fits: Callable[[int], bool], most: int, near: int = 1, step: int | None = None) -> int:
    """The largest n from 0 to `most` that fits, where more never fits better; 0 where not even 1 does. `most` is tried
    first; the first step away from `near` is as long as `near`, unless `step` says otherwise."""
    return most if fits(most) else largest_near(fits, most - 1, near, step or near)


def largest_near(fits: Callable[[int], bool], most: int, near: int, step: int = 1) -> int:
    """The largest n from 0 to `most` that fits, looked for at `near`, then next to it, then in steps that double."""
    good, bad = 0, most + 1
    if near <= most:
        good, bad = (near, bad) if fits(near) else (0, near)
        neighbour = near + 1 if good else near - 1
        if 0 < neighbour <= most:
            good, bad = (max(good, neighbour), bad) if fits(neighbour) else (good, min(bad, neighbour))
    while good == 0 and bad > step:
        if fits(bad - step):
            good = bad - step
        else:
            bad, step = bad - step, 2 * step
    while good + step < bad:
        if not fits(good + step):
            bad = good + step
        else:
            good, step = good + step, 2 * step
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def least(fits: Callable[[int], bool], most: int, first: int = 1) -> int | None:
    """The least n from `first` to `most` that fits, where more never fits worse; None where not even `most` does. It
    is looked for near `first`."""
    if first > most:
        return None
    if fits(first):
        return first
    if not fits(most):
        return None
    bad, good, step = first, most, 1
    while bad + step < good:
        if fits(bad + step):
            good = bad + step
        else:
            bad, step = bad + step, 2 * step
    while good - bad > 1:
        middle = (bad + good) // 2
        bad, good = (bad, middle) if fits(middle) else (middle, good)
    return good
