"""The command line: `python -m calc MODEL`, `python -m calc plan MODEL`, `python -m calc fits MODEL --gpu ID`,
`python -m calc quantize MODEL --to FORMAT`, `python -m calc log FILE`, `python -m calc sweep GRID.toml --out FILE`,
`python -m calc serve`, `python -m calc mcp`."""

import os
import sys
from collections.abc import Sequence

from calc import ConfigError
from cli import assistant, command, fits, log_report, plan, quantize, serve, sweep
from cli.options import BAD_QUESTION

ANSWERED = {"report": command, "plan": plan, "fits": fits, "quantize": quantize, "log": log_report}
"""Modules whose `answer` is the text and the exit status of what their `parser` reads, by the command's first word."""
RUN = {"sweep": sweep.main, "serve": serve.main, "mcp": assistant.main}
"""Commands that work for longer."""


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status of a command, by its first word; without one it is a report. 2 with a sentence for a question that
    can't be answered."""
    words = sys.argv[1:] if argv is None else list(argv)
    first = words[0] if words else ""
    if first in RUN:
        return RUN[first](words[1:])
    module = ANSWERED.get(first, command)
    arguments = module.parser().parse_args(words[1:] if first in ANSWERED else words)
    try:
        text, status = module.answer(arguments)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return BAD_QUESTION
    try:
        print(text, flush=True)
    except BrokenPipeError:  # whoever reads it has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(status)


__all__ = ["main"]
