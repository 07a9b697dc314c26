"""python -m benchmarks.oracle.flips RESULTS: every field of every class changed alone, and whether our count follows.

A class's default config, cut to four layers, has each number, flag, word, null and list changed alone, and with
--mixed N two to twelve of them at once, N times a family. Each is built on the meta device; the change of its count is
compared with ours, which reads the config three times: as it is stated, as the class states it whole, and as
`save_pretrained` writes it. What a class itself refuses is skipped; what we refuse and a class builds is listed apart,
and so is what a sentence of ours names as not counted. RESULTS gets a line for each family that is done, which a
second run does not repeat. --keep adds what is wrong to tests/data/flips.json. Exits with 1 where anything is wrong
that is no quirk of a class.

Needs transformers 5.23 and torch beside this project's own requirements.
"""

import argparse
import json
import random
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from transformers import AutoConfig, logging
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from benchmarks.oracle import oracle
from benchmarks.oracle.flip_values import QUIRKS, Config, Flip, changed, cut, flips_of, merged
from benchmarks.oracle.random_configs import random_config
from benchmarks.oracle.write_test_data import DATA, write
from calc import Architecture, ConfigError
from calc.families.family_table import FAMILIES, WRAPPED

ROWS = "flips.json"
SECONDS = 15
"""A class that is not built by then is taken to refuse: of an encoder without a patch some never end."""
DRAWS = 30
"""Small configs that are tried where a class can't build its own default."""
Status = Literal["refused", "named", "quirk", "wrong"]


class Counts(NamedTuple):
    """Parameters of the language model alone, and with its encoders; a tied one once."""

    text: int
    whole: int


class Unlike(NamedTuple):
    """A changed config that we count otherwise than its class, or refuse."""

    status: Status
    fields: str
    config: Config
    theirs: int
    ours: int | None
    sentence: str = ""


class Base(NamedTuple):
    """A config that others are compared with."""

    name: str
    config: Config
    theirs: Counts
    ours: Counts
    sentences: frozenset[str]


def theirs(config: Config) -> Counts:
    """Of the class on the meta device."""
    model, model_type = oracle.built(config), config["model_type"]
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    text = sum(size for name, size in sizes.items() if oracle.is_language(name, model_type))
    return Counts(text, sum(sizes.values()))


def ours(architecture: Architecture) -> Counts:
    """Of our list, without multi-token prediction, which the classes leave out."""
    parameters = architecture.parameters()
    return Counts(parameters.total, parameters.total + parameters.not_in_total["vision"])


def default_of(config: Config) -> Config | None:
    """A config with all its class's defaults; None where the class refuses it."""
    try:
        whole: Config = AutoConfig.for_model(**config).to_dict()
    except Exception:  # the class's, of any kind
        return None
    return whole


def bases(name: str) -> Iterator[Config]:
    """A class's default config at four layers, of every kind if it can be; then small ones."""
    is_wrapper = name in WRAPPED
    empty = {"model_type": name} if is_wrapper else oracle.alone({"model_type": name})
    if (whole := default_of(empty)) is not None:
        for mixed in (True, False):
            yield cut(whole, mixed=mixed)
            yield merged(empty, cut(whole, mixed=mixed))
        yield empty
    text, chance = WRAPPED.get(name, name), random.Random(name)
    for _ in range(DRAWS if text in FAMILIES else 0):
        small = random_config(text, chance)
        wrapped = {"model_type": name, "text_config": small, **oracle.OUTER.get(name, {})}
        yield wrapped if is_wrapper else oracle.alone(small)


def base_of(name: str) -> Base:
    """The first that both build. Raises whatever the class raises of the last."""
    last: Exception | None = None
    for config in bases(name):
        try:
            architecture = Architecture.from_config(config)
            return Base(name, config, theirs(config), ours(architecture), sentences(architecture))
        except Exception as error:  # the class's, of any kind
            last = error
    assert last is not None
    raise last


def forms(config: Config) -> list[Config]:
    """The config as stated, as its class states it whole, and as it would be saved."""
    settings = AutoConfig.for_model(**config)
    return [config, json.loads(settings.to_json_string(use_diff=False)), json.loads(settings.to_json_string())]


def compare(base: Base, flips: list[Flip]) -> list[Unlike] | None:
    """The first form of a changed config that we count otherwise; None where the class itself refuses it."""
    config = changed(base.config, flips)
    signal.alarm(SECONDS)
    try:
        b, written = theirs(config), forms(config)
    except Exception:  # the class's, of any kind
        return None
    finally:
        signal.alarm(0)
    fields = " ".join(sorted({".".join(path) for path, _ in flips}))
    for form in written:
        try:
            architecture = Architecture.from_config(form)
        except ConfigError as error:
            return [Unlike("refused", fields, form, b.text, None, str(error))]
        a, status = ours(architecture), status_of(base, architecture, flips)
        if a.text - base.ours.text != b.text - base.theirs.text:
            return [Unlike(status, fields, form, b.text, a.text)]
        has_encoder = base.ours.whole != base.ours.text
        if has_encoder and a.whole - base.ours.whole != b.whole - base.theirs.whole:
            return [Unlike(status, fields, form, b.whole, a.whole)]
    return []


