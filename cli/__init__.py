"""The command line: `python -m calc MODEL`, `python -m calc plan MODEL`, `python -m calc fits MODEL --gpu ID`,
`python -m calc quantize MODEL --to FORMAT`, `python -m calc log FILE`, `python -m calc sweep GRID.toml --out FILE`,
`python -m calc serve`, `python -m calc mcp`."""

import sys
from collections.abc import Sequence

from cli import assistant, command, fits, log_report, plan, quantize, serve, sweep

COMMANDS = {
    "report": command.main,
    "plan": plan.main,
    "fits": fits.main,
    "quantize": quantize.main,
    "log": log_report.main,
    "sweep": sweep.main,
    "serve": serve.main,
    "mcp": assistant.main,
}
"""Commands by their first word; without one, a report."""


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    return COMMANDS[words[0]](words[1:]) if words and words[0] in COMMANDS else command.main(words)


__all__ = ["main"]
