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
    """The method, whose answers its object remembers by the arguments; two threads may both compute one."""
    name = f"answers of {method.__qualname__}"  # a class below may have one of the same name

    @wraps(method)
    def ask(self: Owner, /, *args: CallArguments.args, **kwargs: CallArguments.kwargs) -> Returned:
        question = (*args, *kwargs.items()) if kwargs else args
        answers: dict[Any, Returned] | None = getattr(self, name, None)
        if answers is None:  # an attribute, for those of an object whose __dict__ is asked for are read more slowly
            object.__setattr__(self, name, answers := {})
        if question in answers:
            return answers[question]
        return answers.setdefault(question, method(self, *args, **kwargs))

    return ask
