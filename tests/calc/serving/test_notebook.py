"""What IPython shows of a report."""

from html.parser import HTMLParser

import pytest

from calc import report, training_report
from calc.hardware.gpus import gpus
from presets import models

CONFIG = models()["Qwen/Qwen3-0.6B"].config
H100 = gpus()["h100-sxm"]


class Read(HTMLParser):
    """Elements and text of a page, each element closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.names, self.cells = [], set(), []

    def handle_starttag(self, tag, attrs):
        assert not attrs
        self.open.append(tag)
        self.names.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.cells.append(data)


def read(html):
    page = Read()
    page.feed(html)
    page.close()
    assert not page.open
    return page


@pytest.mark.parametrize("made", [report, training_report])
def test_a_report_shows_itself(made):
    page = read(made(CONFIG, model="Qwen/Qwen3-0.6B", gpus=[H100])._repr_html_())
    assert page.names == {"div", "h4", "table", "tr", "th", "td", "details", "summary", "ul", "li"}
    assert {"Qwen/Qwen3-0.6B", "596,049,920", "h100-sxm", "fits"} <= set(page.cells)


@pytest.mark.parametrize("made", [report, training_report])
@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a & b", '"><img src=x onerror=alert(1)>'])
def test_text_from_outside_is_text(made, name):
    html = made(CONFIG, model=name, gpus=[])._repr_html_()
    assert name not in html
    assert name in "".join(read(html).cells)
