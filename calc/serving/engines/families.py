"""Families with which an engine has rules of its own, by engine and rule: `families.toml`, which says what each is."""

import tomllib
from pathlib import Path

TABLE = tomllib.loads(Path(__file__).with_name("families.toml").read_text(encoding="utf-8"))


def families(engine: str, rule: str) -> frozenset[str]:
    """Families, by model_type, for which a rule of an engine holds."""
    return frozenset(TABLE[engine][rule].split())


def versions(engine: str, rule: str) -> dict[str, tuple[int, ...] | None]:
    """Version from or up to which a rule of an engine holds for each family; None: there is none."""
    return {
        family: None if version == "never" else tuple(map(int, version.split(".")))
        for version, names in TABLE[engine][rule].items()
        for family in names.split()
    }
