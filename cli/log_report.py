"""python -m calc log FILE: a start-up log's figures against ours, and what was short where the server died."""

import sys
from argparse import Namespace
from pathlib import Path

from calc import Architecture
from calc.errors import Frozen, Message, printable, shown
from calc.serving.engines.llamacpp.startup_log import read_buffers, states_buffers
from calc.units import GIB
from calc.verify import planned_buffers_of
from calc.verify.logs import Difference, Log, differences, largest, read_log, remedies, shortage, weigh_as
from calc.verify.logs.parse import MAX_CHARACTERS
from cli.command import load
from cli.options import BAD_QUESTION, Parser, as_json, bad_question, unreadable
from presets import gpus, named_preset, preset_id

AGREES, DIED, DIFFERS = 0, 1, 3


class LogReport(Frozen):
    """The figures of a log next to ours."""

    model: str
    status: int
    log: Log | None = None  # None: of llama.cpp, whose buffers are the rows
    reason: Message | None = None  # why the server did not start
    changes: tuple[str, ...] = ()  # the least ones with which it would have started, each the flag that makes it
    rows: tuple[Difference, ...] = ()
    differs_most: str | None = None  # a term


def parser() -> Parser:
    about = "Compare a start-up log of vLLM, SGLang or llama.cpp, or a CUDA out-of-memory message, with our figures."
    p = Parser(prog="python -m calc log", description=about, allow_abbrev=False)
    p.add_argument("file", metavar="FILE", help="the log, or - for standard input")
    p.add_argument("--model", type=preset_id, metavar="MODEL", help="what was run (default: the preset that it names)")
    p.add_argument("--json", action="store_true", help="print everything as JSON")
    p.epilog = (
        f"Exit status: {AGREES} every figure agrees, {DIED} the server did not start or died, {BAD_QUESTION} not a log "
        f"that can be read, {DIFFERS} it started and a figure differs."
    )
    return p


def text_of(name: str) -> str:
    """The text of a file or of standard input, at most one character more than a log may have. Raises ConfigError."""
    try:
        if name == "-":
            return sys.stdin.read(MAX_CHARACTERS + 1) if sys.stdin is not None else ""
        with Path(name).open(encoding="utf-8", errors="replace") as file:
            return file.read(MAX_CHARACTERS + 1)
    except UnicodeDecodeError:
        raise bad_question("The log is not text in UTF-8.") from None
    except ValueError:  # open's, of a name with a zero byte
        raise bad_question("{name} is not the name of a file.", name=shown(name)) from None
    except OSError as error:
        raise unreadable(name, error) from None


def model_of(named: str | None) -> str:
    """The preset of a log's model. Raises ConfigError."""
    if named is None:
        raise bad_question("The log does not name its model: say which it is with --model.", "model")
    if (preset := named_preset(named)) is None:
        raise bad_question(
            "The log is of {model}, which is not a preset: say which model it is with --model.",
            "model",
            model=shown(named),
        )
    return preset


def log_report(text: str, model: str | None) -> LogReport:
    """A log against ours, as on the page Verify. Raises ConfigError."""
    if states_buffers(text):
        return of_buffers(text, model)
    log = read_log(text)
    if log.training is not None:
        return LogReport(model=model or "", status=DIED, log=log, reason=log.training.message)
    name = model or model_of(log.settings.model)
    config = load(name)
    ours = weigh_as(log, config, gpus().values())
    rows = differences(log, Architecture.from_config(config), ours)
    worst = largest(rows)
    least = remedies(log, ours.memory.weights, ours.memory.kv_cache)
    if log.refusal is not None:
        status = DIED
    elif not rows:
        raise bad_question("The log states nothing that is computed here.")
    else:
        status = AGREES if worst is None else DIFFERS
    return LogReport(
        model=name,
        status=status,
        log=log,
        reason=None if log.refusal is None else shortage(log),
        changes=tuple(str(remedy.what).strip("`") for remedy in least),
        rows=rows,
        differs_most=None if worst is None else worst.term,
    )


def of_buffers(text: str, model: str | None) -> LogReport:
    """Buffers of llama.cpp by device, in the log and as we plan them; Q4_K_M where the log names no format."""
    name = model or model_of(None)
    rows = planned_buffers_of(read_buffers(text), Architecture.from_config(load(name)), "Q4_K_M").rows
    if not rows:
        raise bad_question("The log states nothing that is computed here.")
    worst = max((row for row in rows if not row.agrees), key=lambda row: abs(row.log - row.ours), default=None)
    status = AGREES if worst is None else DIFFERS
    return LogReport(model=name, status=status, rows=rows, differs_most=None if worst is None else worst.term)


def table(report: LogReport) -> str:
    lines = [printable(report.model), ""] if report.model else []
    if report.reason is not None:
        lines += [str(report.reason), ""]
    if report.log is not None and report.log.training is not None:
        lines += [str(report.log.training.advice), ""]
    if report.changes:
        lines += ["By the log's own figures, the least change with which it would have started:"]
        lines += [*(f"  {change}" for change in report.changes), ""]
    if report.rows:
        lines.append(f"{'':24}{'log':>18}{'computed':>28}{'difference':>12}")
    for row in report.rows:
        lines.append(f"{printable(row.term):24}{amount(row, row.log):>18}{computed(row):>28}{difference(row):>12}")
    if report.rows:
        differ = [printable(str(row.sentence)) for row in report.rows if not row.agrees]
        lines += ["", *(differ or ["Every figure that the log states agrees."])]
    if report.log is not None:
        lines += map(str, report.log.notes)
    return "\n".join(lines)


def amount(row: Difference, value: int) -> str:
    if row.unit != "bytes":
        return f"{value:,}"
    return f"{value / GIB:.2f} GiB" if value >= GIB // 100 else f"{value:,} bytes"


def computed(row: Difference) -> str:
    if row.low is None or row.high is None:
        return amount(row, row.ours)
    low, high = amount(row, row.low), amount(row, row.high)
    return low if low == high else f"{low} to {high}"


def difference(row: Difference) -> str:
    """The difference as a share of ours; where that is a range, whether the log's lies within."""
    if row.low is None:
        return f"{row.log / max(1, row.ours) - 1:+.2%}"
    return "within" if row.agrees else "outside"


def answer(arguments: Namespace) -> tuple[str, int]:
    """Text and exit status."""
    report = log_report(text_of(arguments.file), arguments.model)
    return as_json(report) if arguments.json else table(report), report.status
