"""python -m calc MODEL: a Report on the command line."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TextIO, get_args

from pydantic import ValidationError

from calc import ConfigError, Layout, Precision, Report, TrainingReport, Workload, report
from calc.errors import shown
from calc.families import as_llama, knows, override
from calc.formats import CACHE_FORMATS, WEIGHT_FORMATS
from calc.hardware.custom_gpu import find_gpu
from calc.hardware.gpu import GPU
from calc.serving.workload import Attention, Engine, Speculative
from calc.text import MAX_CHARACTERS, parse_config, parse_value
from calc.units import GIB
from cli.training import add_training_options, check_options, run_training, training_table
from presets import models
from presets.hub import HubError, fetch, is_id


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        short = re.sub(r"\S{60,}", lambda word: f"{word[0][:40]}…", message)
        self.exit(2, f"{short[:1].upper()}{short[1:]}. See python -m calc --help.\n")


def version(text: str) -> str:
    """A version of an engine, as argparse checks its types."""
    try:
        return Workload(engine_version=text).engine_version or text
    except ValidationError:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no version such as 0.8.5") from None


def parser() -> Parser:
    about = "Weigh a language model: parameters, memory, and which GPUs it fits."
    p = Parser(prog="python -m calc", description=about, allow_abbrev=False)
    p.add_argument(
        "model", metavar="MODEL", help="a preset id, the path of a config.json, - for standard input, or a Hub id"
    )
    p.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="change a field of the config")
    p.add_argument("--assume", choices=["llama"], help="read a family that is not known as a Llama-like decoder")
    p.add_argument("--batch", type=int, default=1, help="sequences at once (default 1)")
    p.add_argument("--context", type=int, default=8192, help="tokens of each sequence (default 8192)")
    p.add_argument("--generated", type=int, default=0, help="tokens of the context that come one by one (default 0)")
    p.add_argument("--prefill-tokens", type=int, help="prompt tokens in one pass (vLLM: max_num_batched_tokens)")
    p.add_argument("--weights", choices=WEIGHT_FORMATS, help="storage of the weights (default: as the checkpoint)")
    p.add_argument("--kv", choices=CACHE_FORMATS, default="bf16", help="storage of the KV cache (default bf16)")
    p.add_argument("--engine", choices=get_args(Engine), default="vllm")
    p.add_argument("--attention", choices=get_args(Attention), default="flash")
    p.add_argument(
        "--engine-version", type=version, metavar="X.Y", help="where the engine's habits changed (default: the newest)"
    )
    p.add_argument(
        "--all-logits", action="store_const", const="all", dest="logits", help="transformers: logits of every token"
    )
    p.add_argument("--max-num-seqs", type=int, help="vLLM: sequences that it samples for (default: by GPU)")
    p.add_argument("--gpu-memory-utilization", type=float, help="vLLM: share of a GPU (default 0.92)")
    p.add_argument("--language-model-only", action="store_true", help="leave an image tower out")
    p.add_argument("--speculative", choices=get_args(Speculative), default="none", help="draft layer that is loaded")
    p.add_argument(
        "--gpu",
        nargs="+",
        action="extend",
        metavar="ID",
        help="GPU ids, or your own as name:48GiB:960GB/s:bf16=181 (default: the usual five)",
    )
    p.add_argument("--tp", type=int, default=1, help="tensor-parallel GPUs")
    p.add_argument("--pp", type=int, default=1, help="pipeline stages")
    p.add_argument("--dp", type=int, default=1, help="replicas; in serving they share routed experts")
    p.add_argument("--ep", type=int, default=1, help="ranks that share the routed experts")
    add_training_options(p)
    p.add_argument("--json", action="store_true", help="print the whole report as JSON")
    return p


def load(model: str) -> dict[str, Any]:
    """The config of a preset, a file, standard input, or a model on the Hub."""
    if model in models():
        return dict(models()[model].config)
    if model == "-":
        return parse_config(read_text(sys.stdin, "Standard input") if sys.stdin is not None else "")
    if is_file(model):
        try:
            with Path(model).open(encoding="utf-8") as file:
                return parse_config(read_text(file, f"The file {shown(model)}"))
        except OSError as error:
            raise ConfigError(f"The file {shown(model)} can't be read: {error.strerror}.") from None
    near = ", ".join(get_close_matches(model, models(), n=5, cutoff=0.3) or list(models())[:5])
    if not is_id(model):
        raise ConfigError(f"{shown(model)} is neither a preset nor a file. Presets are, among others, {near}.")
    try:
        return fetch(model).config
    except HubError as error:
        raise ConfigError(f"{error} Presets are, among others, {near}.") from None


def is_file(name: str) -> bool:
    """Raises ConfigError for a name that can't be printed."""
    try:
        name.encode()
        return Path(name).is_file()
    except UnicodeEncodeError:
        raise ConfigError("The name of the file is not text in UTF-8; give the file through - instead.") from None
    except OSError:  # longer than names of files are
        return False


