"""The journey of a reader, in a real Chromium."""

import csv
import json
import re
from io import StringIO
from pathlib import Path
from urllib.parse import unquote

from playwright.sync_api import expect
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from tests.pages.readers import put_in_address, search


def number(page, label):
    card = page.locator(".weighbridge-figures button").filter(has_text=re.compile(f"^{re.escape(label)}"))
    return card.locator("b")


def test_pick_move_read_share(browser, page, address):
    page.goto(address)
    expect(number(page, "Parameters")).to_have_text("8.19 B")
    expect(page).to_have_title("Qwen3-8B fits on 8 of 9 GPUs · Weighbridge")

    search(page, "Model", "deepseek v3", "DeepSeek-V3")
    expect(number(page, "Parameters")).to_have_text("671.03 B")
    expect(page).to_have_url(f"{address}/?model=deepseek-ai%2FDeepSeek-V3")

    layers = page.get_by_role("group", name="Layers", exact=True).get_by_role("slider")
    layers.focus()
    page.keyboard.press("ArrowLeft")
    # one layer of 11,507,286,016 less, which is what transformers counts for a layer with experts
    expect(page.get_by_text("659,519,118,336")).to_be_visible()
    expect(page).to_have_url(f"{address}/?model=deepseek-ai%2FDeepSeek-V3&num_hidden_layers=60")

    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_text("Link copied.")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link == f"{unquote(page.url)}&v=3"  # the generation of its defaults
    elsewhere = browser.new_context().new_page()
    elsewhere.goto(link)
    expect(elsewhere.get_by_text("659,519,118,336")).to_be_visible(timeout=20_000)
    for label in ("Parameters", "Active parameters", "Weights", "KV cache per token", "Memory per GPU"):
        expect(number(elsewhere, label)).to_have_text(number(page, label).inner_text())

    page.reload()
    expect(page.get_by_text("659,519,118,336")).to_be_visible()
    page.locator(".stApp[data-test-script-state=notRunning]").wait_for()
    page.go_back()
    expect(number(page, "Parameters")).to_have_text("671.03 B")
    page.go_back()
    expect(number(page, "Parameters")).to_have_text("8.19 B")


def test_a_click_before_the_sliders_are_drawn(page, address):
    """Their code may come after a first click: drawn then, they stand where they stood and not at their lowest."""
    late = []
    page.route(re.compile(r"/static/js/Slider\."), lambda request: late.append(request))
    page.goto(address)
    page.get_by_text("Your own config.json").click()
    page.get_by_text("Paste it", exact=True).wait_for()
    assert late
    for request in late:
        request.continue_()
    page.get_by_role("group", name="Layers", exact=True).get_by_role("slider").wait_for()
    page.get_by_text("Any model on the Hugging Face Hub").click()
    page.get_by_text("Revision", exact=True).wait_for()
    expect(number(page, "Parameters")).to_have_text("8.19 B")
    expect(page).to_have_url(f"{address}/")


def test_the_derivation_is_one_click_away(page, address):
    page.goto(f"{address}/?model=Qwen/Qwen2.5-3B")
    page.get_by_role("button", name="Derivation").nth(2).click()
    expect(page.get_by_text("36 · (2·2·128)")).to_be_visible()


def test_a_chart_stays_what_it_is_while_sentences_come_and_go(page, address):
    """A move away from the model's own value adds sentences and buttons above the charts."""
    page.goto(f"{address}/?model=deepseek-ai/DeepSeek-V3")
    charts = page.locator(".weighbridge-chart")
    expect(charts.locator("svg.main-svg").first).to_be_visible()
    charts.evaluate_all("charts => charts.forEach(chart => { chart.marked = true; })")
    for key, title in (("ArrowRight", "DeepSeek-V3 (changed) fits on none"), ("ArrowLeft", "DeepSeek-V3 fits on none")):
        page.get_by_role("slider", name=re.compile("^Layers")).press(key)
        expect(page.get_by_role("heading", level=1)).to_contain_text(title)
        assert charts.evaluate_all("charts => charts.map(chart => chart.marked)") == [True, True]


def test_nonsense_leaves_a_page_that_works(page, address):
    page.goto(f"{address}/?model=Qwen/Qwen2.5-3B&batch=many&num_key_value_heads=3")
    expect(page.get_by_text("which is left out: batch is a whole number")).to_be_visible()
    page.get_by_role("button", name="Use 4").first.click()
    expect(number(page, "KV cache per token")).to_have_text("72.00 KiB")


def test_a_training_step_is_weighed_and_shared(page, address):
    page.goto(f"{address}/?model=Qwen/Qwen2.5-0.5B")
    expect(number(page, "Parameters")).to_have_text("494.03 M")
    page.get_by_role("link", name="Train").click()
    expect(number(page, "Trainable parameters")).to_have_text("494.03 M")
    page.get_by_role("combobox", name="Method").select_option("QLoRA")
    # rank 16: 24 layers, 16 times the sum of in and out of each of the seven matrices
    expect(number(page, "Trainable parameters")).to_have_text("8.80 M")
    expect(page).to_have_url(f"{address}/train?model=Qwen%2FQwen2.5-0.5B&method=qlora&recompute=full")
    page.reload()
    expect(number(page, "Trainable parameters")).to_have_text("8.80 M")


