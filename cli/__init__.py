"""The command line: `python -m calc MODEL`."""

from cli.command import main

__all__ = ["main"]
