"""Questions that people come with, each answered on the first screen within the stated inputs: a click, a choice, a
number or a paste is one."""

import re
from collections.abc import Callable
from typing import NamedTuple

import pytest
from playwright.sync_api import Page, expect

from tests import EXAMPLES
from tests.pages.readers import choose, go, paste, search


def first_screen(page, text):
    answer = page.get_by_text(re.compile(text.replace(" ", r"\s"))).first
    expect(answer).to_be_in_viewport()


@pytest.fixture
def page(page):
    page.set_viewport_size({"width": 1440, "height": 1000})
    return page


def press(page, slider, key, times):
    slider.focus()
    for _ in range(times):
        page.keyboard.press(key)


def test_eight_h200_for_64_users_at_32k(page, address):
    """Four inputs: users, context, GPU, how many. The layout that fits is found; with TP 8 it says so and offers it."""
    page.goto(f"{address}/?model=deepseek-ai/DeepSeek-V3&gpu=none")
    page.get_by_role("spinbutton", name="Batch size").fill("64")
    page.get_by_role("combobox", name="Context length").select_option("32k")
    search(page, "GPU models", "h200 sxm", "H200 SXM 141GB")
    page.get_by_role("spinbutton", name="How many of each").fill("8")
    first_screen(page, "DeepSeek-V3 fits on 8 × H200 SXM 141GB")
    first_screen(page, "With DP 8, EP 8.")
    expect(page).to_have_url(re.compile("batch=64"))
    expect(page).to_have_url(re.compile("context=32768"))

    page.goto(f"{page.url}&tp=8")
    first_screen(page, "DeepSeek-V3 does not fit 8 × H200 SXM 141GB")
    page.get_by_role("button", name="Use this").first.click()
    first_screen(page, "With DP 8, EP 8.")


def test_the_smallest_gpu_in_two_clicks_and_what_a_slider_of_heads_saves(page, address):
    page.goto(f"{address}/?model=Qwen/Qwen2.5-3B&context=32768")
    page.get_by_role("combobox", name="Weight format").select_option("int4")
    page.get_by_role("button", name="Smallest GPU that fits").click()
    first_screen(page, "Qwen2.5-3B fits on ")
    first_screen(page, "headroom per GPU")
    expect(page).to_have_url(re.compile("gpu=[a-z0-9-]+&"))

    heads = page.get_by_role("slider", name="KV heads")
    press(page, heads, "ArrowRight", 1)  # 4 of 16; the cache is twice that of 2
    expect(page.get_by_role("button", name="KV heads 2 → 4: KV cache ×2, +37.77 M parameters")).to_be_visible()


@pytest.mark.sweep
def test_a_key_held_down_moves_one_slider(page, address):
    """A wider model moves other sliders; the browser says where they were with every key."""
    page.goto(f"{address}/?model=Qwen/Qwen2.5-3B")
    press(page, page.get_by_role("slider", name="Hidden size"), "ArrowRight", 10)
    expect(page).to_have_url(re.compile("hidden_size=2688$"))
    expect(page.get_by_role("slider", name=re.compile("FFN multiplier"))).to_have_attribute("aria-valuetext", "4.095")


@pytest.mark.parametrize(
    ("query", "place"),
    [
        pytest.param("model=Qwen/Qwen3-8B&gpu=rtx-4090&method=lora", "RTX 4090", id="LoRA of 8B on 24 GB"),
        pytest.param(
            "model=meta-llama/Llama-3.1-70B&gpu=l40s&method=qlora",
            "L40S",
            id="QLoRA of 70B on 48 GB",
            marks=pytest.mark.sweep,
        ),
    ],
)
def test_a_lever_makes_it_fit(page, address, query, place):
    page.goto(f"{address}/train?{query}")
    first_screen(page, f"does not fit {place}")
    page.get_by_role("button", name="Apply the least that fits").click()
    first_screen(page, f"fits on {place}")


