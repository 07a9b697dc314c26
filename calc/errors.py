from collections.abc import Sequence


class ConfigError(ValueError):
    """What is wrong with an input and what would be right, in a sentence for people.

    `field` is the config field or option at fault; `nearest` are valid values close to the one given.
    """

    def __init__(self, message: str, field: str | None = None, nearest: Sequence[int | str] = ()) -> None:
        super().__init__(message)
        self.field = field
        self.nearest = tuple(nearest)
