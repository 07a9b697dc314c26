"""An engine with its flags: what all its parts read."""

from abc import ABC
from collections.abc import Iterable
from typing import Any, ClassVar, Self

from calc.errors import ConfigError, Frozen, Message
from calc.model.architecture import Architecture


class StartedEngine(ABC):
    """One serving engine, started with its options."""

    name: ClassVar[str]
    """Name in options, links and folders."""
    title: ClassVar[str]
    versions: ClassVar[str]
    """Versions that its rules were read in."""
    options_type: ClassVar[type[Frozen]]
    """Its flags, with limits, defaults and help."""
    splits_batch: ClassVar[bool] = True
    """Whether pipeline stages work on one part of the running sequences each, at the same time."""
    state_width: ClassVar[int | None] = None
    """Bytes of an element of a hidden state that a stage passes on; None: as wide as the activations."""
    draft_option: ClassVar[str | None] = None
    """The flag that names a draft model, which is then loaded too."""

    def __init__(self, options: Any = None, draft_model: Architecture | None = None) -> None:
        """`draft_model` is the one that the flags name."""
        self.options, self.draft_model = options or self.options_type(), draft_model

    @property
    def kernels(self) -> str:
        """The name under which its kernels are measured, with what of its build and options they depend on."""
        return self.name

    def with_options(self, **changes: object) -> Self:
        return type(self)(self.options_type.model_validate(self.options.model_dump() | changes), self.draft_model)


def check_effect(options: Frozen, missing: str, names: Iterable[str]) -> None:
    """Raise ConfigError for the first option that is set and has no effect while another is missing."""
    for name in names:
        if getattr(options, name) != type(options).model_fields[name].default:
            sentence = Message("{name} has no effect without {missing}.", name=name, missing=missing)
            raise ConfigError(sentence, missing)
