"""What a link shows where it is handed on."""

import re
from html import unescape

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from pages.parts.outputs.preview import Preview
from presets import hub

INDEX = "<html><head><title>Streamlit</title></head></html>"


@pytest.fixture(scope="module")
def client():
    routes = [
        Route("/static/weigh", lambda _: PlainTextResponse("<title>Streamlit</title>")),
        Route("/{path:path}", lambda _: HTMLResponse(INDEX)),
    ]
    with TestClient(Starlette(routes=routes, middleware=[Middleware(Preview)])) as client:
        yield client


@pytest.mark.parametrize(
    ("address", "title"),
    [
        ("/", "Qwen3-8B fits on 8 of 9 GPUs · Weighbridge"),
        (
            "/?model=deepseek-ai/DeepSeek-V3&gpu=h100-sxm&num_gpus=4",
            "DeepSeek-V3 does not fit 4 × H100 SXM 80GB · Weighbridge",
        ),
        ("/train?method=qlora&gpu=l40s", "QLoRA of Qwen3-8B fits on L40S · Weighbridge"),
        ("/derive?model=qwen/qwen3-8b&lang=zh", "Qwen3-8B · 推导 · Weighbridge"),
        ("/?num_hidden_layers=1&num_key_value_heads=7", "Qwen3-8B · Weigh · Weighbridge"),
        ("/?batch=many&frobnicate=<b>", "Qwen3-8B fits on 8 of 9 GPUs · Weighbridge"),
        ("/?model=own/model", "Weighbridge"),
        ("/?model=%3Cscript%3E", "Weighbridge"),
        ("/?pasted=AAAA", "Weighbridge"),
        ("/?model=Qwen/Qwen3-8B&revision=main", "Weighbridge"),
    ],
)
def test_a_program_reads_the_finding(client, monkeypatch, address, title):
    """And nobody asks the Hub for it."""
    monkeypatch.setattr(hub, "search", None)
    answer = client.get(address)
    assert unescape(re.search("<title>(.*)</title>", answer.text)[1]) == title
    assert unescape(re.search('"og:title" content="(.*?)"', answer.text)[1]) == title
    assert int(answer.headers["content-length"]) == len(answer.content)


@pytest.mark.parametrize("address", ["/", "/train?method=qlora"])
def test_a_browser_gets_the_page_as_it_is(client, address):
    assert client.get(address, headers={"Sec-Fetch-Dest": "document"}).text == INDEX


def test_nothing_else_is_read(client):
    assert client.get("/component/x").text == INDEX
    assert client.post("/").status_code == 405
