"""On a phone a table is cards; a row has an address, and the scale swings."""

import re

import pytest
from playwright.sync_api import expect


@pytest.mark.parametrize(
    ("view", "table", "row"),
    [
        pytest.param("plan", "Plans", "L4", marks=pytest.mark.sweep),
        pytest.param("machine", "Which file to download", "Q6_K", marks=pytest.mark.sweep),
        ("hardware", "GPUs", "B200 SXM"),
        pytest.param("train_plan", "Plans", "H100 SXM 80GB", marks=pytest.mark.sweep),
    ],
)
def test_on_a_phone_every_table_is_cards(page, address, view, table, row):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/{view}")
    rows = page.get_by_role("table", name=table, exact=True)
    rows.wait_for()
    search = page.get_by_role("searchbox", name=f"Search these rows: {table}")
    if search.is_visible():
        search.fill(row)
    card = rows.get_by_role("row").filter(has=page.get_by_role("button", name=row, exact=True))
    box = card.bounding_box()
    assert (box["width"] > 300, box["height"] > 80) == (True, True)
    card.get_by_role("button", name=row, exact=True).click()
    opened = "aria-pressed" if view == "hardware" else "aria-expanded"
    expect(card.get_by_role("button", name=row, exact=True)).to_have_attribute(opened, "true")
    expect(page.get_by_test_id("stDataFrame")).to_have_count(0)
    with page.expect_download() as download:
        page.get_by_role("button", name=f"{table} .csv", exact=True).click()
    assert row in download.value.path().read_text("utf-8")


@pytest.mark.parametrize(
    ("view", "section", "table", "row"),
    [
        pytest.param("accuracy", None, "Record by record", "Llama-3-8B, bf16", marks=pytest.mark.sweep),
        pytest.param("accuracy", "Start-ups", "Record by record", "Qwen/Qwen3-32B", marks=pytest.mark.sweep),
        pytest.param("accuracy", "Speed", "Record by record", "meta-llama/Llama-3.1-8B", marks=pytest.mark.sweep),
        pytest.param("verify", "All presets", "All presets", "Qwen/Qwen3-8B", marks=pytest.mark.sweep),
        ("?model=Qwen/Qwen3-8B", "Tensors", "Tensors", "lm_head.weight"),
    ],
)
def test_on_a_phone_records_are_cards_too(page, address, view, section, table, row):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/{view}")
    if section is not None:
        page.get_by_role("radio", name=section, exact=True).click()
    rows = page.get_by_role("table", name=table, exact=True)
    rows.wait_for()
    page.locator(".stApp[data-test-script-state=notRunning]").wait_for()
    page.get_by_role("searchbox", name=f"Search these rows: {table}").fill(row)
    card = rows.get_by_role("row").filter(has=page.get_by_role("rowheader", name=row)).first
    card.hover()  # goes on where the rows are drawn anew
    box = card.bounding_box()
    assert (300 < box["width"] <= 390, box["height"] > 80) == (True, True)
    expect(page.get_by_test_id("stDataFrame")).to_have_count(0)
    with page.expect_download() as download:
        page.get_by_role("button", name=f"{table} .csv", exact=True).click()
    assert row in download.value.path().read_text("utf-8")


@pytest.mark.parametrize(
    ("view", "role", "names"),
    [("gpus", "radio", ["Roofline", "MLX"]), ("derive", "cell", ["The rule leaves it out."])],
)
def test_on_a_phone_nothing_is_beyond_the_edge(page, address, view, role, names):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/{view}")
    for name in names:
        box = page.get_by_role(role, name=name, exact=True).first.bounding_box()
        assert box["x"] + box["width"] <= 390


def test_on_a_phone_a_row_is_a_card_that_opens_and_has_an_address(page, address):
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{address}/?model=Qwen/Qwen3-8B")
    row = page.get_by_role("row").filter(has=page.get_by_role("button", name="L40S", exact=True))
    box = row.bounding_box()
    assert box["width"] > 300
    assert box["height"] > 80
    row.get_by_role("button", name="L40S", exact=True).click()
    expect(page.get_by_text("Max context length:").first).to_be_in_viewport()
    expect(page).to_have_url(re.compile("opened=l40s"))
    page.reload()
    expect(page.get_by_text("Max context length:").first).to_be_visible()
    expect(page.get_by_role("button", name="L40S", exact=True)).to_have_attribute("aria-expanded", "true")
    page.get_by_role("button", name="L40S", exact=True).click()
    expect(page).not_to_have_url(re.compile("opened"))


def test_the_scale_swings_where_the_verdict_changes_and_only_there(page, address):
    page.goto(f"{address}/?model=Qwen/Qwen3-8B&gpu=l4")
    scale = page.locator(".weighbridge-scale")
    expect(scale).to_have_attribute("data-verdict", "green")
    needed = scale.locator(".left .figure")
    before = needed.text_content()
    page.get_by_role("spinbutton", name="Batch size").press("ArrowUp")
    expect(needed).not_to_have_text(before)
    expect(scale).not_to_have_class("weighbridge-scale swings")
    page.get_by_role("combobox", name="Context length").select_option(label="1M")
    expect(scale).to_have_attribute("data-verdict", "red")
    expect(scale).to_have_class("weighbridge-scale swings")
