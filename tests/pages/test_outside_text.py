"""Text that somebody else wrote is shown, never followed: a link handed on can't fetch or offer what is not ours."""

import re

import pytest

from calc.errors import Outside
from calc.text import pack
from pages.parts.words import plain, say_in
from presets import hub
from tests.pages.app import page

EVIL = "![x](https://evil.example/x.png) [click](https://evil.example) <https://evil.example> www.evil.example $x$"
LIVE = re.compile(r"(?<!\\)\[(x|click)|(?<!\\)\$x|(?i:https?://evil|www\.evil)")
"""What Markdown makes a link, a picture or a formula of."""
LLAMA = {"model_type": "llama"}
DOORS = {
    "a name": {EVIL: "1"},
    "a value": {"batch": EVIL},
    "language": {"lang": EVIL},
    "gpu": {"gpu": EVIL},
    "own gpu": {"gpu": f"{EVIL}:48GiB:960GB/s"},
    "model": {"model": EVIL},
    "others": {"with": EVIL},
    "family": {"pasted": pack({"model_type": EVIL})},
    "assumed family": {"pasted": pack(LLAMA | {"assumed_from": EVIL})},
    "quantization": {"pasted": pack(LLAMA | {"quantization_config": {"quant_method": EVIL}})},
    "pattern": {"pasted": pack(LLAMA | {"quantization_config": {"quant_method": "fp8", "ignored_layers": [EVIL * 3]}})},
    "activation": {"pasted": pack(LLAMA | {EVIL: "xielu"})},
    "number": {"pasted": pack(LLAMA | {"hidden_size": EVIL})},
}


def written(app):
    """All that is on a page as Markdown, with where it stands."""
    kinds = ("markdown", "caption", "title", "header", "subheader", "error", "warning", "info", "success")
    return [one.value for kind in kinds for one in getattr(app, kind)]


def live(app):
    return [text for text in written(app) if LIVE.search(text)]


@pytest.mark.parametrize("name", ["weigh", "compare"])
@pytest.mark.parametrize("door", DOORS)
def test_a_link_s_text_is_no_markdown(name, door):
    assert live(page(name, **DOORS[door])) == []


@pytest.mark.parametrize("door", ["revision", "file"])
def test_names_of_the_hub_are_no_markdown(monkeypatch, door):
    def fetch(model, revision=None, token=None, gguf=None):
        found = hub.HubModel(id=model, revision="main", files={f"{EVIL}.gguf": 1}, config={})
        return hub._from_gguf(found, token, gguf or EVIL)

    monkeypatch.setattr(hub, "fetch", fetch)
    app = page(model="a/b", **{door: EVIL[:100]})
    assert any("evil" in text for text in written(app))
    assert live(app) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("num_key_value_heads", "num_key_value_heads"),
        ("name:48GiB:960GB/s:bf16=181", "name:48GiB:960GB/s:bf16=181"),
        ("[a](b)", "\\[a\\](b)"),
        ("![a](b)", "!\\[a\\](b)"),
        ("a\n\n# b", "a # b"),
        ("`$&|*<\\", "\\`\\$\\&\\|\\*\\<\\\\"),
        ("https://a.example", "https:\u2060//a.example"),
        ("WWW.a.example", "WWW\u2060.a.example"),
        ("me@a.example", "me@\u2060a.example"),
    ],
)
def test_signs_are_shown(text, shown):
    assert plain(text) == shown
    assert say_in("en", "{value}", value=Outside(text)) == shown


def test_our_own_links_stay():
    assert say_in("en", "{link}", link="[a](https://a.example)") == "[a](https://a.example)"
