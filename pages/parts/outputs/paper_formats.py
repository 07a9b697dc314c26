"""A calculation in Markdown and in HTML, in the reader's language: one text for the page and for files."""

import re
from collections.abc import Iterable
from html import escape

from calc.model.derivation import Step
from calc.model.formula import Formula, grouped, latex_lines, number
from calc.model.paper import Cell, Code, Equation, Exact, Heading, Item, PaperTable, Section
from pages.parts import words
from pages.parts.words import say


def title(of: Section | Heading) -> str:
    return words.part(of.title)


def approximately(step: Step) -> str:
    """A result as people say it: 16.78 M, 1.00 GiB; nothing where that says no more."""
    rounded = words.size(step.result) if step.unit.startswith("bytes") else words.count(step.result)
    return "" if rounded.removesuffix(" B") == f"{step.result:,}" else rounded


def sides(step: Step) -> list[Formula]:
    """Formula and values, the lines above its result."""
    return [side for side in (step.formula, step.values) if side is not None and side != number(step.result)]


def is_number(cell: Cell) -> bool:
    return isinstance(cell, Exact)


# Markdown, with formulas in LaTeX


def markdown(section: Section, level: int = 2) -> str:
    """A section with its title."""
    return "\n\n".join([f"{'#' * level} {title(section)}", *(markdown_item(item) for item in section.items)])


def markdown_item(item: Item) -> str:
    match item:
        case Heading():
            return f"**{title(item)}**"
        case Equation(step=step):
            return markdown_equation(step)
        case PaperTable(head=head, rows=rows):
            lines = ["---:" if rows and is_number(cell) else "---" for cell in (rows[0] if rows else head)]
            cells = [[markdown_cell(cell) for cell in row] for row in rows]
            titles = [say(name) for name in head]
            return "\n".join("| " + " | ".join(row) + " |" for row in [titles, lines, *cells])
        case _:
            return say(item)


def markdown_cell(cell: Cell) -> str:
    match cell:
        case Exact(number=number):
            return f"{number:,}"
        case Formula():
            return f"${cell.latex()}$"
        case None:
            return ""
        case Code(text=text):
            return f"`{text}`"
        case _:
            return words.part(cell)


def markdown_equation(step: Step) -> str:
    """Formula, values and result, one below the other."""
    rows = [latex_lines(side) for side in sides(step)]
    result = grouped(str(step.result)).replace(",", "{,}")
    rounded = approximately(step)
    rows.append([result + (rf" \approx \text{{{rounded}}}" if rounded else "")])
    lines = []
    for i, (first, *others) in enumerate(rows):
        lines.append(rf"{'={}' if i else ''}&{first}")
        lines += [rf"&\quad {other.strip()}" for other in others]
    body = " \\\\[4pt]\n".join(lines)
    label = f"{words.part(step.what)}\n\n" if step.what else ""
    return f"{label}$$\n\\begin{{aligned}}\n{body}\n\\end{{aligned}}\n$$"


# HTML, with formulas in MathML, for a file that needs nothing else

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.25; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #8886; }
table { border-collapse: collapse; margin: .75rem 0; display: block; overflow-x: auto; }
th, td { border: 1px solid #8885; padding: .25rem .6rem; text-align: left; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
code { font-family: ui-monospace, monospace; font-size: .92em; }
.equation { margin: .5rem 0 1rem 1.5rem; overflow-x: auto; } .equation div { margin: .2rem 0; }
nav ol { columns: 2; } @media (max-width: 600px) { nav ol { columns: 1; } }
@media print {
  body { max-width: none; font-size: 10pt; } h2 { break-after: avoid; } tr, .equation { break-inside: avoid; }
}
"""


def html_page(name: str, lead: Iterable[str], sections: Iterable[Section]) -> str:
    """A whole file: title, what it says first, contents, sections."""
    sections = list(sections)
    contents = "".join(f'<li><a href="#{section.anchor}">{escape(title(section))}</a></li>' for section in sections)
    first = "".join(f"<p>{html_text(text)}</p>" for text in lead)
    body = "\n".join(map(html_section, sections))
    return (
        f'<!DOCTYPE html>\n<html lang="{words.language()}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(name)}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{escape(name)}</h1>\n{first}\n<nav><ol>{contents}</ol></nav>\n"
        f"{body}\n</body>\n</html>\n"
    )


def html_section(section: Section) -> str:
    items = "\n".join(map(html_item, section.items))
    return f'<h2 id="{section.anchor}">{escape(title(section))}</h2>\n{items}'


def html_item(item: Item) -> str:
    match item:
        case Heading(anchor=anchor):
            place = f' id="{anchor}"' if anchor else ""
            return f"<h3{place}>{html_text(title(item))}</h3>"
        case Equation(step=step):
            return html_equation(step)
        case PaperTable(head=head, rows=rows):
            titles = "".join(f"<th>{html_text(say(name))}</th>" for name in head)
            body = "".join(f"<tr>{''.join(map(html_cell, row))}</tr>" for row in rows)
            return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
        case _:
            return f"<p>{html_text(say(item))}</p>"


def html_cell(cell: Cell) -> str:
    match cell:
        case Exact(number=number):
            return f'<td class="number">{number:,}</td>'
        case Formula():
            return f"<td>{math(cell)}</td>"
        case None:
            return "<td></td>"
        case Code(text=text):
            return f"<td><code>{escape(text)}</code></td>"
        case _:
            return f"<td>{html_text(words.part(cell))}</td>"


def html_equation(step: Step) -> str:
    rounded = approximately(step)
    rows = [*map(math, sides(step)), f"{step.result:,}" + (f" ≈ {rounded}" if rounded else "")]
    lines = "".join(f"<div>{'= ' if i else ''}{row}</div>" for i, row in enumerate(rows))
    label = f"<p>{html_text(words.part(step.what))}</p>" if step.what else ""
    return f'{label}<div class="equation">{lines}</div>'


def math(formula: Formula) -> str:
    return f"<math>{formula.mathml()}</math>"


def html_text(text: str) -> str:
    """A sentence with its bold words and its code."""
    bold = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text, quote=False))
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", bold)
