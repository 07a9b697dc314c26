"""Brings the catalogues up to what the code says: `make messages`.

A template is an argument of `say`, of `Message` or of what says a sentence on a page, and their `plural`; the
description of an option; what has a name in words that a page says: symbols, parts of memory, tensors of a step; and
why evidence is left out.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from calc.model.derivation import SYMBOLS
from calc.time.efficiency import SHARE_SYMBOLS
from calc.time.roofline import MACHINE
from pages.parts.verify.evidence import accuracy
from tests import ROOT

LOCALE = ROOT / "pages" / "locale"
FOLDERS = ("calc", "presets", "cli", "pages")
NAMING = ("calc/model", "calc/serving", "calc/time", "calc/training")
"""Where things are called by what they are in plain words, which a page then says."""
WORDS = re.compile(r"(?=.*[a-z]{2}.* )[A-Za-z0-9({][\w ,'’/.(){}-]*[\w})]")
SINGLE = set(
    """
    activated activation alpha attention available beta blocks bytes communication convolution decay dt elementwise
    embeddings experts gate gated headroom host keys latents logits loss mask norm overhead_high overhead_low
    parameters places positions probabilities product prompts queries relu requested rotated router scan scores
    seconds sequences squares state states tokens turned up values weighted weights
    """.split()
)
"""Names of one word."""
SAYING = {
    "say": (0,),
    "Message": (0,),
    "paragraph": (0,),
    "caption": (0,),
    "heading": (0,),
    "alert": (2,),
    "Column": (0, 3),
}
SAYING |= {
    "Control": (0, 4),
    "Switch": (0, 1),
    "bad_question": (0,),
    "concluded": (0,),
    "hover": (0,),
    "sentence_with": (1,),
}
SAYING |= {"compared": (3, 4), "in_range": (3, 4), "left_over": (3, 4), "_of_overhead": (3, 4), "held_in_pages": (5, 6)}
"""Calls with sentences, and the places of their templates among the arguments: of `pages.parts`' words, screen,
inputs.fields, inputs.question, outputs.tables, outputs.findings and outputs.charts, of `cli.options`, and of
`calc.verify.logs`."""
UNSAID = ("holds", "NotImplementedError", "split", "Ending")
"""Calls with words that nobody is told, and lists of names."""
HABITS = "calc/serving/engines/vllm/options.py"
"""Names that only the code uses."""

Key = tuple[str, str | None]


@cache
def templates() -> dict[Key, set[str]]:
    """Every template with its plural, and the files where it stands. One that is said with a plural and without is one
    entry."""
    found: dict[Key, set[str]] = {}
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            where = file.relative_to(ROOT).as_posix()
            tree = ast.parse(file.read_text(encoding="utf-8"))
            for key in [*said(tree), *(named(tree) if where.startswith(NAMING) and where != HABITS else ())]:
                found.setdefault(key, set()).add(where)
    for legend, symbols in (
        ("model/derivation", SYMBOLS),
        ("time/efficiency", SHARE_SYMBOLS),
        ("time/roofline", MACHINE),
    ):
        for _, meaning, *_ in symbols.values():
            if "_" not in meaning:
                found.setdefault((meaning, None), set()).add(f"calc/{legend}.py")
    for row in accuracy().left_out:
        found.setdefault((row.reason, None), set()).add("pages/evidence/accuracy.json")
    plurals = {one: many for one, many in found if many is not None}
    joined: dict[Key, set[str]] = {}
    for (one, _), files in found.items():
        joined.setdefault((one, plurals.get(one)), set()).update(files)
    return joined


def said(tree: ast.Module) -> Iterator[Key]:
    """Templates that are said, and descriptions."""
    for scope in ast.walk(tree):
        if not isinstance(scope, (ast.Module, ast.FunctionDef)):
            continue
        for call in ast.walk(scope):
            if not isinstance(call, ast.Call):
                continue
            keywords = {keyword.arg: keyword.value for keyword in call.keywords}
            for place in SAYING.get(callee(call), ()):
                for one in texts(call.args[place], scope, tree) if len(call.args) > place else ():
                    plurals = list(texts(keywords["plural"], scope, tree)) if "plural" in keywords else []
                    yield one, plurals[0] if plurals else None
            for name in ("description", "help") if callee(call) == "Column" else ("description",):
                for text in texts(keywords[name], scope, tree) if name in keywords else ():
                    yield text, None


def callee(call: ast.Call) -> str:
    return getattr(call.func, "id", None) or getattr(call.func, "attr", "")


def texts(node: ast.expr, *scopes: ast.AST) -> Iterator[str]:
    """What an expression may be: a text, either of two, what a name was set to in the first scope that sets it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body, *scopes)
        yield from texts(node.orelse, *scopes)
    elif isinstance(node, ast.Name):
        for scope in scopes:
            values = [
                each.value
                for each in ast.walk(scope)
                if isinstance(each, ast.Assign) and any(getattr(to, "id", None) == node.id for to in each.targets)
            ]
            if values:
                for value in values:
                    yield from texts(value)
                return


def named(tree: ast.Module) -> Iterator[Key]:
    """Names in plain words."""
    unsaid: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            unsaid.add(node.value)
        elif isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Call) and callee(node) in UNSAID):
            unsaid.update(ast.walk(node))
        elif isinstance(node, ast.keyword) and node.arg in ("title", "source", "plural"):
            unsaid.add(node.value)
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and node not in unsaid else None
        if isinstance(text, str) and (text in SINGLE or WORDS.fullmatch(text)):
            yield text, None


def update(file: Path) -> list[str]:
    """Write a catalogue anew with the translations that it has; what has none is returned."""
    with file.open("rb") as text:
        old = read_po(text)
    new = Catalog(
        old.locale,
        project="Weighbridge",
        version="1",
        creation_date=old.creation_date,
        revision_date=old.revision_date,
        last_translator="none",
        language_team="none",
        fuzzy=False,
    )
    new.header_comment = "# What Weighbridge says. Written by `make messages`; translations are by hand."
    for (one, many), files in templates().items():
        known = old.get(one)
        translation = known.string if known is not None else ""
        if isinstance(translation, tuple):
            translation = translation[0]
        places = [(file, None) for file in sorted(files)]
        if many is None:
            new.add(one, translation, locations=places)
        else:
            new.add((one, many), (translation,) * new.num_plurals, locations=places)
    with file.open("wb") as text:
        write_po(text, new, width=120, sort_output=True)
    return [str(entry.id) for entry in new if entry.id and not (entry.string and all(entry.string))]


if __name__ == "__main__":
    for catalogue in sorted(LOCALE.glob("*/LC_MESSAGES/*.po")):
        missing = update(catalogue)
        print(f"{catalogue.relative_to(ROOT)}: {len(missing)} without a translation", *missing, sep="\n  ")
