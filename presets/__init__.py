"""Models and hardware: one file a model, one row a GPU."""

from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from calc.errors import Frozen
from calc.formats import native_weights
from calc.hardware.gpus import gpus as gpus  # so that a page asks one place for models and GPUs
from calc.model.architecture import Architecture
from calc.serving.engines import ENGINES
from calc.serving.engines.engine import Engine
from presets.published import Part as Part
from presets.published import Published as Published
from presets.published import parts

HERE = Path(__file__).parent


class Release(Frozen):
    """Month in which the weights came out, and who says so: the maker, or whoever wrote of it.

    Where `source` is the model's own page on the Hub, `month` is that in which the page was made, as llmfit 1.1.17
    (PyPI, October 2026) lists it; where it is a page of the documentation of transformers, that of the paper, which
    came with the weights.
    """

    month: Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]
    source: Annotated[str, Field(pattern=r"^https://\S+$")]


class Preset(Frozen):
    """A model: the fields of its config.json that decide a size, and where they are from."""

    id: str
    name: str
    config: Mapping[str, Any]
    source: str
    released: Release | None = None
    """None where nobody was found who states it, and for the hand-made studies."""
    published: Published | None = None
    """None where nobody states a total: the hand-made studies."""

    @model_validator(mode="after")
    def _has_the_quantization_of_its_checkpoint(self) -> Self:
        """A preset that was saved without it would weigh too much, and nothing would say so."""
        if self.published is not None and native_weights(self.config) != self.published.format:
            raise ValueError(
                f"{self.id} is published in {self.published.format}; its config says {native_weights(self.config)}: "
                "add the quantization_config of its checkpoint."
            )
        return self

    @property
    def month(self) -> str:
        """Month of its release, 2024-09; empty where nobody states it."""
        return self.released.month if self.released else ""

    def auxiliary_parts(self) -> dict[Part, int]:
        """Parts of the published total that ours leaves out, with their elements."""
        return {} if self.published is None else parts(self.config, self.published)


@cache
def models() -> Mapping[str, Preset]:
    """All presets by id, in alphabetical order."""
    files = sorted((HERE / "models").glob("*.json"), key=lambda file: file.name.lower())
    presets = (Preset.model_validate_json(file.read_bytes()) for file in files)
    return MappingProxyType({preset.id: preset for preset in presets})


def preset_id(text: str) -> str:
    """The id of the preset that a text names in upper or lower case, as the Hub's addresses do too; else the text."""
    return next((known for known in models() if known.casefold() == text.casefold()), text)


def named_preset(named: str) -> str | None:
    """The id of the preset that a log names by its id, or by a folder that is called as its checkpoint and no other;
    None where there is none."""
    if (known := preset_id(named)) in models():
        return known
    folder = named.rstrip("/").rpartition("/")[2].casefold()
    published = (name for name, preset in models().items() if preset.published is not None)
    alike = [name for name in published if name.rpartition("/")[2].casefold() == folder]
    return alike[0] if len(alike) == 1 else None


@lru_cache(maxsize=64)
def architecture_of(name: str) -> Architecture:
    """The model of a preset."""
    return Architecture.from_config(models()[name].config)


def started(engine: str, options: Frozen) -> Engine:
    """An engine with its flags, and the draft model that they name."""
    kind = ENGINES[engine]
    name = None if kind.draft_option is None else getattr(options, kind.draft_option)
    return kind(options, architecture_of(name) if name in models() else None)
