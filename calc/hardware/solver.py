"""The largest and the least that still does."""

from collections.abc import Callable


def largest(fits: Callable[[int], bool], most: int, near: int = 1, step: int | None = None) -> int:
    """The largest n from 0 to `most` that fits, where more never fits better; 0 where not even 1 does. It is looked for
    at `near`, then near it: first so many as `step` away, by default as many as `near`."""
    if fits(most):
        return most
    good, bad, step = 0, most, step or near
    if near < most:
        good, bad = (near, most) if fits(near) else (0, near)
        neighbour = near + 1 if good else near - 1
        if 0 < neighbour < most:
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


def largest_near(fits: Callable[[int], bool], most: int, near: int) -> int:
    """The largest value that holds, where `near` is hardly off: searched from there in steps that double."""
    good, bad, step = 0, most + 1, 1
    if fits(near):
        good = near
        while good + step < bad:
            if not fits(good + step):
                bad = good + step
            else:
                good, step = good + step, 2 * step
    else:
        bad = near
        while bad - step > good:
            if fits(bad - step):
                good = bad - step
            else:
                bad, step = bad - step, 2 * step
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
