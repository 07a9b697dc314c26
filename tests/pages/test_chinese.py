"""Pages in Chinese: no English sentence is left, and the language stays with the reader and the link."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from calc.serving.engines import ENGINES
from calc.text import pack
from pages.parts import words
from tests.pages.app import opened, page, run
from tests.pages.pseudo import OPAQUE, escaped, texts
from tests.pages.test_language import DRAWERS, FIGURES, LOGS, SERVED, STEP, TRAINED

TERMS = set(
    """
    adapter adapters AdamW AutoAWQ autocast Autocast batch bf16 BF16 bit bitsandbytes bucket buffer checkpoint chunk
    """.split()
)


@pytest.fixture
def chinese(monkeypatch):
    monkeypatch.setitem(words.CATALOGUES, "en", words.CATALOGUES["zh"])


def english(app):
    """Words of plain letters that are neither names nor terms which Chinese keeps."""
    return sorted({(where, text) for where, text in texts(app) if set(escaped(text)) - TERMS})
