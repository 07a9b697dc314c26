"""Files to take along: they need nothing else, and hold what the page says."""

import csv
import json
import re
from hashlib import sha256
from html.parser import HTMLParser
from io import StringIO

import pytest

from calc import Architecture, Precision, report
from calc.families import override
from calc.model.counting import Counting
from calc.serving.derivation import rules
from calc.text import config_file
from pages.parts.outputs import downloads, paper
from presets import models
from presets.studies import STUDIES, hand_section
from tests import load
from tests.pages.app import opened, page, texts


def sections(name):
    architecture = Architecture.from_config(models()[name].config)
    answer = report(models()[name].config, precision=Precision(), gpus=[])
    return [*Counting(architecture).sections(), rules(architecture, answer), hand_section(STUDIES[name], architecture)]


class Reader(HTMLParser):
    """Tags that are open, and what a file would fetch."""

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.ids, self.links = [], [], set(), set()

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.fetched += [known[name] for name in ("src", "srcset", "data") if name in known]
        self.ids.add(known.get("id"))
        if tag == "a":
            self.links.add(known["href"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", STUDIES)
def test_the_html_file_needs_nothing_else(name):
    text = paper.html_page("a & b", "first", sections(name))
    reader = Reader()
    reader.feed(text.removeprefix("<!DOCTYPE html>"))
    assert reader.open == []
    assert reader.fetched == []
    assert all(link.startswith("#") and link[1:] in reader.ids for link in reader.links)
    assert "<script" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert f"{Architecture.from_config(models()[name].config).parameters().total:,}" in text


@pytest.mark.parametrize("name", STUDIES)
def test_the_markdown_file(name):
    text = paper.markdown_file("Name", "first", sections(name))
    assert text.count("$$") % 2 == 0
    assert text.startswith("# Name\n\nfirst\n\n## Symbols\n")
    assert f"{STUDIES[name].hand_total:,}" in text


def test_tensors():
    architecture = Architecture.from_config(models()["deepseek-ai/DeepSeek-V3"].config)
    rows = list(csv.DictReader(StringIO(downloads.tensors(architecture))))
    assert sum(int(row["parameters"]) for row in rows if not row["not_in_total"]) == 671_026_404_352
    assert sum(int(row["parameters"]) for row in rows) == 684_489_845_504


def test_verdicts():
    answer = report(models()["Qwen/Qwen2.5-3B"].config)
    rows = list(csv.DictReader(StringIO(downloads.verdicts(answer))))
    assert [row["gpu"] for row in rows] == [verdict.gpu for verdict in answer.verdicts]
    assert [int(row["spare"]) for row in rows] == [verdict.spare for verdict in answer.verdicts]


def test_the_config_file_is_the_changed_design():
    config = override(models()["Qwen/Qwen2.5-3B"].config, {"num_key_value_heads": 4, "num_hidden_layers": 12})
    again = Architecture.from_config(json.loads(config_file(config)))
    assert again == Architecture.from_config(config)
    assert again.num_layers == 12


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in load("exported.json")])
def test_transformers_loads_the_config_file(row):
    """Parameters of the class that transformers built of this very file (`benchmarks.oracle.exported`)."""
    text = config_file(override(models()[row["id"]].config, row["changes"]))
    assert sha256(text.encode()).hexdigest() == row["sha256"], (
        "python -m benchmarks.oracle.exported, for it has changed"
    )
    assert Architecture.from_config(json.loads(text)).parameters().total == row["total"]


def test_a_command_a_frame_and_a_badge():
    app = opened(page(model="deepseek-ai/DeepSeek-V3", gpu="h200-sxm", num_gpus="8"), "carry")
    command, program, frame, badge = texts(app.code)
    assert command.startswith("vllm serve deepseek-ai/DeepSeek-V3 \\\n  --data-parallel-size 8")
    assert re.fullmatch(r"curl '\S*/api/report\?model=deepseek-ai/DeepSeek-V3&\S+'", program)
    assert "num_gpus=8" in frame
    assert "embed=true" in frame
    assert "671.03%20B" in badge
    changed = opened(page(model="Qwen/Qwen3-8B", num_hidden_layers="12"), "carry")
    assert "vllm serve ./model" in changed.code[0].value
    assert any("./model" in text for text in texts(changed.caption))
