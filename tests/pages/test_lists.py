"""What the question's lists offer, as this server hands it out."""

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from calc.formats import WEIGHT_FORMATS
from calc.hardware.gpus import gpus
from calc.hardware.mig import slices
from pages.parts.inputs import lists
from presets import models


@pytest.fixture(scope="module")
def client():
    with TestClient(Starlette(routes=[lists.LISTS.route()])) as client:
        yield client


@pytest.mark.parametrize(("language", "of_int4"), [("en", "4-bit"), ("zh", "4 位")])
def test_a_browser_keeps_the_lists_of_its_language(client, language, of_int4):
    answer = client.get(lists.LISTS.address(f"{language}.json"))
    assert "immutable" in answer.headers["cache-control"]
    offered = answer.json()
    assert {row["id"] for row in offered["model"]} == models().keys()
    assert [row["id"] for row in offered["gpu"]] == [*gpus(), *slices()]
    assert [name for name, _ in offered["weights"]] == [*WEIGHT_FORMATS]
    assert of_int4 in dict(offered["weights"])["int4"]


@pytest.mark.parametrize("address", ["/lists/0123456789ab/en.json", f"/lists/{lists.LISTS.version}/xx.json"])
def test_nothing_else_is_handed_out(client, address):
    assert client.get(address).status_code == 404


@pytest.mark.parametrize(
    ("gpu", "short"),
    [
        pytest.param("h200-sxm", "H200 SXM", id="of one memory"),
        pytest.param("a100-sxm-40gb", "A100 SXM 40GB", id="of two"),
        pytest.param("rtx-4090", "RTX 4090", id="without"),
    ],
)
def test_a_gpu_in_short_is_no_other(gpu, short):
    assert lists.short_name(gpus()[gpu]) == short
