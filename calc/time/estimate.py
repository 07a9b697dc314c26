"""A figure with its range: what is likely, and from where to where most of what was measured lies."""

from collections.abc import Callable
from typing import Literal

from pydantic import Field, model_validator

from calc.errors import Frozen

End = Literal["fast", "expected", "slow"]
"""End of a range: everything goes well, as usual, or badly."""
ENDS: tuple[End, ...] = ("fast", "expected", "slow")


class Estimate(Frozen):
    """Low, expected and high, in the order of numbers."""

    low: float = Field(ge=0, allow_inf_nan=False)
    expected: float = Field(ge=0, allow_inf_nan=False)
    high: float = Field(ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _ordered(self) -> "Estimate":
        if not self.low <= self.expected <= self.high:
            raise ValueError(f"low, expected and high must rise, not {self.low:g}, {self.expected:g}, {self.high:g}")
        return self

    @classmethod
    def over(cls, figure: Callable[[End], float]) -> "Estimate":
        """A figure at both ends and between, in the order of numbers."""
        fast, expected, slow = (figure(end) for end in ENDS)
        return cls(low=min(fast, slow), expected=expected, high=max(fast, slow))

    def scaled(self, factor: float) -> "Estimate":
        """Estimate in another unit."""
        return Estimate(low=self.low * factor, expected=self.expected * factor, high=self.high * factor)

    def share(self, end: End) -> float:
        """The end of a share of what is possible: the high one is fast."""
        return self.expected if end == "expected" else self.high if end == "fast" else self.low

    def duration(self, end: End) -> float:
        """The end of a duration: the low one is fast."""
        return self.expected if end == "expected" else self.low if end == "fast" else self.high