def test_a_layout_of_the_table_and_the_way_back(page, address):
    """A row opens, a head sorts, a cell is a button; Back leads from Train to Weigh as it was, in one step."""
    page.goto(f"{address}/?model=meta-llama/Llama-3.1-70B&batch=4")
    table = page.get_by_role("table", name="The verdict of each GPU")
    v100 = table.get_by_role("row", name="V100 SXM2 16GB")
    v100.get_by_role("button", name="V100 SXM2 16GB").click()
    expect(page.get_by_text(re.compile("^Short by"))).to_be_visible()
    table.get_by_role("button", name="Verdict").click()
    expect(table.get_by_role("row").nth(1)).to_contain_text("B200 SXM")
    page.get_by_text("More columns").click()
    expect(table.get_by_role("columnheader")).to_have_count(14)
    expect(table.get_by_role("row").nth(1)).to_contain_text("B200 SXM")
    v100.get_by_role("button", name="TP 2, PP 7").click()
    page.keyboard.press("Home")
    first_screen(page, "fits on 14 × V100 SXM2 16GB")
    weighed = page.url

    go(page, "Train")
    expect(page).to_have_title(re.compile("Full fine-tuning of Llama-3.1-70B .* · Weighbridge"))
    page.get_by_text("Training step", exact=True).nth(1).wait_for()
    page.go_back()
    expect(page).to_have_url(weighed)
    first_screen(page, "fits on 14 × V100 SXM2 16GB")


def test_on_a_phone_the_answer_comes_first_and_controls_are_one_tap_away(page, address):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/?model=openai/gpt-oss-20b")
    first_screen(page, "fits on [0-9] of 9 GPUs")
    first_screen(page, "tokens/s per user")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    expect(page.get_by_role("spinbutton", name="Batch size")).to_be_in_viewport()
    page.get_by_test_id("stExpandSidebarButton").click()
    expect(page.get_by_text("KV heads", exact=True)).to_be_visible()


@pytest.mark.parametrize(
    ("chosen", "gpus"),
    [pytest.param("&gpu=l40s,h100-sxm", 2, id="cards", marks=pytest.mark.sweep), pytest.param("", 9, id="a table")],
)
def test_print_to_pdf(page, address, chosen, gpus):
    """One sheet, light, nothing cut, charts included, controls not."""
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}/?model=Qwen/Qwen2.5-3B{chosen}")
    chart = page.get_by_role("figure", name="Memory vs. GPU capacity. The most: ")
    expect(chart.locator("svg").first).to_be_visible()
    page.get_by_text("As a table").nth(1).click()
    expect(page.get_by_role("table", name="Memory vs. GPU capacity").get_by_role("row")).to_have_count(gpus + 1)
    page.get_by_text("As a table").nth(1).click()
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 718, "height": 1047})  # of A4 within its margins
    expect(page.get_by_test_id("stSidebar")).to_be_hidden()
    expect(page.get_by_role("button", name="Copy link")).to_be_hidden()
    for chart in page.locator(".weighbridge-chart").all():
        expect(chart).to_be_visible()
    cut = """[...document.querySelectorAll("[data-testid=stMain] :is(p, li, h1, h2, th, td)")].filter(
        text => text.checkVisibility() && text.getBoundingClientRect().right > window.innerWidth).length"""
    assert page.evaluate(cut) == 0
    ground = "getComputedStyle(document.querySelector('[data-testid=stMain]')).backgroundColor"
    assert page.evaluate(ground) in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    page.set_viewport_size({"width": 1440, "height": 900})
    chart = page.get_by_role("figure", name="Memory vs. GPU capacity. The most: ").locator("svg").first
    page.wait_for_function("chart => chart.getBoundingClientRect().left > 500", arg=chart.element_handle())
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) == 1


def click(role, name):
    return lambda page: page.get_by_role(role, name=name, exact=True).first.click()


def pick(text):
    return lambda page: page.get_by_text(text, exact=True).first.click()


def fill(name, value):
    def typed(page):
        box = page.get_by_role("spinbutton", name=name)
        box.fill(value)
        box.press("Enter")

    return typed


def gpu(typed, first):
    return lambda page: search(page, "GPU models", typed, first)


def pasted(file):
    text = (EXAMPLES / file).read_text("utf-8")
    return lambda page: paste(page.get_by_role("textbox", name=re.compile("^A start-up log")), text)


SENT = 500
"""Milliseconds after which a browser has said what was set, a number that was typed too."""


class Journey(NamedTuple):
    """A question, the address at which a reader has it, what they do, each a click or a field that is filled, and what
    the first screen says then. `before` are the inputs that the eleven pages needed that the five places came from:
    fields of the answer's link that no other sets, and clicks to open what they stood in."""

    start: str
    inputs: list[Callable[[Page], None]]
    answer: str
    before: int
    on_a_phone: bool = False


