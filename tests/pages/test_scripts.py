"""The scripts that pages draw with, as this server hands them out."""

import gc
import re
import tracemalloc

import pytest
import streamlit as st
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from pages.parts.outputs import scripts
from tests import ROOT

FILES = sorted(file.name for file in (ROOT / "pages" / "scripts").glob("*.js"))


@pytest.fixture(scope="module")
def client():
    page = Route("/{path:path}", lambda _: PlainTextResponse("Streamlit's page"))
    with TestClient(Starlette(routes=[scripts.SCRIPTS.route(), page])) as client:
        yield client


@pytest.mark.parametrize("name", FILES)
def test_a_browser_keeps_each(client, name):
    answer = client.get(f"/scripts/{scripts.SCRIPTS.version}/{name}")
    assert answer.text == (ROOT / "pages" / "scripts" / name).read_text("utf-8")
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("name", ["nonesuch.js", "plotly-LICENSE", "..%2Fframe.css", "..%2F..%2Fapp.py"])
def test_nothing_else_is_handed_out(client, name):
    assert client.get(f"/scripts/{scripts.SCRIPTS.version}/{name}").status_code == 404


@pytest.mark.slow
def test_asking_for_what_is_not_there_keeps_nothing(client):
    """4,000 made-up names of 60 kB held 240 MB for ever."""
    client.get(f"/scripts/{scripts.SCRIPTS.version}/{FILES[0]}")
    tracemalloc.start()
    for n in range(50):
        assert client.get(f"/scripts/{scripts.SCRIPTS.version}/{n}{'x' * 60_000}").status_code == 404
    gc.collect()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 10**6  # of 3 MB asked for


def test_a_server_of_another_version_hands_out_nothing(client):
    """Else a browser would keep what it got while servers were exchanged one after the other."""
    assert client.get("/scripts/0123456789ab/rows.js").status_code == 404


@pytest.mark.parametrize("base", ["", "tools/weigh"])
def test_an_element_finds_its_script_below_the_server_s_path(monkeypatch, base):
    asked = []
    monkeypatch.setattr(st, "get_option", {"server.baseUrlPath": base}.get)
    monkeypatch.setattr(st.components.v2, "component", lambda name, **options: asked.append(options["js"]))
    scripts.element("table", "rows.js")
    script = re.search('URL\\("(.*?)"', asked[0])[1]
    assert script.startswith(f"/{base}")
    with TestClient(Starlette(routes=[scripts.SCRIPTS.route()])) as client:
        assert "weighbridge-rows" in client.get(script).text
