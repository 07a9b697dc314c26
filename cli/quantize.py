"""`weighbridge quantize MODEL --to FORMAT`: what the conversion of a model takes of GPU, host memory and disk."""

from argparse import SUPPRESS, Namespace
from collections.abc import Iterator

from calc.errors import printable
from calc.hardware import usual_gpus
from calc.options import options
from calc.quantizing import HeldPart, Quantizing, QuantizingPhase, QuantizingReport, quantizing_report
from calc.units import GIB
from cli.command import chosen_config, chosen_gpus
from cli.fits import worst
from cli.options import Parser, add_fields, as_json, described, filled, of_model, typed

OTHER_NAMES = {"gptq-int4": "int4-gptq", "gptq-int8": "int8-gptq", "awq-int4": "int4"}
"""Other words for a format: method first."""


def parser() -> Parser:
    p = of_model("weighbridge quantize", "What quantizing a model takes: GPU memory, host memory and disk by phase.")
    to = options(Quantizing)["to"]
    named = typed(to) | {"type": lambda word: OTHER_NAMES.get(word, word)}
    p.add_argument("--to", default=SUPPRESS, help=described(to), **named)
    add_fields(p, Quantizing)
    p.add_argument("--gpu", nargs="+", action="extend", metavar="ID", help="GPU ids; their verdict is the exit status")
    return p


def answer(arguments: Namespace) -> tuple[str, int]:
    """Text and exit status: 0, or of GPUs that are named that of `weighbridge fits`."""
    report = quantizing_report(
        chosen_config(arguments),
        filled(Quantizing, vars(arguments)),
        gpus=chosen_gpus(arguments.gpu) or usual_gpus(),
        model=arguments.model,
    )
    status = worst(verdict.verdict for verdict in report.verdicts) if arguments.gpu else 0
    return as_json(report) if arguments.json else "\n".join(table(report)), status


def table(report: QuantizingReport) -> Iterator[str]:
    """Lines for reading."""
    yield f"{printable(report.model)} to {report.to} with {report.tool} ({report.method})"
    if report.samples:
        yield f"{report.samples:,} calibration texts of {report.tokens:,} tokens"
    yield ""
    for phase in report.phases:
        yield from lines(phase)
    low, high = report.overhead_low / GIB, report.overhead_high / GIB
    yield f"{'GPU memory':44}{report.gpu / GIB:>12.2f} GiB, and {low:.2f} to {high:.2f} of overhead"
    yield f"{'host memory':44}{report.ram / GIB:>12.2f} GiB"
    yield f"{'disk':44}{report.disk_bytes / GIB:>12.2f} GiB"
    yield from map(line, report.disk)
    yield ""
    for verdict in report.verdicts:
        yield f"1 x {verdict.gpu}: {verdict.verdict}. {verdict.reason}"
    yield ""
    yield from map(str, report.assumptions)


def lines(phase: QuantizingPhase) -> Iterator[str]:
    yield str(phase.name)
    for where, parts in (("GPU", phase.gpu), ("host", phase.ram)):
        yield from (f"{line(part)} {where}" for part in parts)


def line(part: HeldPart) -> str:
    return f"  {part.what!s:55}{part.bytes / GIB:>9.2f} GiB  {part.formula} = {part.values}"
