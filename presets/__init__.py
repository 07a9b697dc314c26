"""Where models and hardware come from: one file a model, one row a GPU."""

from functools import cache
from pathlib import Path
from typing import Any

from calc.errors import Frozen
from calc.hardware.gpus import gpus as gpus  # so that a page asks one place for models and GPUs
from presets.published import Part as Part
from presets.published import Published as Published
from presets.published import parts

HERE = Path(__file__).parent


class Preset(Frozen):
    """A model: the fields of its config.json that decide a size, and where they are from."""

    id: str
    name: str
    config: dict[str, Any]
    source: str
    published: Published | None = None
    """None where nobody states a total: the hand-made studies."""

    def beside(self) -> dict[Part, int]:
        """What the published total holds beside our own: each part and its elements."""
        return {} if self.published is None else parts(self.config, self.published)


@cache
def models() -> dict[str, Preset]:
    """All presets by id, in alphabetical order."""
    files = sorted((HERE / "models").glob("*.json"), key=lambda file: file.name.lower())
    presets = (Preset.model_validate_json(file.read_bytes()) for file in files)
    return {preset.id: preset for preset in presets}
