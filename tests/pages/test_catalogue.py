"""The catalogues: every template has a translation with the same values and code, compiled as it is written."""

import re
import string

import pytest
from babel.messages.pofile import read_po

from pages.parts import words
from pages.parts.labels import CHOICES
from pages.parts.words import LANGUAGES
from tests.messages import LOCALE, templates

FILES = sorted(LOCALE.glob("*/LC_MESSAGES/*.po"))
CODE = re.compile(r"`[^`]*`|<[^>]*>|:[a-z]+-badge\[")
HAN = "[\u4e00-\u9fff]"


@pytest.fixture(params=FILES, ids=lambda file: file.parts[-3])
def entries(request):
    with request.param.open("rb") as file:
        entries = [entry for entry in read_po(file) if entry.id]
    return {entry.id if isinstance(entry.id, tuple) else (entry.id, None): entry for entry in entries}


def translations(entry):
    return list(entry.string) if isinstance(entry.string, tuple) else [entry.string]


def values(template):
    return {(name, spec) for _, name, spec, _ in string.Formatter().parse(template) if name is not None}


GONE = re.compile(
    r"on paper|against A\b|bound by|most loaded|fullest|held at most|纸上|纸面|最满|受主机", re.IGNORECASE
)
"""What readers did not understand."""


def test_no_sentence_is_in_words_of_our_own(entries):
    said = [text for (one, many), entry in entries.items() for text in (one, many or "", *translations(entry))]
    assert [text for text in said if GONE.search(text)] == []


def test_no_choice_of_a_list_is_cut():
    """A list in a drawer of the sidebar shows 33 letters, of Chinese half as many."""
    labels = [words.say_in(code, label) for each in CHOICES.values() for label in each.values() for code in LANGUAGES]
    assert [label for label in labels if sum(2 if re.match(HAN, letter) else 1 for letter in label) > 33] == []


def test_there_are_catalogues():
    assert FILES


@pytest.mark.slow
def test_nothing_is_without_a_translation(entries):
    """`make messages` adds what is missing here and drops what is no longer said."""
    said = templates()
    assert sorted(str(one) for one, _ in said.keys() - entries.keys()) == []
    assert sorted(str(one) for one, _ in entries.keys() - said.keys()) == []
    assert sorted(one for (one, _), entry in entries.items() if not all(translations(entry))) == []


def test_nothing_is_fuzzy(entries):
    assert [one for (one, _), entry in entries.items() if entry.fuzzy] == []


def test_values_are_the_same(entries):
    for (one, many), entry in entries.items():
        for text in translations(entry):
            assert values(text) == values(many or one), one


def test_code_is_the_same(entries):
    for (one, many), entry in entries.items():
        for text in translations(entry):
            assert sorted(CODE.findall(text)) == sorted(CODE.findall(many or one)), one
            assert text.count("**") == (many or one).count("**"), one


def test_a_translation_has_every_plural_of_its_language(entries):
    """Chinese has one form for all numbers."""
    assert {len(entry.string) for (_, many), entry in entries.items() if many} == {1}


def test_what_is_compiled_is_what_is_written(entries, request):
    file = next(file for file in FILES if file.parts[-3] in request.node.name)
    catalogue = words.catalogue(file.parts[-3])
    for (one, many), entry in entries.items():
        said = catalogue.gettext(one) if many is None else catalogue.ngettext(one, many, 2)
        assert said == translations(entry)[0], one


def test_chinese_is_set_as_chinese(entries):
    """Its own commas, colons and brackets; a space beside Latin letters and numbers; and bold text ends where Markdown
    sees it, not between a full stop or bracket and a letter."""
    for entry in entries.values():
        for text in translations(entry):
            assert not re.search(f"{HAN}[,;:(]|[,;:)]{HAN}", text), text
            assert not re.search(f"{HAN}[A-Za-z0-9`]|[A-Za-z0-9`]{HAN}", text), text
            outside = text.split("**")[::2]
            for bold, after in zip(text.split("**")[1::2], outside[1:], strict=True):
                assert not (bold[-1] in "，。；：）”" and re.match(r"\w", after)), text
