"""Working memory as named tensors: what is alive together, each tensor with its bytes.

A formula of working memory returns Peaks. Run on numbers it yields bytes; run on the symbols of `calc.model.derivation`
the same function yields the formulas, so that what is shown cannot drift from what is computed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from calc.errors import Message
from calc.model.derivation import Step, Symbols


@dataclass(frozen=True, slots=True)
class Peak:
    """A possible peak of a pass: the tensors alive there, by name, in bytes (or as formulas)."""

    what: Message
    tensors: Mapping[str, Any]

    @property
    def bytes(self) -> Any:
        """Bytes of all of them; a formula where they are formulas."""
        return sum(self.tensors.values())


def largest(peaks: Iterable[Peak]) -> Peak:
    """The peak that decides: what one point of a pass needs is free again at the next."""
    first, *others = peaks
    return max((first, *others), key=lambda peak: int(peak.bytes)) if others else first


def steps(symbols: Symbols, numbers: Peak, formulas: Peak) -> list[Step]:
    """One line a tensor: its name, formula, values and bytes. Both peaks come from the same function."""
    lines = []
    for name, size in numbers.tensors.items():
        formula, values = symbols.written(formulas.tensors[name])
        lines.append(Step(what=name, formula=formula, values=values, result=size, unit="bytes"))
    return lines
