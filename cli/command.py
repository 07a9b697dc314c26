"""python -m calc MODEL: a Report on the command line."""

import argparse
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TextIO

from calc import Architecture, Layout, Report, TrainingReport, Workload
from calc.errors import shown
from calc.families import as_llama, knows, override
from calc.formats import CACHE_FORMATS, HF_QUANT_CONFIG, WEIGHT_FORMATS, native, with_hf_quant_config
from calc.hardware import GPU, find_gpu, usual_gpus
from calc.serving import Serving, laid_out_report
from calc.serving.engines import DEFAULT_ENGINE, ENGINES
from calc.serving.engines.engine import Engine
from calc.serving.engines.launch import LOCAL
from calc.text import MAX_CHARACTERS, parse_config, parse_value
from calc.time import StepComparison, compared_steps
from calc.time.report import time_report
from calc.time.step_report import step_time_of
from calc.training import CombinedLever
from cli.options import (
    Parser,
    add_cluster,
    add_fields,
    as_json,
    bad_question,
    filled,
    flag,
    of_model,
    stated_cluster,
    unreadable,
)
from cli.tables import Times, steps_table, table, times_table, training_table
from cli.training import add_other_steps, add_training_options, check_options, run_training, spread, steps_of
from presets import models
from presets.hub import CONFIG, HubError, fetch, is_id

ALIASES = {
    "context": ("--max-model-len",),
    "tp": ("--tensor-parallel-size",),
    "pp": ("--pipeline-parallel-size",),
    "dp": ("--data-parallel-size",),
    "dcp": ("--decode-context-parallel-size",),
    "version": ("--engine-version",),
}
"""Other words for the same option: engines' own."""
ENGINE_ALIASES = {name: words for name, words in ALIASES.items() if name == "version"}


def parser(prog: str = "python -m calc") -> Parser:
    about = "Weigh a language model: parameters, memory, and which GPUs it fits."
    p = of_model(prog, about)
    p.add_argument("--time", action="store_true", help="say how fast, too, on the first GPU: with a range each")
    add_cluster(p)
    add_fields(p, Workload, aliases=ALIASES)
    p.add_argument("--weights", choices=WEIGHT_FORMATS, help="storage of the weights (default: as the checkpoint)")
    p.add_argument(
        "--kv",
        "--kv-cache-dtype",
        choices=(*CACHE_FORMATS, "auto"),
        help="storage of the KV cache (default: as the checkpoint asks, else bf16)",
    )
    p.add_argument(
        "--gpu",
        nargs="+",
        action="extend",
        metavar="ID",
        help="GPU ids, MIG slices as h100-sxm:3g.40gb, or your own as name:48GiB:960GB/s:bf16=181 (default: the usual "
        "nine)",
    )
    add_fields(p, Layout, aliases=ALIASES)
    p.add_argument(
        "--num-gpus", type=int, metavar="N", help="GPUs of one kind; the layout over them that does best is found"
    )
    p.add_argument("--engine", choices=tuple(ENGINES), default=DEFAULT_ENGINE)
    p.add_argument("--prefill-tokens", type=int, metavar="N", help="tokens of one forward pass, whatever the engine")
    add_engine_flags(p)
    add_training_options(p)
    add_other_steps(p)
    return p


def add_engine_flags(p: Parser) -> None:
    for engine in ENGINES.values():
        group = p.add_argument_group(f"{engine.title} {engine.versions}", f"with --engine {engine.name}")
        add_fields(group, engine.options_type, aliases=ENGINE_ALIASES)


def load(model: str) -> dict[str, Any]:
    """The config of a preset, a file, standard input, or a model on the Hub."""
    if model in models():
        return dict(models()[model].config)
    if model == "-":
        return parse_config(read_text(sys.stdin, "Standard input") if sys.stdin is not None else "")
    if is_file(path := f"{model}/{CONFIG}") or is_file(path := model):
        config, config_path = from_file(path), str(Path(path).with_name(HF_QUANT_CONFIG))
        if Path(path).name != CONFIG or not is_file(config_path):
            return config
        return with_hf_quant_config(config, from_file(config_path))
    near = ", ".join(get_close_matches(model, models(), n=5, cutoff=0.3) or list(models())[:5])
    if not is_id(model):
        raise bad_question(
            "{name} is neither a preset nor a file. Presets are, among others, {near}.", name=shown(model), near=near
        )
    try:
        return fetch(model).config
    except HubError as error:
        raise bad_question("{why} Presets are, among others, {near}.", why=error.message, near=near) from None


def from_file(name: str) -> dict[str, Any]:
    """A JSON object in a file. Raises ConfigError."""
    try:
        with Path(name).open(encoding="utf-8") as file:
            return parse_config(read_text(file, f"The file {shown(name)}"))
    except OSError as error:
        raise unreadable(name, error) from None


def is_file(name: str) -> bool:
    """Raises ConfigError for a name that can't be printed."""
    try:
        name.encode()
        return Path(name).is_file()
    except UnicodeEncodeError:
        raise bad_question("The name of the file is not text in UTF-8; give the file through - instead.") from None
    except OSError:  # longer than names of files are
        return False


def read_text(file: TextIO, name: str) -> str:
    """The text of a file, at most one character more than a config may have. Raises ConfigError."""
    try:
        return file.read(MAX_CHARACTERS + 1)
    except UnicodeDecodeError:
        raise bad_question("{name} is not text in UTF-8, as a config.json must be.", name=name) from None


