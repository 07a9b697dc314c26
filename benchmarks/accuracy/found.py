"""What a record comes to: a figure of ours beside it, or why there is none."""

from calc.errors import Frozen


class Comparison(Frozen):
    """One figure of one record."""

    kind: str
    name: str
    predicted: float
    measured: float
    unit: str
    source: str

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


class LeftOut(Frozen):
    """A record that a figure can't be compared with."""

    kind: str
    name: str
    reason: str


Found = Comparison | LeftOut
