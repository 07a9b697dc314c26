"""Pages of docs that the code writes are those of the code."""

import pytest

from docs import api, memory
from docs.rooms import ROOT


@pytest.mark.parametrize(("name", "page"), [("memory", memory.page), ("api", api.page)])
def test_a_written_page_is_current(name, page):
    assert (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") == page(), f"python -m docs.{name} writes it anew"