def chosen_gpus(ids: Sequence[str] | None) -> list[GPU] | None:
    return None if ids is None else [find_gpu(text) for text in ids]


def chosen_config(arguments: argparse.Namespace) -> dict[str, Any]:
    """The model's config with the changes that are asked for."""
    config = load(arguments.model)
    if arguments.assume is not None and not knows(config):
        config = as_llama(config)
    changes: dict[str, Any] = {}
    for change in arguments.set:
        field, equals, value = change.partition("=")
        if not equals:
            raise bad_question(
                "--set takes FIELD=VALUE, for instance num_key_value_heads=4, not {change}.", change=shown(change)
            )
        changes[field] = parse_value(value)
    return override(config, changes) if changes else config


def served(arguments: argparse.Namespace) -> str:
    """Name in a command that starts the model: its id, the folder of its checkpoint, or one of the reader's own."""
    model: str = arguments.model
    if arguments.set or model == "-":
        return LOCAL
    if model in models() or not is_file(model):
        return model
    return str(Path(model).parent) if Path(model).name == CONFIG else LOCAL


def run(
    arguments: argparse.Namespace,
) -> tuple[Report | TrainingReport | StepComparison, Times | None, dict[str, CombinedLever]]:
    """The report, its times where they are asked for, and for its table how many GPUs do with which changes; steps side
    by side where others are given."""
    if not arguments.other_steps:
        return run_one(arguments)
    cluster, steps = stated_cluster(vars(arguments)), []
    for step in steps_of(arguments, parser):
        check_options(vars(step))
        config = chosen_config(step)
        steps.append((Architecture.from_config(config), trained(config, step)))
    gpus = list(chosen_gpus(arguments.gpu) or usual_gpus())
    return compared_steps(steps, gpus, cluster), None, {}


def trained(config: dict[str, Any], arguments: argparse.Namespace) -> TrainingReport:
    given = vars(arguments)
    if "teacher" in given:
        given["teacher"] = Architecture.from_config(load(given["teacher"]))
    return run_training(config, given, chosen_gpus(arguments.gpu))


def run_one(arguments: argparse.Namespace) -> tuple[Report | TrainingReport, Times | None, dict[str, CombinedLever]]:
    given, config = vars(arguments), chosen_config(arguments)
    check_options(given)
    gpus, cluster = chosen_gpus(arguments.gpu), stated_cluster(given)
    first = (gpus or usual_gpus())[0]
    timed: Times | None = None
    if arguments.train:
        result = trained(config, arguments)
        if arguments.time:
            timed = step_time_of(Architecture.from_config(config), result, first, cluster)
        return result, timed, {} if arguments.json else spread(config, result)
    serving, report = run_serving(config, given, gpus)
    if arguments.time:
        timed = time_report(serving, first, report.scenario.workload, cluster)
    return report, timed, {}


def run_serving(config: dict[str, Any], given: dict[str, Any], gpus: list[GPU] | None) -> tuple[Serving, Report]:
    engine = chosen_engine(given)
    return laid_out_report(
        config,
        model=given["model"],
        workload=filled(Workload, given),
        engine=engine,
        precision=engine.precision(native(config), *chosen_formats(given)),
        layout=None if is_searched(given) else filled(Layout, given),
        num_gpus=given["num_gpus"],
        gpus=gpus,
    )


def chosen_formats(given: dict[str, Any]) -> tuple[Any, Any]:
    """Formats of weights and KV cache; None: the checkpoint's."""
    return given["weights"], None if given["kv"] == "auto" else given["kv"]


def is_searched(given: dict[str, Any]) -> bool:
    """Whether the layout is searched for: a number of GPUs is given, and no degree."""
    return given["num_gpus"] is not None and Layout.model_fields.keys().isdisjoint(given)


def chosen_engine(given: dict[str, Any]) -> Engine:
    """The engine with its flags, and with the model that guesses tokens where they name one. Raises ConfigError for
    flags of another engine."""
    engine = ENGINES[given["engine"]]
    name = None if engine.draft_option is None else given.get(engine.draft_option)
    draft = None if name is None else Architecture.from_config(load(name))
    own = engine.options_type.model_fields
    foreign = {name: other for other in ENGINES.values() for name in other.options_type.model_fields if name not in own}
    for name, other in foreign.items():
        if name in given and given[name] != other.options_type.model_fields[name].default:
            raise bad_question("{flag} has no effect with {engine}.", name, flag=flag(name), engine=engine.title)
    if given.get("prefill_tokens") is not None:
        given = {engine.step_option: given["prefill_tokens"], **given}
    return engine(filled(engine.options_type, given), draft)


def written(result: Report | TrainingReport | StepComparison, others: dict[str, CombinedLever]) -> str:
    if isinstance(result, StepComparison):
        return steps_table(result)
    return training_table(result, others) if isinstance(result, TrainingReport) else table(result)


def answer(arguments: argparse.Namespace) -> tuple[str, int]:
    """Text and exit status."""
    result, timed, others = run(arguments)
    if arguments.json:
        return as_json(result, **({} if timed is None else {"time": timed.model_dump(mode="json")})), 0
    text = written(result, others)
    return text if timed is None else f"{text}\n{times_table(timed)}", 0