def read_text(file: TextIO, name: str) -> str:
    """The text of a file, at most one character more than a config may have. Raises ConfigError."""
    try:
        return file.read(MAX_CHARACTERS + 1)
    except UnicodeDecodeError:
        raise ConfigError(f"{name} is not text in UTF-8, as a config.json must be.") from None


def chosen_gpus(ids: Sequence[str] | None) -> list[GPU] | None:
    return None if ids is None else [find_gpu(text) for text in ids]


def run(arguments: argparse.Namespace) -> Report | TrainingReport:
    config = load(arguments.model)
    if arguments.assume is not None and not knows(config):
        config = as_llama(config)
    changes: dict[str, Any] = {}
    for change in arguments.set:
        field, equals, value = change.partition("=")
        if not equals:
            raise ConfigError(f"--set takes FIELD=VALUE, for instance num_key_value_heads=4, not {shown(change)}.")
        changes[field] = parse_value(value)
    config = override(config, changes) if changes else config
    check_options(vars(arguments), parser().get_default)
    if arguments.train:
        return run_training(config, vars(arguments), chosen_gpus(arguments.gpu))
    return report(
        config,
        model=arguments.model,
        workload=Workload(
            batch=arguments.batch,
            context=arguments.context,
            prefill_tokens=arguments.prefill_tokens,
            attention=arguments.attention,
            engine=arguments.engine,
            generated=arguments.generated,
            logits=arguments.logits,
            max_num_seqs=arguments.max_num_seqs,
            gpu_memory_utilization=arguments.gpu_memory_utilization,
            engine_version=arguments.engine_version,
            speculative=arguments.speculative,
            language_model_only=arguments.language_model_only,
        ),
        precision=Precision.of(config, arguments.weights, arguments.kv),
        layout=Layout(tp=arguments.tp, pp=arguments.pp, dp=arguments.dp, ep=arguments.ep),
        gpus=chosen_gpus(arguments.gpu),
    )


def table(r: Report) -> str:
    """The report for reading."""
    p, m, kv = r.parameters, r.memory, r.kv_cache
    lines = [r.model, "", f"{'parameters':24}{p.total:>22,}", f"{'  active for a token':24}{p.active:>22,}"]
    lines += [f"  {name:22}{count:>22,}{count / p.total:>8.1%}" for name, count in p.components.items()]
    lines += [f"  {'not in total: ' + name:38}{n:>20,}" for name, n in p.not_in_total.items() if n]
    lines += ["", f"{'KV cache a token':24}{kv.bytes_per_token:>22,} bytes", ""]
    parts = {"weights": m.weights, "image tower": m.vision, "KV cache": m.kv_cache, "activations": m.activations}
    parts = {name: size for name, size in parts.items() if size or name != "image tower"} | {"overhead": m.overhead}
    lines += [f"{name:24}{size / GIB:>22.2f} GiB" for name, size in parts.items()]
    if r.loaded.total != m.weights:
        named = ", ".join(f"{name} {size / GIB:.2f}" for name, size in r.loaded if size and name != "weights")
        lines.insert(1 - len(parts), f"{'  once loaded':24}{r.loaded.total / GIB:>22.2f} GiB, with {named}")
    if len(r.stages) > 1:
        lines += [f"{'  of stage ' + str(i + 1):24}{stage.total / GIB:>22.2f} GiB" for i, stage in enumerate(r.stages)]
    lines += [f"{'memory of one GPU':24}{m.total / GIB:>22.2f} GiB ({m.low / GIB:.2f} to {m.high / GIB:.2f})", ""]
    lines += [f"{'GPU':20}{'verdict':14}{'spare GiB':>10}{'context':>14}{'batch':>8}{'GPUs':>6}"]
    for v in r.verdicts:
        context = "unlimited" if v.max_context is None else f"{v.max_context:,}"
        batch = "unlimited" if v.max_batch is None else f"{v.max_batch:,}"
        lines.append(
            f"{v.gpu:20}{v.verdict:14}{v.spare / GIB:>10.2f}{context:>14}{batch:>8}{v.min_gpus or '>1024':>6}"
            + "".join(f"  {note}" for note in v.notes)
        )
    if r.kv_budget:
        lines += ["", f"{'vLLM leaves for cache':20}{'GiB':>10}{'from':>10}{'to':>10}{'tokens':>14}{'requests':>10}"]
    for b in r.kv_budget:
        sizes = "".join(f"{size / GIB:>10.2f}" for size in (b.bytes, b.bytes_low, b.bytes_high))
        lines.append(f"{b.gpu:20}{sizes}{b.tokens:>14,}{b.concurrency:>10.2f}")
    return "\n".join([*lines, "", *r.assumptions])


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        result = run(arguments)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    except ValidationError as error:
        first = error.errors()[0]
        said = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
        print("".join(f"{name} is {shown(first['input'])}: " for name in first["loc"]) + f"{said}.", file=sys.stderr)
        return 2
    if arguments.json:
        text = result.model_dump_json(indent=1)
    else:
        text = training_table(result) if isinstance(result, TrainingReport) else table(result)
    try:
        print(text, flush=True)
    except BrokenPipeError:  # whoever reads it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
