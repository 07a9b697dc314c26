"""The grid of a sweep: a TOML file becomes parts, each of a model under one engine, format and layout."""

import tomllib
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo

from calc import ConfigError, Layout, Workload
from calc.errors import Frozen, Message, shown
from calc.formats import CACHE_FORMATS, WEIGHT_FORMATS, CacheFormat, WeightFormat
from calc.hardware import find_gpu
from calc.hardware.gpus import gpus, usual_gpus
from calc.options import OneOf, Option, made, options
from calc.serving.engines import DEFAULT_ENGINE, ENGINES
from calc.text import check_length
from cli.command import load
from cli.options import bad_question, unreadable
from presets import models, preset_id

PART_ROWS = 1024
"""Rows of a part, about: what is lost where a sweep is cut."""
LONGEST_NAME = 40
"""Signs of a name that is written out."""
ALL = "all"
AS_CHECKPOINT = "auto"
EXAMPLES = {"layouts": "{ tp = 2 }", "options": "{ vllm = { max_num_seqs = 64 } }"}
"""Examples of tables."""


def listed(every: tuple[str, ...] = ()) -> BeforeValidator:
    """Takes a single value for a list, the word "all" for `every`, and what is named twice once."""

    def read(value: Any) -> Any:
        values = list(every) if every and value == ALL else value if isinstance(value, list) else [value]
        return [each for place, each in enumerate(values) if each not in values[:place]]

    return BeforeValidator(read)


def known_gpu(text: str) -> str:
    """The text. Raises ConfigError where it names no GPU."""
    find_gpu(text)
    return text


class GridLayout(Layout):
    """Degrees of parallelism, or a number of GPUs, over which the layout that does best is taken."""

    num_gpus: int | None = Field(default=None, ge=1, le=1024)

    @property
    def stated(self) -> Layout | None:
        """None where the best one is taken."""
        degrees = {name: getattr(self, name) for name in self.model_fields_set - {"num_gpus"}}
        return None if self.num_gpus is not None and not degrees else Layout(**degrees)


Gpus = Annotated[
    list[Annotated[str, Field(examples=["h100-sxm"]), AfterValidator(known_gpu)]],
    listed(tuple(gpus())),
    Field(min_length=1),
]
Formats = Annotated[list[Annotated[str, OneOf((AS_CHECKPOINT, *WEIGHT_FORMATS))]], listed(), Field(min_length=1)]
Caches = Annotated[list[Annotated[str, OneOf((AS_CHECKPOINT, *CACHE_FORMATS))]], listed(), Field(min_length=1)]
Engines = Annotated[list[Annotated[str, OneOf(ENGINES)]], listed(tuple(ENGINES)), Field(min_length=1)]
Numbers = Annotated[list[int], listed(), Field(min_length=1)]


class Grid(Frozen):
    """The grid of a sweep: every combination of its values."""

    models: Annotated[
        list[Annotated[str, Field(examples=["Qwen/Qwen3-8B"])]], listed(tuple(models())), Field(min_length=1)
    ]
    gpus: Gpus = Field(default_factory=lambda: [gpu.id for gpu in usual_gpus()])
    engines: Engines = [DEFAULT_ENGINE]
    weights: Formats = [AS_CHECKPOINT]
    kv: Caches = [AS_CHECKPOINT]
    layouts: Annotated[list[GridLayout], listed(), Field(min_length=1)] = [GridLayout()]
    context: Numbers = [Workload.model_fields["context"].default]
    batch: Numbers = [Workload.model_fields["batch"].default]
    generated: Numbers = [Workload.model_fields["generated"].default]
    options: dict[str, dict[str, Any]] = {}
    """Flags by engine."""


class Part(Frozen):
    """Workloads x GPUs of one model under one engine, format and layout; `gpus` are ids, or texts of custom ones."""

    number: int
    model: str
    config: Mapping[str, Any]
    engine: str
    options: Mapping[str, Any]
    weights: WeightFormat | None  # None: as the checkpoint
    kv: CacheFormat | None
    layout: GridLayout
    workloads: tuple[Workload, ...]
    gpus: tuple[str, ...]

    @property
    def rows(self) -> int:
        return len(self.workloads) * len(self.gpus)


MOST_CHARACTERS = 1_000_000
"""Length of a grid with tens of thousands of names."""


