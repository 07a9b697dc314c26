"""The five places, their views and old addresses, and what is kept as B, without a browser."""

import re
import tomllib

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from pages.parts.outputs.preview import Addresses
from pages.parts.state.query import AREAS, COMPARE, GLOSSARY, PAGES
from tests import ROOT
from tests.pages.app import components, page, run, script, texts
from tests.pages.test_attention import row

ENTRIES = {"api.py", "compare.py", "glossary.py", "machine.py", "router.py", "evidence", "model", "serve", "train"}
"""What `pages` shows: the places, the two pages that belong to none, and what serves them."""


def ways(app):
    """The labels of the links to places and views, in their order."""
    names = {str(area.title) for area in AREAS} | {str(view.title) for area in AREAS for view in area.pages}
    return [link.proto.label for link in app.get("page_link") if link.proto.label in names]


def test_the_folder_shows_the_places():
    shown = {entry.name for entry in (ROOT / "pages").iterdir() if entry.suffix == ".py" or any(entry.glob("*.py"))}
    assert shown - {"parts"} == ENTRIES
    assert {page.script for page in PAGES} == {
        file.relative_to(ROOT / "pages").as_posix()
        for file in (ROOT / "pages").rglob("*.py")
        if "parts" not in file.parts and file.name not in ("api.py", "router.py")
    }


def test_what_stays_over_a_page_has_its_ground():
    """What a page scrolls under is of the theme's colours, of which CSS knows no name."""
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text("utf-8"))["theme"]
    grounds = re.findall(r"background: (light-dark.*);", (ROOT / "pages" / "frame.css").read_text("utf-8"))
    light, dark = (theme[scheme]["backgroundColor"].lower() for scheme in ("light", "dark"))
    assert set(grounds) == {f"light-dark({light}, {dark})"}


def test_every_page_but_two_is_a_view_of_one_place():
    views = [view for area in AREAS for view in area.pages]
    assert len(AREAS) == 5
    assert len(set(views)) == len(views)
    assert set(PAGES) - set(views) == {COMPARE, GLOSSARY}


@pytest.mark.parametrize(
    ("name", "views"),
    [
        ("weigh", ["Weigh", "Plan", "On all GPUs", "Several models"]),
        ("train_plan", ["Training step", "Side by side", "Training plan"]),
        ("steps", ["Training step", "Side by side", "Training plan"]),
        ("machine", []),
        ("derive", ["Design", "Attention", "Derive", "Quantize"]),
        ("hardware", ["Verify", "Accuracy", "Hardware"]),
        ("compare", []),
        ("glossary", []),
    ],
)
def test_a_page_shows_the_places_and_the_views_of_its_own(name, views):
    assert ways(page(name)) == ["Serve", "Train", "My machine", "Model", "Evidence", *views]


@pytest.mark.parametrize("name", ["accuracy", "glossary", "gpus", "hardware", "verify"])
def test_a_page_hands_out_its_link(name):
    (button,) = components(page(name, model="Qwen/Qwen3-0.6B"), "weighbridge_copy").values()
    assert "?model=Qwen/Qwen3-0.6B&" in button["text"]


@pytest.fixture(scope="module")
def client():
    routes = [Route("/{path:path}", lambda request: PlainTextResponse(request.url.path))]
    with TestClient(Starlette(routes=routes, middleware=[Middleware(Addresses)]), follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("/plan?purpose=train&gpus=8&tokens=1e10", "train_plan?purpose=train&gpus=8&tokens=1e10"),
        ("/plan/?purpose=train", "../train_plan?purpose=train"),
        ("/weigh/bridge/hardware?view=models&card=l4", "gpus?view=models&card=l4"),
        ("/hardware?gpu=Mine:48GiB:960GB/s&view=roofline", "gpus?gpu=Mine:48GiB:960GB/s&view=roofline"),
    ],
)
def test_an_old_address_leads_to_where_its_numbers_are(client, before, now):
    answer = client.get(before)
    assert answer.status_code == 307
    assert answer.headers["location"] == now


