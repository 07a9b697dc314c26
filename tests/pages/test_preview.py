"""What a link shows where it is handed on."""

import re
from html import unescape

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from pages.parts.outputs.preview import Addresses
from presets import hub

INDEX = "<html><head><title>Streamlit</title></head></html>"


@pytest.fixture(scope="module")
def client():
    routes = [
        Route("/static/weigh", lambda _: PlainTextResponse("<title>Streamlit</title>")),
        Route("/{path:path}", lambda _: HTMLResponse(INDEX)),
    ]
    with TestClient(Starlette(routes=routes, middleware=[Middleware(Addresses)])) as client:
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
        ("/verify?model=qwen/qwen3-8b&lang=zh", "Qwen3-8B 有 8,190,735,360 个参数，与公布的一致 · Weighbridge"),
        (
            "/plan?plan_gpus=h100-sxm&price=h100-sxm=2&max_gpus=1",
            "Qwen3-8B for one user: H100 SXM 80GB at $2.00/h is the cheapest · Weighbridge",
        ),
        (
            "/train_plan?plan_gpus=h100-sxm",
            "Qwen3-8B is trained in 16.6 days on 8 × H100 SXM 80GB, for $12,700 · Weighbridge",
        ),
        (
            "/plan?plan_gpus=l4&tpot_ms=0.1&max_gpus=1&users=3",
            "Qwen3-8B for 3 users: no plan meets every target, 3 × L4 comes closest · Weighbridge",
        ),
        (
            "/plan?plan_gpus=l4&max_gpus=1&model=deepseek-ai/DeepSeek-V3",
            "DeepSeek-V3 for one user: no plan on these GPUs · Weighbridge",
        ),
        ("/plan?plan_gpus=l4&budget=0.01", "Qwen3-8B for one user: no plan within the budget · Weighbridge"),
        ("/machine?model=deepseek-ai/DeepSeek-V3", "DeepSeek-V3 does not run on this machine · Weighbridge"),
        ("/compare?with=Qwen/Qwen3-8B", "A · Qwen3-8B and B · Qwen3-8B need the same memory · Weighbridge"),
        ("/compare?with=own/model", "Weighbridge"),
        (
            "/attention",  # 36 layers, keys and values of 8 heads of 128 in 2 bytes; multi-head attention has 32
            "Qwen3-8B caches 144.00 KiB per token, 75% less than with multi-head attention · Weighbridge",
        ),
        (
            "/hardware?view=formats&cards=1&length=1024&model=Qwen/Qwen3-0.6B&engine=transformers",
            "On all GPUs · Weighbridge",
        ),
        ("/?num_hidden_layers=1&num_key_value_heads=7", "Qwen3-8B (changed): no answer · Weighbridge"),
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
