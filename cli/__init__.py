"""The command line: `python -m calc MODEL`, `python -m calc plan MODEL`."""

import sys
from collections.abc import Sequence

from cli import command, plan


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    return plan.main(words[1:]) if words[:1] == ["plan"] else command.main(words)


__all__ = ["main"]
