"""What helps those who come for the first time: examples, the glossary, and the ways between pages."""

import pytest

from calc.time.prices import usd_per_million
from pages.parts.outputs.share import EXAMPLES
from tests.pages.app import finding, page, run, texts


def links(app):
    return {
        link.proto.label.replace("\N{NO-BREAK SPACE}", " "): link.proto.query_string for link in app.get("page_link")
    }


def test_a_first_visit_shows_three_questions():
    shown = links(page())
    assert {str(question) for question, _, _ in EXAMPLES} <= shown.keys()
    assert "num_gpus=8" in shown["Does DeepSeek-V3 fit on 8 × H200?"]
    assert "derive=parameters" in shown["Why is Qwen2.5-3B 3.09 B?"]
    assert "What does GQA save?" not in links(page(model="Qwen/Qwen3-0.6B"))


def test_the_first_example_is_answered():
    question = page(model="deepseek-ai/DeepSeek-V3", gpu="h200-sxm", num_gpus="8")
    assert finding(question).startswith("DeepSeek-V3 fits on 8 × H200")


def test_the_glossary():
    app = page("glossary")
    said = "\n".join(texts(app.markdown))
    for word in ("Hidden size", "Multi-head latent attention (MLA)", "ZeRO / FSDP sharding", "`n_kv`", "Router"):
        assert f"| {word}" in said or f"| **{word}**" in said, word
    for table in texts(app.markdown):
        named = [line.split("|")[1] for line in table.splitlines() if "**" in line]
        assert len(named) == len(set(named))
    run(app.text_input(key="sought").set_value("latent"))
    assert all("latent" in line.casefold() for text in texts(app.markdown) for line in text.splitlines()[4:-2])


def test_answers_lead_to_their_line_on_paper():
    for name, anchor in (("train", "training"), ("attention", "kv_cache_per_token"), ("compare", "memory")):
        assert f"derive={anchor}" in links(page(name, model="Qwen/Qwen3-8B", gpu="h100-sxm"))["Step by step"]


def test_price_of_a_million_tokens():
    """An hour of 8 GPUs at 3 dollars is 24 dollars; 1,000 tokens/s make 3.6 million in it."""
    assert usd_per_million(1000, 8, 3) == pytest.approx(24 / 3.6)


def test_every_model_of_a_comparison_has_its_speed_and_price():
    app = page("compare", **{"model": "Qwen/Qwen3-8B", "gpu": "h100-sxm", "with": "Qwen/Qwen3-0.6B"})
    (table,) = (text for text in texts(app.markdown) if "Tokens/s per user" in text)
    rows = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in table.splitlines()}
    for name in ("Smallest GPU that fits", "Tokens/s per user", "US dollars per million output tokens"):
        assert len(rows[name]) == 2
        assert "–" not in "".join(rows[name])
