"""Requirements of a server: its load, the lengths of requests, and how long users may wait."""

from typing import Any, Literal

from pydantic import Field, model_validator

from calc.errors import Frozen
from calc.model.architecture import Architecture


class Needs(Frozen):
    """Requirements of a server."""

    users: int | None = Field(default=None, ge=1, le=2**24, description="Concurrent users, each with one request.")
    requests_per_s: float | None = Field(default=None, gt=0, le=1e6, description="Requests a second, if not users.")
    think_s: float = Field(default=0.0, ge=0, le=1e6, description="Seconds that a user thinks between two requests.")
    prompt: int = Field(default=2048, ge=1, le=2**30, description="Tokens of a prompt.")
    output: int = Field(default=512, ge=1, le=2**30, description="Tokens of an answer.")
    prefix_share: float = Field(default=0.0, ge=0, lt=1, description="Share of the prompt that is cached already.")
    ttft_ms: float | None = Field(default=None, gt=0, description="Longest time to first token (TTFT).")
    tpot_ms: float | None = Field(default=None, gt=0, description="Longest time per output token (TPOT).")
    prefill_decode: Literal["together", "apart", "either"] = Field(
        default="together",
        description="Prefill and decode: on the same GPUs, on separate ones, or whichever is better.",
    )

    @model_validator(mode="after")
    def _single_load(self) -> "Needs":
        if self.users is not None and self.requests_per_s is not None:
            raise ValueError("users and requests a second are two ways to say the same; give one of them")
        if self.think_s and self.users is None:
            raise ValueError("think_s is the time that users think: say how many there are")
        return self

    @property
    def at_once(self) -> int | None:
        """Requests that are answered at once, where users are what is known who always wait for one; of one user where
        nothing is."""
        return None if self.by_chance else self.users or 1

    @property
    def by_chance(self) -> bool:
        """Whether requests come at random: a stream of them, or from users who think."""
        return self.requests_per_s is not None or self.think_s > 0

    def arriving(self, answer_s: Any) -> Any:
        """Requests a second that come by chance, where an answer takes so many seconds."""
        return (self.users or 1) / (self.think_s + answer_s) if self.requests_per_s is None else self.requests_per_s

    @property
    def cached(self) -> int:
        """Tokens of a prompt that are cached already."""
        return min(self.prompt - 1, int(self.prompt * self.prefix_share))

    @property
    def context(self) -> int:
        return self.prompt + self.output

    def placed(self, architecture: Architecture) -> "Needs":
        """These with a prompt, or an answer, that nobody asked for as long as the model's learned positions allow."""
        most = architecture.learned_positions
        if most is None or self.context <= most:
            return self
        for name, other in (("prompt", self.output), ("output", self.prompt)):
            if getattr(self, name) == type(self).model_fields[name].default and other < most:
                return self.model_copy(update={name: most - other})
        return self
