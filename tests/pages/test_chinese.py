"""Pages in Chinese: no English sentence is left, and the language stays with the reader and in the link."""

import json
from urllib.parse import parse_qsl, urlsplit

import pytest
from babel.messages.pofile import read_po

from calc.text import pack
from pages.parts import words
from tests.messages import LOCALE
from tests.pages.app import metrics, page, run
from tests.pages.pseudo import WORD, escaped, nodes, texts
from tests.pages.test_language import DRAWERS, FIGURES, LOGS, SERVED, STEP, TRAINED, verify


@pytest.fixture(scope="module")
def kept():
    """Words of plain letters that a translation holds."""
    with (LOCALE / "zh_CN" / "LC_MESSAGES" / "weighbridge.po").open("rb") as file:
        strings = [entry.string for entry in read_po(file) if entry.id]
    return {
        word
        for each in strings
        for text in (each if isinstance(each, tuple) else [each])
        for word in WORD.findall(text)
    }


@pytest.fixture
def chinese(monkeypatch, kept):
    """Chinese for everybody, and what to do with a page: list its texts with words that no translation holds."""
    monkeypatch.setitem(words.CATALOGUES, "en", words.CATALOGUES["zh"])
    return lambda app: sorted({(where, text) for where, text in texts(app) if set(escaped(text)) - kept})


def first(queries):
    """Cases of a test, those after the first by night: test_language reads each of them in a language that is none."""
    cases = enumerate(queries.items())
    return [pytest.param(query, id=name, marks=[pytest.mark.sweep] * (number > 0)) for number, (name, query) in cases]


@pytest.mark.parametrize("query", first(SERVED))
def test_weigh(chinese, query):
    assert chinese(page("weigh", *DRAWERS, *(f"derive_{name}" for name in FIGURES), **query)) == []


@pytest.mark.parametrize("query", first(TRAINED))
def test_train(chinese, query):
    assert chinese(page("train", *DRAWERS, *(f"derive_{name}" for name in STEP), **query)) == []


@pytest.mark.parametrize("choice", ["hub", "printed", "file", "log", "measured", "presets"])
def test_verify(chinese, choice):
    assert chinese(verify(choice, model="Qwen/Qwen2.5-0.5B")) == []


def test_a_log(chinese):
    app = verify("log", model="meta-llama/Llama-3.1-8B")
    assert chinese(run(app.text_area(key="log").set_value(LOGS))) == []


@pytest.mark.parametrize("subject", ["memory", "starts", "speed"])
def test_accuracy(chinese, subject):
    app = page("accuracy", "served_drawer")
    assert chinese(run(app.segmented_control(key="sections").set_value(subject))) == []


@pytest.mark.parametrize(
    ("said", "expected"),
    [  # W3C, Requirements for Chinese Text Layout, 3.1.2: a full-width mark has its space within
        ("Qwen3-8B 的 全参微调", "Qwen3-8B 的全参微调"),
        ("单卡 MFU 39%。 （实测）", "单卡 MFU 39%。（实测）"),
        ("**分组查询注意力（GQA）** 介于两者之间", "**分组查询注意力（GQA）** 介于两者之间"),
        ("Room for one. And two", "Room for one. And two"),
    ],
)
def test_chinese_has_no_space_of_another_language(said, expected):
    assert words.set_close(said) == expected
    assert words.together(said.split()) == expected


@pytest.mark.parametrize("name", ["weigh", "verify"])
def test_the_address_of_a_source_ends_before_its_date(name):
    said = [text for _, text in texts(page(name, model="Qwen/Qwen3-8B", lang="zh")) if "来源" in text]
    assert said
    assert all("<https://huggingface.co/Qwen/Qwen3-8B>，2026-10" in text for text in said)


def test_an_error(chinese):
    app = page(pasted=pack({"model_type": "nonesuch"}))
    assert app.error
    assert chinese(app) == []


def languages(app):
    return {button.key.removeprefix("speak_") for button in app.button if button.key.startswith("speak_")}


def test_a_link_says_the_language():
    app = page(model="Qwen/Qwen2.5-3B", lang="zh")
    assert "参数量" in metrics(app)
    assert languages(app) == {"en"}
    assert dict(app.query_params) == {"model": "Qwen/Qwen2.5-3B", "lang": "zh"}


def test_without_a_language_in_the_link_the_browser_decides():
    app = page(model="Qwen/Qwen2.5-3B")
    assert "Parameters" in metrics(app)
    assert "lang" not in app.query_params


def test_a_language_that_is_none():
    app = page(lang="xx", batch="4")
    assert "Parameters" in metrics(app)
    assert ["lang" in warning.value for warning in app.warning] == [True]


def test_copied_links_say_the_language():
    app = page(model="Qwen/Qwen2.5-3B", lang="zh")
    protos = [getattr(node, "proto", None) for node in nodes(app._tree)]
    parts = [
        json.loads(proto.json)[0] for proto in protos if getattr(proto, "component_name", "") == "weighbridge_copy"
    ]
    (address,) = [part["text"] for part in parts]
    assert dict(parse_qsl(urlsplit(address).query)) == {"model": "Qwen/Qwen2.5-3B", "v": "3", "lang": "zh"}


def test_the_switch_changes_no_number():
    before = page(model="Qwen/Qwen2.5-3B", batch="4")
    values = list(metrics(before).values())
    app = run(before.button(key="speak_zh").click())
    assert "参数量" in metrics(app)
    assert list(metrics(app).values()) == values
    assert dict(app.query_params) == {"model": "Qwen/Qwen2.5-3B", "batch": "4", "lang": "zh"}


def test_a_sentence_begins_with_a_capital_or_a_name():
    assert words.capitalized("no native bf16") == "No native bf16"
    assert words.capitalized("vLLM runs") == "vLLM runs"
    assert words.capitalized("无原生 bf16") == "无原生 bf16"
