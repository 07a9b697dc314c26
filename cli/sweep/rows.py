"""The rows of a sweep: what the report's JSON says of one GPU, each figure under its path."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from calc import Architecture, ConfigError, Report, Workload
from calc.formats import native
from calc.hardware import GPU, find_gpu
from calc.options import made
from calc.serving import KVBudget, Serving, Verdict, laid_out_report
from calc.serving.engines import ENGINES
from cli.sweep.grid import Part
from presets import started

if TYPE_CHECKING:
    import pyarrow

PARTS = ("model", "parameters", "kv_cache", "checkpoint", "scenario")
"""Parts of a report in a row, next to the verdict of a GPU and the cache that is set aside on it."""
REFUSED = "does not run"
Row = dict[str, Any]
Schema = Mapping[str, Any]


def table(part: Part) -> "pyarrow.Table":
    """The rows of a part: workload after workload, GPU after GPU. Arrow reads them as JSON: before it takes a list of
    Python's it loads pandas."""
    import pyarrow.json

    kinds = {"integer": pyarrow.int64(), "number": pyarrow.float64(), "boolean": pyarrow.bool_()}
    kinds |= {"string": pyarrow.string(), "object": pyarrow.string(), "array": pyarrow.list_(pyarrow.string())}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in columns().items()])
    lines = "\n".join(json.dumps(row) for row in rows(part)).encode()
    whole = pyarrow.json.ReadOptions(use_threads=False, block_size=len(lines))
    by_schema = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    return pyarrow.json.read_json(pyarrow.BufferReader(lines), whole, by_schema)


def rows(part: Part) -> Iterator[Row]:
    """Weights are laid out once for all rows; a question that calc refuses is a row with its sentence."""
    gpus = [find_gpu(text) for text in part.gpus]
    try:
        ask = question(part)
    except ConfigError as error:
        for workload in part.workloads:
            yield from (refusal(part, workload, gpu, error) for gpu in gpus)
        return
    groups = [gpus] if part.layout.num_gpus is None else [[gpu] for gpu in gpus]  # each kind has a best layout
    weighed: dict[Workload, list[Row]] = {}
    for workload in sorted(part.workloads, key=attrgetter("batch")):  # what depends on the batch alone is known then
        weighed[workload] = []
        for group in groups:
            try:
                weighed[workload] += flattened(ask(workload, group))
            except ConfigError as error:
                weighed[workload] += (refusal(part, workload, gpu, error) for gpu in group)
    for workload in part.workloads:
        yield from weighed[workload]


def question(part: Part) -> Callable[[Workload, list[GPU]], Report]:
    """The report on a workload and some GPUs. Raises ConfigError where there is none, whatever these are."""
    architecture = Architecture.from_config(part.config)
    engine = started(part.engine, made(ENGINES[part.engine].options_type, part.options))
    precision = engine.precision(native(part.config), part.weights, part.kv)
    known: list[Serving] = []

    def ask(workload: Workload, gpus: list[GPU]) -> Report:
        serving, report = laid_out_report(
            part.config,
            architecture=architecture,
            model=part.model,
            workload=workload,
            engine=engine,
            precision=precision,
            layout=part.layout.stated,
            num_gpus=part.layout.num_gpus,
            gpus=gpus,
            serving=known[0] if known else None,
        )
        known[:] = [serving]
        return report

    return ask


def flattened(report: Report) -> Iterator[Row]:
    """A row for each verdict of a report."""
    values = report.model_dump(mode="json", include={*PARTS, "verdicts", "kv_budget"})
    budgets = {budget["gpu"]: budget for budget in values.pop("kv_budget")}
    verdicts = values.pop("verdicts")
    common = dict(leaves(values))
    for verdict in verdicts:
        budget = budgets.get(verdict["gpu"], {})
        yield common | dict(leaves(verdict)) | dict(leaves({"kv_budget": budget}))


def refusal(part: Part, workload: Workload, gpu: GPU, error: ConfigError) -> Row:
    """A row with what was asked and the sentence that answers it."""
    layout = part.layout.stated
    scenario = {
        "workload": workload.model_dump(),
        "engine": part.engine,
        "options": part.options,
        "precision": {"weights": part.weights, "kv": part.kv},
        "layout": {} if layout is None else layout.model_dump(),
    }
    number = part.layout.num_gpus if layout is None else layout.gpus
    row = {"model": part.model, "gpu": gpu.id, "gpus": number, "verdict": REFUSED, "reason": str(error.message)}
    return row | dict(leaves({"scenario": scenario}))


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of each column; an object whose keys are open is JSON."""
    for name, value in values.items():
        here, kind = f"{path}{name}", columns().get(f"{path}{name}")
        if kind == "object":
            yield here, json.dumps(value, ensure_ascii=False)
        elif kind is not None:
            yield here, value
        elif isinstance(value, Mapping):
            yield from leaves(value, f"{here}.")


@cache
def columns() -> Mapping[str, str]:
    """The kind of JSON value of each column, from the schemas of the report, a verdict and a cache budget."""
    report = Report.model_json_schema(mode="serialization")
    kinds = {"model": "string"} | dict(typed(Verdict.model_json_schema(mode="serialization")))
    for name in PARTS:
        kinds |= dict(typed(report["properties"][name], report["$defs"], name))
    kinds |= dict(typed(KVBudget.model_json_schema(mode="serialization"), {}, "kv_budget"))
    left_out = "scenario.overhead."  # is always the default
    return MappingProxyType({name: kind for name, kind in kinds.items() if not name.startswith(left_out)})


def typed(schema: Schema, known: Schema | None = None, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and kind of each leaf of a JSON schema; `known` are the schemas that it refers to."""
    known = schema.get("$defs", {}) if known is None else known
    if "anyOf" in schema:
        schema = next(choice for choice in schema["anyOf"] if choice.get("type") != "null")
    if "$ref" in schema:
        schema = known[schema["$ref"].rpartition("/")[2]]
    inner = dict(schema.get("properties", {}))
    inner |= dict.fromkeys(schema.get("propertyNames", {}).get("enum", ()), schema.get("additionalProperties"))
    if not inner:
        yield path, schema["type"]
    for name, value in inner.items():
        yield from typed(value, known, f"{path}.{name}" if path else name)
