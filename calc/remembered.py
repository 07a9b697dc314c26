"""Methods that compute each answer once, for as long as their object lives."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Owner = TypeVar("Owner")
CallArguments = ParamSpec("CallArguments")
Returned = TypeVar("Returned")


def remembered(
    method: Callable[Concatenate[Owner, CallArguments], Returned],
) -> Callable[Concatenate[Owner, CallArguments], Returned]:
    """The method, whose answers its object remembers by the arguments. Where two threads compute one, both get that of
    the first."""
    name = f"answers of {method.__name__}"

    @wraps(method)
    def ask(self: Owner, /, *args: CallArguments.args, **kwargs: CallArguments.kwargs) -> Returned:
        question = (*args, *kwargs.items()) if kwargs else args
        known: dict[Any, Returned] = vars(self).get(name) or vars(self).setdefault(name, {})
        if question in known:
            return known[question]
        return known.setdefault(question, method(self, *args, **kwargs))

    return ask
