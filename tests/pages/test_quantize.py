"""What quantizing takes: the page's title, its parts and their formulas, and the same answer for programs."""

import json

import pytest
from starlette.testclient import TestClient

from pages.api import api
from tests.pages.app import finding, page, texts

LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"


def test_the_title_is_the_finding():
    """16 · 28672² bytes of a Hessian and its copies, of a block of 855,654,400 weights, a head of 128,256 · 8192, and
    down_proj in fp32: 17.9 GB; 70.55 B weights and 512 · 2048 · 8192 states in bf16 in host memory."""
    app = page("quantize", model=LLAMA_70B)
    sentence = "GPTQ of Llama-3.3-70B-Instruct takes 16.68 GiB on one GPU and 147.42 GiB of host memory"
    assert finding(app) == sentence
    assert any("`16·w_28672²`" in text and "13,153,337,344" in text for text in texts(app.markdown))


@pytest.mark.parametrize(
    ("query", "says"),
    [
        pytest.param({"to": "Q4_K_M"}, "needs no GPU", id="gguf"),
        pytest.param({"to": "mlx-4bit"}, "does not run on it", id="mlx"),
        pytest.param({"to": "int4", "keep_inputs_on": "host"}, "outputs of all samples, twice", id="awq"),
        pytest.param({"to": "fp8"}, "as the tool counts them", id="fp8"),
        pytest.param({"to": "int4-gptq", "calibration_samples": "64"}, "blocks that are done", id="gptqmodel"),
        pytest.param({"to": "nf4"}, "the quantized model", id="bitsandbytes"),
    ],
)
def test_each_kind_of_conversion_shows_its_parts(query, says):
    app = page("quantize", model="Qwen/Qwen3-8B", **query)
    assert not app.exception
    assert any(says in text for text in texts(app.markdown))


def test_a_tool_that_does_not_make_the_format_is_named():
    app = page("quantize", to="Q4_K_M", tool="autoawq")
    assert any("llama.cpp does" in error.value for error in app.error)


def test_programs_get_the_same_answer():
    client = TestClient(api())
    answer = client.get("/quantize", params={"model": LLAMA_70B, "gpu": "rtx-4090"})
    assert answer.status_code == 200
    report = json.loads(answer.text)
    assert (report["tool"], report["verdicts"][0]["verdict"]) == ("llm-compressor", "fits")
    assert report["phases"][1]["gpu"][2]["bytes"] == 16 * 28672**2
    assert client.get("/quantize", params={"to": "int3"}).status_code == 422