def test_a_slider_sends_what_moves_with_it(page, address):
    """The controls of the cache stay in the browser; what depends on the layout that is found comes anew."""
    sent = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda message: sent.append(message)))
    page.goto(f"{address}/?model=Qwen/Qwen3-8B&gpu=h100-sxm&num_gpus=8")
    expect(page.get_by_text("Layout: TP 8, the best one")).to_be_visible()
    sent.clear()
    page.get_by_role("slider", name=re.compile("^Layers")).press("ArrowRight")
    expect(page.get_by_role("button", name=re.compile("^Layers 36 → 37"))).to_be_visible()  # the sidebar comes last
    elements = [ForwardMsg.FromString(message).delta.new_element for message in sent]
    assert any(element.HasField("slider") for element in elements)
    assert not any(element.HasField("selectbox") for element in elements)

    put_in_address(page, num_attention_heads=31)
    expect(page.get_by_text("num_key_value_heads is 8, which does not divide").first).to_be_visible()
    expect(page.get_by_text("Layout: TP 8, the best one")).to_have_count(0)
    page.get_by_role("button", name="Reset everything").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Qwen3-8B fits on 8 of 9 GPUs")
    expect(page.get_by_role("spinbutton", name="How many of each")).to_have_value("1")


def files(page, name):
    """The rows of a chart as it gives them, as CSV and as JSON."""
    for ending in (".csv", ".json"):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"{name}{ending}", exact=True).first.click()
        yield Path(download.value.path()).read_text("utf-8")


def agree(page, name):
    """Those rows, which are the same in both, with a head that names them."""
    table, rows = files(page, name)
    (head, *lines), rows = csv.reader(StringIO(table)), json.loads(rows)
    assert [list(map(str, row.values())) for row in rows] == lines
    assert list(rows[0]) == head
    return {line[0]: line for line in lines}


def test_charts_are_taken_along(page, address):
    """Their figures as files, and a picture."""
    page.goto(f"{address}/?model=Qwen/Qwen2.5-3B&gpu=h100-sxm")
    # 151,936 rows of 2,048, and 11.5 % of the 3,085,938,688: huggingface.co/Qwen/Qwen2.5-3B, config.json
    assert int(agree(page, "Parameter breakdown ")["Embedding"][1]) == 311_164_928
    assert "H100 SXM 80GB" in agree(page, "Memory vs. GPU capacity ")
    slice_name = page.locator("text.slicetext", has_text="Embedding")
    slice_name.scroll_into_view_if_needed()
    name = slice_name.bounding_box()
    for aside in (0, 1):
        page.mouse.move(name["x"] + name["width"] / 2 + aside, name["y"] + name["height"] / 2)
    expect(page.locator(".hovertext")).to_have_text("Embedding311,164,928 parameters10.083% of all")
    for ending, begins in (("png", b"\x89PNG"), ("svg", b"<svg")):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Parameter breakdown .{ending}", exact=True).click()
        assert Path(download.value.path()).read_bytes().startswith(begins)


def test_a_picture_has_its_key_and_cuts_no_name(page, address):
    """Also one that is saved on a telephone: ground, key and names are in the file."""
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/compare?model=Qwen/Qwen2.5-3B&with=Qwen/Qwen3-Next-80B-A3B-Instruct")
    with page.expect_download() as download:
        page.get_by_role("button", name=re.compile(r"^Memory per GPU.* \.svg$")).click()
    page.set_content(Path(download.value.path()).read_text("utf-8"))
    expect(page.locator("svg text").filter(has_text="Weights")).to_contain_text(["Overhead"])
    expect(page.locator("svg > rect").first).to_have_css("fill", "rgb(255, 255, 255)")
    edge = page.locator("svg").first.bounding_box()
    boxes = [text.bounding_box() for text in page.locator("svg text").all()]
    assert all(edge["x"] <= box["x"] and box["x"] + box["width"] <= edge["x"] + edge["width"] for box in boxes)


def test_a_map_gives_its_figures_as_files(page, address):
    page.goto(f"{address}/hardware?view=formats&model=Qwen/Qwen2.5-3B")
    assert "B200 SXM" in agree(page, "Longest context, tokens ")


def test_a_point_says_its_record_and_source(page, address):
    page.goto(f"{address}/accuracy")
    chart = page.get_by_role("figure", name="Predicted against measured")
    chart.scroll_into_view_if_needed()
    box = chart.locator(".scatterlayer .point").first.bounding_box()
    for act in (page.mouse.move, page.mouse.click):  # a point is one once it is pointed at
        act(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.get_by_test_id("stAlert").get_by_role("link")).to_have_attribute("href", re.compile("^https://"))
