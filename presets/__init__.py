"""Where models and hardware come from: one file a model, one row a GPU."""

from functools import cache
from pathlib import Path
from typing import Any, Literal

from calc.errors import Frozen
from calc.hardware.gpus import gpus as gpus  # so that a page asks one place for models and GPUs

HERE = Path(__file__).parent


class Plus(Frozen):
    """What a checkpoint holds beside the unique parameters that we count."""

    what: str
    count: int


class Published(Frozen):
    """The total that others state for the checkpoint: ours, and what it holds beside."""

    total: int
    source: str
    plus: tuple[Plus, ...] = ()

    def difference(self, ours: int) -> int:
        """By how much it is more than ours with these parts."""
        return self.total - ours - sum(part.count for part in self.plus)


class Preset(Frozen):
    """A model: the fields of its config.json that decide a size, and where they are from."""

    id: str
    name: str
    config: dict[str, Any]
    source: str
    published: Published


@cache
def models() -> dict[str, Preset]:
    """All presets by id, in alphabetical order."""
    files = sorted((HERE / "models").glob("*.json"), key=lambda file: file.name.lower())
    presets = (Preset.model_validate_json(file.read_bytes()) for file in files)
    return {preset.id: preset for preset in presets}


class Compared(Frozen):
    """One figure of a public record beside ours."""

    kind: str
    name: str
    unit: Literal["bytes", "tokens"]
    predicted: int
    measured: int
    source: str

    @property
    def error(self) -> float:
        """Share of what was measured."""
        return self.predicted / self.measured - 1


class LeftOut(Frozen):
    """Records that can't be compared, and why."""

    kind: str
    reason: str
    count: int


class Accuracy(Frozen):
    """What `python -m benchmarks.accuracy` found."""

    rows: tuple[Compared, ...]
    left_out: tuple[LeftOut, ...]


@cache
def accuracy() -> Accuracy:
    """Our figures beside every public record."""
    return Accuracy.model_validate_json((HERE / "accuracy.json").read_bytes())