def read_grid(path: str) -> list[Part]:
    """The parts of a grid, in its order. Raises ConfigError, which says where."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
        check_length(text, MOST_CHARACTERS)
        values = tomllib.loads(text)
    except ConfigError:
        raise
    except OSError as error:
        raise unreadable(path, error) from None
    except RecursionError:
        raise bad_question("The file {name} nests lists too deep.", name=shown(path)) from None
    except ValueError as error:  # TOML's own, which says the line; or bytes that are not UTF-8
        raise bad_question("The file {name} is not TOML: {why}.", name=shown(path), why=str(error)) from None
    try:
        return parts(Grid.model_validate(values))
    except ValidationError as error:
        first = error.errors()[0]
    raise misplaced(first["loc"], reason(first))


def reason(error: Any) -> Message:
    """Reason why a value is refused, of pydantic's error."""
    path, cause = error["loc"], error.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return cause.message
    if error["type"] in ("missing", "too_short"):
        return Message("It has to be there.")
    if error["type"] == "extra_forbidden":
        fields = GridLayout.model_fields if path[0] == "layouts" else Grid.model_fields
        return Message("No such field; there are {names}.", names=", ".join(fields))
    return Message("{value} can't be taken: {expected}.", value=shown(error["input"]), expected=expected(path))


def expected(path: tuple[int | str, ...]) -> Message:
    """Valid values at a place of the grid, as a sentence without a full stop."""
    field, last = str(path[0]), str(path[-1])
    if field == "layouts" and last in GridLayout.model_fields:
        return options(GridLayout)[last].expected
    if field in Workload.model_fields:
        return options(Workload)[field].expected
    if field in EXAMPLES:
        return Message("{name} is a table such as {example}", name=field, example=EXAMPLES[field])
    (entry,) = get_args(Grid.model_fields[field].annotation)
    return Option(field, FieldInfo.from_annotation(entry)).expected


def misplaced(path: tuple[int | str, ...], why: Message) -> ConfigError:
    """The error of a value of the grid, by its path: models, 2 is the second entry of models."""
    place = ", ".join(str(step + 1 if isinstance(step, int) else known_or_shown(step)) for step in path)
    return bad_question("In the grid, {place}: {why}", place, place=place, why=why)


def known_or_shown(name: str) -> str | Message:
    """Name of a field as it is written; one that may be anything is cut short."""
    return name if name.isprintable() and len(name) <= LONGEST_NAME else shown(name)


def parts(grid: Grid) -> list[Part]:
    """Raises ConfigError."""
    by_engine = {name: flags(name, given) for name, given in grid.options.items()}
    axes = product(configs(grid.models), grid.engines, grid.weights, grid.kv, grid.layouts, slices(grid))
    return [
        Part(
            number=number,
            model=model,
            config=config,
            engine=engine,
            options=by_engine.get(engine, {}),
            weights=None if weights == AS_CHECKPOINT else weights,
            kv=None if kv == AS_CHECKPOINT else kv,
            layout=layout,
            workloads=workloads,
            gpus=tuple(grid.gpus),
        )
        for number, ((model, config), engine, weights, kv, layout, workloads) in enumerate(axes)
    ]


def configs(names: list[str]) -> list[tuple[str, Mapping[str, Any]]]:
    """Each model and its config, read once."""
    read = {}
    for place, name in enumerate(names):
        try:
            read[preset_id(name)] = load(preset_id(name))
        except ConfigError as error:
            raise misplaced(("models", place), error.message) from None
    return [*read.items()]


def flags(engine: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Flags that an engine takes."""
    if engine not in ENGINES:
        raise misplaced(("options", engine), Message("No such engine; there are {names}.", names=", ".join(ENGINES)))
    try:
        made(ENGINES[engine].options_type, given)
    except ConfigError as error:
        raise misplaced(("options", engine), error.message) from None
    return given


def slices(grid: Grid) -> list[tuple[Workload, ...]]:
    """Every workload, in as many pieces as keep a part short."""
    workloads = []
    for context, batch, generated in product(grid.context, grid.batch, grid.generated):
        try:
            workloads.append(made(Workload, {"context": context, "batch": batch, "generated": generated}))
        except ConfigError as error:
            raise misplaced((error.field or "context",), error.message) from None
    step = max(1, PART_ROWS // len(grid.gpus))
    return [tuple(workloads[start : start + step]) for start in range(0, len(workloads), step)]
