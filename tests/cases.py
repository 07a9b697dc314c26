"""Many short cases in one test."""

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

import pytest


def in_one_test(
    names: str | tuple[str, ...], cases: Iterable[Any], *, ids: Callable[[Any], object] = str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator like `pytest.mark.parametrize` for cases of a millisecond, each of which takes pytest three more as a
    test of its own. All cases that fail are shown, by their ids. Those marked `sweep` are a second test."""
    names = (names,) if isinstance(names, str) else names
    groups: dict[bool, list[tuple[str, dict[str, Any]]]] = {}
    for case in cases:
        if not hasattr(case, "marks"):
            case = pytest.param(*(case if len(names) > 1 else (case,)))
        name = case.id or "-".join(str(ids(value)) for value in case.values)
        swept = any(mark.name == "sweep" for mark in case.marks)
        groups.setdefault(swept, []).append((name, dict(zip(names, case.values, strict=True))))

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def together(in_turn: list[tuple[str, dict[str, Any]]], **fixtures: Any) -> None:
            failed = []
            for name, values in in_turn:
                try:
                    test(**values, **fixtures)
                except Exception as error:
                    error.add_note(f"The case {name}")
                    failed.append(error)
            if failed:
                raise ExceptionGroup(f"{len(failed)} of {len(in_turn)} cases", failed)

        fixtures = [each for each in signature(test).parameters.values() if each.name not in names]
        together.__signature__ = Signature([Parameter("in_turn", Parameter.POSITIONAL_OR_KEYWORD), *fixtures])
        each = {False: ("cases", ()), True: ("swept cases", pytest.mark.sweep)}
        few = [pytest.param(group, id=each[swept][0], marks=each[swept][1]) for swept, group in groups.items()]
        return pytest.mark.parametrize("in_turn", few)(together)

    return decorate