@pytest.mark.parametrize(
    "address",
    ["/", "/plan", "/plan?purpose=serve", "/hardware?gpu=l4", "/api/plan?purpose=train", "/train?view=models"],
)
def test_other_addresses_stay(client, address):
    assert client.get(address).text == address.partition("?")[0]


def test_plans_of_training_and_of_serving_do_not_mix():
    """The purpose is the page's, whatever a link or the page before says."""
    app = page("train_plan", model="Qwen/Qwen3-0.6B", gpus="8", global_batch="32", plan_gpus="h100-sxm")
    assert app.query_params["purpose"] == "train"
    app = run(app.switch_page(script("plan")))
    assert "purpose" not in app.query_params
    assert not any("billions" in box.label for box in app.number_input)


@pytest.mark.slow
def test_what_is_kept_as_b_goes_along():
    """A changed model is kept on Weigh, then the slider moves on; Compare has both, and so has Train's link."""
    app = page(model="Qwen/Qwen3-8B", num_key_value_heads="32")
    run(app.button(key="add_current").click())
    kept = "Qwen/Qwen3-8B:num_key_value_heads=32:weights=bf16:kv=bf16"
    assert app.query_params["with"] == kept
    assert "Compare A with B" in [link.proto.label for link in app.get("page_link")]
    run(app.select_slider(key="field_num_key_value_heads").set_value(8))
    for name in ("train", "derive", "compare"):
        app.query_params.clear()  # as the navigation does
        app = run(app.switch_page(script(name)))
        assert app.query_params["with"] == kept
    assert row(app, "KV cache, total") == ["KV cache, total", "1.12 GiB", "4.50 GiB :gray-badge[×4]"]


@pytest.mark.parametrize(
    ("name", "letters"), [("plan", ["C"]), ("verify", ["C"]), ("train", []), ("gpus", []), ("accuracy", [])]
)
def test_a_link_with_b_shows_it_anywhere(name, letters):
    """Pages that are about no model keep none, and lead to what is kept."""
    app = page(name, **{"with": "Qwen/Qwen2.5-3B"})
    assert "Compare A with B" in [link.proto.label for link in app.get("page_link")]
    assert [button.label for button in app.button if button.key == "add_current"] == [f"Keep as {c}" for c in letters]


def pinned(app):
    (text,) = [one.proto.body for one in app.get("html") if 'class="weighbridge-pinned"' in one.proto.body]
    return text


@pytest.mark.parametrize("name", ["design", "attention", "derive"])
def test_the_views_of_a_model_keep_its_total_in_sight(name):
    """8,190,735,360: the tensors of Qwen3-8B's checkpoint on the Hub."""
    text = pinned(page(name, model="Qwen/Qwen3-8B", gpu="v100-sxm2-16gb,h100-sxm"))
    assert "<small>8,190,735,360</small>" in text
    stops = [float(share) for share in re.findall(r"([\d.]+)%[,)]", text.partition("conic-gradient")[2])]
    assert stops == sorted(stops)
    assert stops[-1] == pytest.approx(100, abs=0.1)
    app = page(name, model="Qwen/Qwen3-8B", gpu="v100-sxm2-16gb,h100-sxm")
    (lines,) = [text for text in texts(app.markdown) if "check_circle: Fits]" in text and "V100" in text]
    fits, not_ = lines.split("  \n")
    assert fits.endswith("H100 SXM")
    assert not_.startswith(":red-badge")
    assert not_.endswith("V100 SXM2 16GB")


def test_the_total_follows_a_slider():
    """A layer of the checkpoint has 2 x 4,096 x (4,096 + 1,024) + 3 x 4,096 x 12,288 weights in matrices, and norms of
    2 x 4,096 and 2 x 128."""
    app = page("derive", model="Qwen/Qwen3-8B")
    run(app.slider(key="field_num_hidden_layers").set_value(35))
    assert f"<small>{8_190_735_360 - 192_946_432:,}</small>" in pinned(app)