def status_of(base: Base, architecture: Architecture, flips: list[Flip]) -> Status:
    """What a difference would be: of a field that a sentence says is not counted, of a quirk, or wrong."""
    fields, inner = {path[-1] for path, _ in flips}, WRAPPED.get(base.name, base.name)
    if any(field in sentence for sentence in sentences(architecture) - base.sentences for field in fields):
        return "named"
    families = (base.name, inner, WRAPPED.get(inner, inner))
    return "quirk" if any(fields & QUIRKS.get(family, {}).keys() for family in families) else "wrong"


def sentences(architecture: Architecture) -> frozenset[str]:
    """What is assumed."""
    return frozenset(map(str, architecture.assumptions))


def family(name: str, mixed: int, seed: int) -> dict[str, Any]:
    """All flips of a family."""
    base, chance = base_of(name), random.Random(f"{name} {seed}")
    right: dict[tuple[str, ...], list[Flip]] = {}
    unlike: list[Unlike] = []
    if base.theirs.text != base.ours.text:
        unlike.append(Unlike("wrong", "(default)", base.config, base.theirs.text, base.ours.text))
    tried = skipped = 0
    for flips in draws(base, right, mixed, chance):
        found = compare(base, flips)
        skipped += found is None
        tried += found is not None
        unlike.extend(found or ())
        if found == [] and len(flips) == 1:
            right.setdefault(flips[0][0], []).append(flips[0])
    return {"family": name, "tried": tried, "skipped": skipped, "unlike": [row._asdict() for row in unlike]}


def draws(
    base: Base, right: Mapping[tuple[str, ...], list[Flip]], mixed: int, chance: random.Random
) -> Iterator[list[Flip]]:
    """Each field alone, then several of those that were right alone, which the caller gathers by path."""
    for flip in flips_of(AutoConfig.for_model(**base.config).to_dict()):
        yield [flip]
    for _ in range(mixed if right else 0):
        paths = chance.sample(sorted(right), min(len(right), chance.randint(2, 12)))
        yield [chance.choice(right[path]) for path in paths]


def names() -> list[str]:
    """Families and wrappers that transformers has a class for."""
    return [name for name in [*FAMILIES, *WRAPPED] if name in CONFIG_MAPPING]


def run(a: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of all families, those from the file first."""
    path = Path(a.results)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    done = {row["family"] for row in rows}
    for name in a.family or names():
        if name in done:
            continue
        try:
            row = family(name, a.mixed, a.seed)
        except Exception as error:  # a class that can't be built here
            why = f"{type(error).__name__}: {str(error).strip()[:120]}"
            row = {"family": name, "tried": 0, "skipped": 0, "unlike": [], "error": why}
        rows.append(row)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return [row for row in rows if not a.family or row["family"] in a.family]


def show(rows: list[dict[str, Any]]) -> int:
    """Prints the table. The number of wrong counts."""
    for row in rows:
        if "error" in row:
            print(f"{row['family']}: no config that both read; {row['error']}")
    total = Counter[str]()
    for status in ("refused", "named", "quirk", "wrong"):
        kinds: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            for unlike in row["unlike"]:
                if unlike["status"] == status:
                    fields = unlike["fields"] if unlike["fields"].count(" ") < 2 else "several"
                    kinds.setdefault(f"{row['family']:28} {fields}", []).append(unlike)
        total[status] = sum(map(len, kinds.values()))
        print(f"--- {status}: {total[status]:,}")
        for kind, (first, *more) in sorted(kinds.items()):
            said = first["sentence"] or f"theirs {first['theirs']:,}, ours {first['ours']:,}"
            print(f"{kind}{f' and {len(more)} more' if more else ''}: {said[:140]}")
    tried, skipped = (sum(row[part] for row in rows) for part in ("tried", "skipped"))
    print(f"{len(rows)} classes, {tried:,} changed configs, {skipped:,} more that a class refuses; {dict(total)}")
    return total["wrong"]


def keep(rows: list[dict[str, Any]]) -> None:
    """Adds what is wrong to the test data, one config of each family and field: with the class's count of the language
    model, and, once a sentence refuses the config, the field that it names."""
    path = DATA / ROWS
    kept = {row["id"]: row["config"] for row in json.loads(path.read_text(encoding="utf-8"))} if path.exists() else {}
    for row in rows:
        for unlike in row["unlike"]:
            if unlike["status"] == "wrong":
                kept[f"{row['family']} {unlike['fields']}"] = unlike["config"]
    write(
        ROWS,
        [{"id": name, "config": config, "total": theirs(config).text} | named(config) for name, config in kept.items()],
    )


def named(config: Config) -> dict[str, str | None]:
    """The field that a refusal names; nothing where the config is read."""
    try:
        Architecture.from_config(config)
    except ConfigError as error:
        return {"refused": error.field}
    return {}


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description="Every field of every class changed alone, and several at once.")
    p.add_argument("results", metavar="RESULTS", help="a file of JSON lines, one for each family")
    p.add_argument("--family", action="append", choices=names(), help="only these")
    p.add_argument("--mixed", type=int, default=0, metavar="N", help="configs a family with several fields changed")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--keep", action="store_true", help=f"add what is wrong to tests/data/{ROWS}")
    return p.parse_args()


def give_up(*_: object) -> None:
    """Raises in the class that takes too long."""
    raise TimeoutError


def main() -> int:
    warnings.simplefilter("ignore")
    logging.set_verbosity(logging.CRITICAL)
    signal.signal(signal.SIGALRM, give_up)
    a = arguments()
    rows = run(a)
    if a.keep:
        keep(rows)
    return 1 if show(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
