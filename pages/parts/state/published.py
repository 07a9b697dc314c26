"""The model on screen as it was published: read once from a preset, the Hub or the reader's own config, and kept for
the session. The reader's Hub token is kept there too, and nowhere else."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from calc import Architecture, ConfigError
from calc.errors import Message, Outside
from calc.families import ASSUMED, as_llama, knows, read_with_settings
from calc.formats import Native, native
from calc.text import written
from calc.verify import Checkpoint
from pages.parts.limits import LOOKED_UP
from pages.parts.state.scenario import Source
from pages.parts.state.session import address, remembered, state
from presets import Preset, hub, models
from presets.hub import HubModel

MOST, MOST_CHARACTERS, MOST_TENSORS = 8, 4_000_000, 500_000
"""Models that a session keeps, characters of their configs and tensors of their tables: the last one stays whatever its
length."""
IN_16_BITS = Native("bf16")


@dataclass(frozen=True)
class Published:
    """A model as published. `error` says why it can't be read, at the Hub or by its family."""

    name: str | Message
    config: Mapping[str, Any] | None = None
    architecture: Architecture | None = None
    settings: Mapping[str, Any] | None = None
    """The config fields that decide a size, with their values."""
    stored: Native = IN_16_BITS
    """Storage format of its checkpoint."""
    error: ConfigError | None = None
    preset: Preset | None = None
    hub: HubModel | None = None

    @property
    def unread(self) -> ConfigError | None:
        """Why the Hub gave no config."""
        return self.error if self.config is None else None

    @property
    def is_known(self) -> bool:
        """Whether its family is known."""
        return self.config is not None and knows(self.config)


def published(source: Source) -> Published:
    """The model of a source, read once a session, and a preset once a process."""
    if is_preset(source):
        return of_preset(source.model, source.assume)
    key = (
        source.model,
        source.revision,
        source.file,
        source.assume,
        None if source.pasted is None else written(source.pasted),
    )

    def read() -> Published:
        return of_hub(source) if source.pasted is None else own(source.pasted)

    def is_full(models: Collection[Published]) -> bool:
        return len(models) > MOST or sum(map(characters, models)) > MOST_CHARACTERS

    return remembered("published", key, read, is_full)


def is_preset(source: Source) -> bool:
    """Whether the source is a preset as it is stored here."""
    return source.pasted is None and source.revision is None and source.model in models()


def characters(model: Published) -> int:
    """Length of a model's config, written as JSON."""
    return len(written(model.config or {}))


@lru_cache(maxsize=512)
def of_preset(name: str, assume: str | None) -> Published:
    preset = models()[name]
    return opened(Published(preset.name, preset=preset), preset.config, assume)


def own(config: Mapping[str, Any]) -> Published:
    assumed, family = config.get(ASSUMED), Outside(str(config.get("model_type", ""))[:40])
    name = Message("Pasted config ({family})", family=family) if family else Message("Pasted config")
    if assumed:
        name = Message("Pasted config ({family}, assumed for {unknown})", family=family, unknown=Outside(assumed))
    return opened(Published(name), config, None)


def of_hub(source: Source) -> Published:
    name: str | Message = source.model
    if source.revision:
        name = Message("{model} at {revision}", model=source.model, revision=Outside(source.revision))
    try:
        count_look_up()
        model = hub.fetch(source.model, source.revision, token(), source.file)
    except ConfigError as problem:
        return Published(name, error=problem)
    return opened(Published(name, hub=model), model.config, source.assume)


def opened(about: Published, config: Mapping[str, Any], assume: str | None) -> Published:
    """Model with what its config says."""
    config = dict(config) if assume is None else as_llama(config)
    about = replace(about, config=config)
    try:
        about = replace(about, stored=native(config))
        architecture, settings = read_with_settings(config)
    except ConfigError as problem:
        return replace(about, error=problem)
    return replace(about, architecture=architecture, settings=settings)


def forget() -> None:
    """Ask the Hub again; for callbacks."""
    state().pop("published", None)


def checkpoint(source: Source, hub_model: HubModel | None) -> Checkpoint:
    """The tensor table of a model of the Hub, asked for once a session. Raises ConfigError."""

    def look_up() -> Checkpoint:
        count_look_up()
        model = hub_model or hub.fetch(source.model, source.revision, token(), source.file)
        return hub.checkpoint(model, token(), source.file)

    def is_full(tables: Collection[Checkpoint]) -> bool:
        return len(tables) > MOST or sum(len(table.tensors) for table in tables) > MOST_TENSORS

    return remembered("hub_tables", (source.model, source.revision, source.file), look_up, is_full)


def count_look_up() -> None:
    """Raise ConfigError where this address asked the Hub too often."""
    if not LOOKED_UP.allows(address()):
        raise ConfigError(
            Message(
                "{most} models a minute are the most that this server looks up at the Hub for one address. Wait a "
                "minute, or give the config.json.",
                most=LOOKED_UP.most,
            ),
            "model",
        )


def token() -> str | None:
    """The reader's Hub token: in this session only."""
    return state().get("hub_token") or None