JOURNEYS = {
    "QLoRA of 8B at home": Journey(
        "train?model=Qwen/Qwen3-8B",
        [pick("QLoRA on a home card")],
        "QLoRA of Qwen3-8B fits on [1-5] of 5 GPUs",
        before=3,  # method, activation checkpointing, GPUs
    ),
    "the smallest card for it": Journey(
        "train?model=Qwen/Qwen3-8B&gpu=rtx-4090",
        [pick("QLoRA on a home card"), click("button", re.compile("^Smallest that fits: "))],
        "QLoRA of Qwen3-8B fits on .* 16GB|QLoRA of Qwen3-8B fits on RTX",
        before=3,  # method, activation checkpointing, the card
    ),
    "70B on 24 GB cards": Journey(
        "train?model=meta-llama/Llama-3.1-70B",
        [pick("QLoRA on a home card"), gpu("4090", "RTX 4090"), click("button", "Use this")],
        "QLoRA of Llama-3.1-70B fits on 2 × RTX 4090",
        before=5,  # method, GPU, the drawer of sharding, replicas, what makes it fit
    ),
    "8B in full on a node": Journey(
        "train?model=meta-llama/Llama-3.1-8B",
        [pick("Full, one node of 8")],
        "Full fine-tuning of Llama-3.1-8B fits on all 4 GPUs",
        before=3,  # the drawer of sharding, replicas, ZeRO stage
    ),
    "is my server's log right": Journey(
        "?model=meta-llama/Llama-3.1-8B",
        [click("button", "Paste an error"), pasted("startup.log")],
        "Every figure that the log states agrees.",
        before=3,  # Verify, Start-up log, the text
    ),
    "out of memory": Journey(
        "?model=openai/gpt-oss-120b",
        [click("button", "Paste an error"), pasted("out_of_memory.log")],
        "The GPU ran out of memory: .* short by 0.63 GiB",
        before=3,  # Verify, Start-up log, the text
    ),
    "which file for my card": Journey(
        "machine?model=Qwen/Qwen3-8B",
        [lambda page: choose(page, "Card 1", "4070 super", "RTX 4070 SUPER")],
        "Use Q[0-9]",
        before=1,
    ),
    "a learner in Chinese": Journey(
        "?model=Qwen/Qwen3-8B",
        [click("button", "中文"), click("button", re.compile("^每 token 的 KV 缓存"))],
        "^公式",
        before=2,
    ),
    "the cheapest server for 64 users": Journey(
        "plan?model=Qwen/Qwen3-8B",
        [fill("Concurrent users", "64")],
        "Qwen3-8B for 64 users: .* is the cheapest",
        before=1,
    ),
    "DeepSeek-V3 on a node of H200 for 64 users at 32k": Journey(
        "",
        [
            pick("Does DeepSeek-V3 fit on 8 × H200?"),
            fill("Batch size", "64"),
            lambda page: page.get_by_role("combobox", name="Context length").select_option("32k"),
        ],
        "DeepSeek-V3 fits on 8 × H200 SXM 141GB",
        before=3,
    ),
    "a model by words of its name": Journey(
        "",
        [lambda page: search(page, "Model", "llama 3.3", "Llama-3.3-70B")],
        "Llama-3.3-70B-Instruct fits on ",
        before=2,  # the words, and the one that was meant of what they found
    ),
    "to training, on a phone": Journey(
        "?model=Qwen/Qwen3-8B",
        [lambda page: go(page, "Train")],
        "Full fine-tuning of Qwen3-8B fits on ",
        before=2,  # the menu that hid the pages, the page
        on_a_phone=True,
    ),
}
"""The questions that readers came with."""


NIGHTLY = {
    *("QLoRA of 8B at home", "8B in full on a node"),  # the smallest card for it
    *("DeepSeek-V3 on a node of H200 for 64 users at 32k", "a model by words of its name"),  # eight H200
    "70B on 24 GB cards",  # a search of GPUs and what makes it fit: eight H200
    *("is my server's log right", "out of memory"),  # test_question.py
    "to training, on a phone",  # test_places.py
    "a learner in Chinese",  # test_language.py, and the derivation in test_reader.py
}
"""Whose steps are in another journey or test of a browser."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.sweep] * (name in NIGHTLY)) for name in JOURNEYS]
)
def test_a_journey(page, address, name):
    journey = JOURNEYS[name]
    if journey.on_a_phone:
        page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/{journey.start}")
    for step in journey.inputs:
        expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")
        step(page)
        page.wait_for_timeout(SENT)
    first_screen(page, journey.answer)


def test_journeys_take_a_third_fewer_inputs():
    assert len(JOURNEYS) == 12
    now = {name: len(journey.inputs) for name, journey in JOURNEYS.items()}
    assert [name for name, journey in JOURNEYS.items() if now[name] > journey.before] == []
    assert sum(now.values()) <= 2 / 3 * sum(journey.before for journey in JOURNEYS.values())
