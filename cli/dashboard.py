"""`weighbridge`: a report of the model that is named, a plan or a verdict; the dashboard where nothing is asked for."""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from runpy import run_module

from cli import main as answer
from cli.serve import APP, NOT_INSTALLED

HELP = {
    "report": "one report, as with MODEL alone; see weighbridge report --help",
    "plan": "which hardware, how fast, at what price; as above",
    "fits": "a verdict as exit status: 0 fits, 3 with flags or tight, 1 not",
    "quantize": "what quantizing a model takes: GPU, host memory, disk",
    "log": "a start-up log beside our figures; what was short, what mends it",
    "sweep": "every combination of a grid as rows of a Parquet file",
    "serve": "the dashboard as several processes behind nginx",
    "mcp": "the answers as tools for assistants (Model Context Protocol)",
}
"""Commands in a few words."""


def main(argv: Sequence[str] | None = None) -> int:
    """`weighbridge [--port N]` opens the dashboard; `weighbridge MODEL ...`, `weighbridge plan MODEL ...`,
    `weighbridge fits MODEL ...` and `weighbridge log FILE` are `python -m calc MODEL ...`, `python -m calc plan MODEL
    ...` and so on."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and not words[0].startswith("-"):
        return answer(words)
    parser = argparse.ArgumentParser(
        prog="weighbridge", description="Weigh a language model before you load it. Without a command: the dashboard."
    )
    commands = parser.add_subparsers(dest="command", title="commands", metavar="MODEL | " + " | ".join(HELP))
    for name, help_text in HELP.items():
        commands.add_parser(name, help=help_text, add_help=False)
    parser.add_argument("--port", type=int, default=8501, help="where the dashboard listens (default 8501)")
    parser.add_argument("--headless", action="store_true", help="do not open a browser")
    arguments = parser.parse_args(words)
    if find_spec("streamlit") is None:
        print(NOT_INSTALLED, file=sys.stderr)
        return 2
    options = [f"--server.port={arguments.port}", f"--server.headless={str(arguments.headless).lower()}"]
    sys.argv = ["streamlit", "run", str(APP), *options]
    run_module("streamlit", run_name="__main__")
    return 0
