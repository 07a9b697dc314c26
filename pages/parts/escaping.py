"""Text that somebody else wrote, on its way into Markdown."""

import re
from typing import Any

from calc.errors import Outside

SIGNS = re.compile(r"[\\`*\[\]<$&|]")
"""Characters that begin code, emphasis, links, pictures, formulas, entities and cells in Markdown."""
ADDRESS = re.compile(r"(?i)(https?:|www|@)(?=[/.\w])")
"""Text that Markdown turns into a link by itself, even where its characters are escaped."""


def plain(text: str) -> str:
    """Markdown that reads as the text does and is neither link, picture nor formula."""
    return ADDRESS.sub("\\1\N{WORD JOINER}", SIGNS.sub(r"\\\g<0>", " ".join(text.split())))


def escaped(value: Any) -> Any:
    """A value of a sentence in Markdown: our own may hold links, what is from outside none."""
    return plain(value) if isinstance(value, Outside) else value
