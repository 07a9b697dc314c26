"""python -m docs.rooms [--check]: the rooms of the code and who imports whom, drawn into CONTRIBUTING.md.

It reads the imports of every module of ours; a circle ends it with the modules that are in it. With --check it writes
nothing and fails where the drawing is not that of the code.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("calc", "presets", "cli", "pages")
PAGE = ROOT / "CONTRIBUTING.md"
START, END = "<!-- written by python -m docs.rooms -->\n", "<!-- to here -->\n"

ROOMS = (
    "calc.errors",
    "calc.budget",
    "calc.remembered",
    "calc.units",
    "calc.text",
    "calc.model",
    "calc.families",
    "calc.formats",
    "calc.hardware",
    "calc.options",
    "calc.serving",
    "calc.quantizing",
    "calc.training",
    "calc.time",
    "calc.design",
    "calc.verify",
    "calc",
    "presets",
    "cli",
    "calc.__main__",
    "pages",
)
"""From the ground up: a room imports rooms before it, never one behind it. `calc` alone is calc/__init__.py."""
EVERYWHERE = ("calc.errors", "calc.budget", "calc.remembered", "calc.units", "calc.text")
"""What nearly every room uses, and no drawing shows."""


@cache
def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """Modules of ours that a file imports, and whether it does so at its top."""
    tree, known = parsed(path), modules()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{name.name}" for name in node.names]
            targets = {name if name in known else node.module for name in names}
        elif isinstance(node, ast.Import):
            targets = {name.name for name in node.names}
        else:
            continue
        for target in sorted(targets):
            if target.split(".")[0] in PACKAGES:
                yield target, node in tree.body


def room(module: str) -> str:
    """The room of a module: the longest that its name begins with."""
    inside = [name for name in ROOMS if module == name or module.startswith(f"{name}.")]
    if not inside or (inside == ["calc"] and module != "calc"):
        raise LookupError(f"{module} stands in no room; add it to ROOMS in docs/rooms.py.")
    return max(inside, key=len)


@cache
def uses() -> dict[str, set[str]]:
    """Module -> modules that it imports at its top."""
    return {name: {target for target, top in imported(path) if top} for name, path in modules().items()}


def ordered(graph: dict[str, set[str]]) -> list[str]:
    """The modules, each behind what it imports. Raises CycleError."""
    return list(TopologicalSorter(graph).static_order())


def edges(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Room -> other rooms that its modules import."""
    found = defaultdict[str, set[str]](set)
    for module, targets in graph.items():
        found[room(module)] |= {room(target) for target in targets} - {room(module)}
    return dict(found)


def drawing(graph: dict[str, set[str]]) -> str:
    """The rooms as mermaid draws them. Where one room is used through another anyway, no arrow is drawn."""
    found = {name: targets - {*EVERYWHERE} for name, targets in edges(graph).items() if name not in EVERYWHERE}

    def beyond(name: str) -> set[str]:
        """What a room reaches through the rooms that it uses."""
        return {far for near in found.get(name, ()) for far in found.get(near, set()) | beyond(near)}

    names = [name for name in ROOMS if name in found]
    lines = ["```mermaid", "flowchart BT"]
    lines += [f'    {node(name)}["{name}"]' for name in names]
    lines += [
        f"    {node(name)} --> {node(near)}" for name in names for near in names if near in found[name] - beyond(name)
    ]
    return "\n".join([*lines, "```", ""])


def node(name: str) -> str:
    return name.replace(".", "_").strip("_")


def main(arguments: list[str]) -> int:
    graph = uses()
    try:
        ordered(graph)
    except CycleError as error:
        print("Modules that import each other in a circle:", " -> ".join(error.args[1]), file=sys.stderr)
        return 1
    text = PAGE.read_text(encoding="utf-8")
    written = f"{text.partition(START)[0]}{START}{drawing(graph)}{END}{text.partition(END)[2]}"
    if "--check" in arguments:
        return int(written != text)
    PAGE.write_text(written, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
