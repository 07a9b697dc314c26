"""`weighbridge fits MODEL --gpu ID ...`: a report whose answer is the exit status, for pipelines; with `--share-with`
of several models on the same GPUs, each with its share."""

from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from calc import Layout, Workload
from calc.errors import printable
from calc.hardware import GPU
from calc.options import made
from calc.serving import Verdict
from calc.serving.engines import ENGINES
from calc.serving.shared_gpus import GPUShare, Neighbour, Server, SharedGPUs, share_gpus
from calc.training import TrainingVerdict
from calc.units import GIB
from cli import command
from cli.command import chosen_config, chosen_engine, chosen_formats, chosen_gpus, is_searched, load, run_one, served
from cli.options import Parser, as_json, bad_question, filled

FITS, FITS_NOT, FITS_IF = 0, 1, 3
STATUS = {"fits": FITS, "fits with": FITS_IF, "tight": FITS_IF, "does not fit": FITS_NOT, "does not run": FITS_NOT}
"""Exit status of a verdict's word."""


def parser() -> Parser:
    p = command.parser("weighbridge fits")
    p.add_argument(
        "--share-with",
        dest="neighbours",
        action="append",
        default=[],
        metavar="MODEL[,context=N,batch=N,weights=FORMAT]",
        help="another model on the same GPUs, started after those before it; may be given several times; with "
        "--sleep-level 1 or 2 all but one sleep",
    )
    return p


def answer(arguments: Namespace) -> tuple[str, int]:
    """Text and exit status: 0 where the model fits on every GPU that is named, 3 where it does with the flags that are
    printed or is tight, 1 where it does not fit or run."""
    if not arguments.gpu:
        raise bad_question("No GPU is named: write --gpu h100-sxm, for instance, or several.", "gpu")
    if arguments.other_steps:
        raise bad_question("weighbridge fits judges one step: --with is for reports.", "with")
    if arguments.neighbours:
        shared = sharing(arguments, chosen_gpus(arguments.gpu) or [])
        text = as_json(shared) if arguments.json else "\n".join(shared_lines(shared))
        return text, FITS if shared.fits else FITS_NOT
    result, _, _ = run_one(arguments)
    status = worst(verdict.verdict for verdict in result.verdicts)
    return as_json(result) if arguments.json else "\n".join(map(line, result.verdicts)), status


def worst(words: Iterable[str]) -> int:
    """Exit status of several verdicts: that of the worst."""
    return max((STATUS[word] for word in words), key=(FITS, FITS_IF, FITS_NOT).index)


def line(verdict: Verdict | TrainingVerdict) -> str:
    """A verdict in a line: GPUs, its word, the flags that it needs, and why."""
    flags = verdict.flags if isinstance(verdict, Verdict) else ()
    return f"{verdict.gpus} x {verdict.gpu}: {' '.join((verdict.verdict, *flags))}. {verdict.reason}"


def sharing(arguments: Any, gpus: list[GPU]) -> SharedGPUs:
    """Share of each model of a command line in its GPUs. Raises ConfigError."""
    given = vars(arguments)
    if len(gpus) != 1:
        raise bad_question("Several models share the GPUs of one kind: name one with --gpu.", "gpu")
    if given["train"]:
        raise bad_question("Only models that are served share GPUs here, not training steps.", "train")
    engine, workload, formats = chosen_engine(given), filled(Workload, given), chosen_formats(given)
    first = Server(given["model"], chosen_config(arguments), engine, workload, *formats, served=served(arguments))
    others = (
        Server(other.model, load(other.model), ENGINES[given["engine"]](), other.workload, other.weights)
        for other in map(Neighbour.read, given["neighbours"])
    )
    layout = made(Layout, {"tp": given["num_gpus"]}) if is_searched(given) else filled(Layout, given)
    return share_gpus([first, *others], gpus[0], layout, sleep_level=given.get("sleep_level", 0))


def shared_lines(shared: SharedGPUs) -> Iterator[str]:
    """A line for each server, and what is left."""
    for server in shared.servers:
        yield share_line(server)
    left, usable = shared.left / GIB, shared.usable / GIB
    yield f"{shared.gpus} x {shared.gpu}: {left:.2f} of {usable:.2f} GiB are left on each."
    if shared.host:
        yield f"Weights of those that sleep take {shared.host / GIB:.2f} GiB of host memory."


def share_line(server: GPUShare) -> str:
    """A server's share, and what it is made of."""
    name = printable(server.model)
    if server.reason is not None:
        return f"{name}: {server.verdict}. {server.reason}"
    parts: Mapping[str, int] = {"weights": server.weights, "KV cache": server.kv_cache, "else": server.other}
    made_of = ", ".join(f"{size / GIB:.2f} {part}" for part, size in parts.items())
    asleep = "" if server.asleep is None else f"; {server.asleep / GIB:.2f} asleep"
    return f"{name}: {server.verdict} {' '.join(server.flags)}. {server.taken / GIB:.2f} GiB: {made_of}{asleep}."
