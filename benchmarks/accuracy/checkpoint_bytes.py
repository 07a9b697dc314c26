"""python -m benchmarks.accuracy.checkpoint_bytes [CHECKPOINT_BYTES.json]: what stored checkpoints weigh, by scheme.

CHECKPOINT_BYTES.json has `configs` and `rows` (see `benchmarks.oracle.stored_checkpoints`); without it, the rows under
tests/data. Each is asked as a user would: a preset by its name, a config with the hf_quant_config.json beside it."""

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.oracle.stored_checkpoints import DATA, PARTS, spelled_out
from calc import ConfigError, Report, report
from calc.formats import with_hf_quant_config
from presets import models


class Weighed(NamedTuple):
    """A row of the truth and our report of it; or why there is none."""

    row: Mapping[str, Any]
    report: Report | None
    refusal: str = ""

    @property
    def name(self) -> str:
        return str(self.row.get("id") or self.row["preset"])

    @property
    def error(self) -> float | None:
        """Relative difference of the bytes of all parts; None where the checkpoint's are not known."""
        assert self.report is not None
        known = sum(self.row[part] for part in PARTS)
        return self.report.checkpoint.total / known - 1 if known else None

    @property
    def kv(self) -> str:
        """The format of the cache that nobody chose."""
        assert self.report is not None
        return self.report.scenario.precision.kv


def weigh(row: Mapping[str, Any]) -> Weighed:
    """Our report of a row."""
    try:
        return Weighed(row, report(config_of(row), gpus=[]))
    except ConfigError as error:
        return Weighed(row, None, str(error))


def config_of(row: Mapping[str, Any]) -> Mapping[str, Any]:
    if "preset" in row:
        return models()[row["preset"]].config
    config: dict[str, Any] = spelled_out(row["config"])
    beside = row.get("hf_quant_config")
    return config if beside is None else with_hf_quant_config(config, spelled_out(beside))


def sample() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))
    return rows


def whole(path: str) -> list[dict[str, Any]]:
    """Every row of the truth, 16-bit configs too."""
    truth = json.loads(Path(path).read_text(encoding="utf-8"))
    found = []
    for row in truth["rows"]:
        asked = {"preset": row["preset"]} if row["ask"] == "preset" else {**truth["configs"][row["config"]]}
        parts = {part: row.get("computed", {}).get(part, 0) for part in PARTS}
        found.append({**asked, **parts, "kind": row["kind"], "id": row["id"]})
    return found


def table(found: Sequence[Weighed]) -> str:
    """Rows by scheme: how many, how many within 0.5 %, and the worst."""
    by_kind: dict[str, list[Weighed]] = defaultdict(list)
    for one in found:
        by_kind[one.row.get("kind", "preset")].append(one)
    lines = [f"{'scheme':58}{'rows':>6}{'within 0.5 %':>14}{'worst':>10}"]
    for kind, ones in sorted(by_kind.items()):
        errors = [abs(one.error) for one in ones if one.report is not None and one.error is not None]
        within = sum(error <= 0.005 for error in errors)
        lines.append(f"{kind:58}{len(errors):>6}{within:>14}{max(errors, default=0):>10.4%}")
    lines += [f"refused: {one.name}: {one.refusal}" for one in found if one.report is None]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table([weigh(row) for row in (whole(sys.argv[1]) if sys.argv[1:] else sample())]))
