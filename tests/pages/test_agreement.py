"""Bars, cards, table and file say the same of a GPU: for every preset what the functions draw, for some what the page
shows."""

import json
import re

import pytest

from calc import report
from calc.serving import verdict as verdict_module
from calc.serving.engines import ENGINES
from calc.serving.workload import Workload
from pages.parts import words
from pages.parts.outputs import cards, charts, gpu_rows, kv_budget
from presets import gpus, models
from tests import CHECKPOINT_ENGINES
from tests.pages.app import charts as drawn
from tests.pages.app import page, rows, texts
from tests.structures import mark, served_by

GIB = 2**30
SCALES = {"GiB": 1, "TiB": 1024}
KINDS = ("v100-sxm2-16gb", "a100-sxm-40gb", "rtx-4090", "h200-sxm")
CENT = 0.0051
"""GiB that two decimals leave open."""
HEADROOM = re.compile(r"^(\*\*Short by\*\* )?([\d,.]+)\s([GT]iB) (?:headroom )?of ([\d,.]+)\sGiB$")
UNIT = re.compile(r"%\{x:,.2f\} ([GT]iB)")
BATCH = re.compile(r"Max batch size: \*\*([\d,]+|none|no limit)\*\*")
CONTEXT = re.compile(r"Max context length: \*\*([\d,]+|none|no limit)(?: \(.+\))?\*\*")


def number(text):
    return float(text.replace(",", ""))


def most(text):
    """What a card says of the largest batch or context."""
    return {"none": 0, "no limit": None}[text] if text.isalpha() or " " in text else int(text.replace(",", ""))


def of_card(text):
    """Headroom and usable memory in GiB, and what two decimals of the headroom leave open."""
    short, size, unit, usable = HEADROOM.match(text).groups()
    spare = number(size) * SCALES[unit]
    return -spare if short else spare, number(usable), CENT * SCALES[unit]


def stacked(traces):
    """What the bars of each GPU add up to without what the overhead may add, and where its memory ends, in GiB."""
    *parts, _ = [trace for trace in traces if trace["type"] == "bar"]
    scale = SCALES[UNIT.search(traces[-1]["hovertemplate"])[1]]
    held = [scale * sum(sizes) for sizes in zip(*(bar["x"] for bar in parts), strict=True)]
    return held, [scale * end for end in traces[-1]["x"]]


@pytest.mark.parametrize(
    ("model", "engine"), [pytest.param(*case, marks=mark(case[0])) for case in served_by(CHECKPOINT_ENGINES)]
)
def test_what_is_drawn_agrees(model, engine, monkeypatch):
    monkeypatch.setattr(verdict_module, "fewest_gpus", lambda *_: None)  # nothing here shows it, and the search is long
    kinds = [gpus()[name] for name in KINDS]
    asked = report(models()[model].config, engine=ENGINES[engine](), workload=Workload(batch=2), gpus=kinds)
    held, ends = stacked(charts.gpu_bars(asked.verdicts, asked.memories)["data"])
    file = json.loads(asked.model_dump_json())
    budgets = [[column.of(budget) for column in kv_budget.columns()] for budget in asked.kv_budget]
    assert len(held) == len(file["verdicts"]) == len(KINDS)
    for place, (verdict, saved) in enumerate(zip(asked.verdicts, file["verdicts"], strict=True)):
        spare, usable, cent = of_card(cards.headroom(verdict))
        assert held[place] + spare == pytest.approx(usable, abs=CENT + cent)
        assert ends[place] == pytest.approx(usable, abs=CENT)
        assert saved["spare"] / GIB == pytest.approx(spare, abs=cent)
        assert saved["required"] == sum(saved["memory"].get(part, 0) for part in words.SEEING)
        length, batch, *_ = gpu_rows.largest(verdict, None, 131_072)
        assert most(CONTEXT.match(length)[1]) == saved["max_context"]
        assert most(BATCH.match(batch)[1]) == saved["max_batch"]
        if not budgets:
            continue
        (name, requests, tokens, *_, step, _), budget = budgets[place], file["kv_budget"][place]
        assert name == gpus()[saved["gpu"]].name
        assert (requests, tokens) == (round(budget["concurrency"], 4), budget["tokens"])
        assert step == saved["limits"]["step_tokens"]
        if saved["max_batch"]:  # it starts, and then the cache holds the requests of the table
            assert saved["max_batch"] == int(requests)
        if saved["verdict"] == "fits":
            assert requests >= 2
            assert saved["max_context_memory"] is None or saved["max_context_memory"] >= 8192
        else:
            assert saved["verdict"] != "does not fit" or requests < 2 or not saved["max_batch"]


@pytest.mark.parametrize("engine", CHECKPOINT_ENGINES)
@pytest.mark.parametrize("model", ["google/gemma-3-27b-it", "openai/gpt-oss-120b", "Qwen/Qwen3.5-9B"])
def test_what_the_page_shows_agrees(model, engine):
    app = page(model=model, engine=engine, batch="2", gpu=",".join(KINDS))
    held, ends = stacked(drawn(app)["gpus"]["data"])
    shown = texts(app.markdown)
    spares = [of_card(text) for text in shown if HEADROOM.match(text)]
    batches = [most(found[1]) for text in shown if (found := BATCH.search(text))]
    assert len(spares) == len(batches) == len(KINDS)
    for size, end, (spare, usable, cent) in zip(held, ends, spares, strict=True):
        assert end == pytest.approx(usable, abs=CENT)
        assert size + spare == pytest.approx(end, abs=cent)
    if ENGINES[engine].title == "transformers":
        return
    other = page(model=model, engine=engine, batch="2", gpu=",".join(KINDS), tab="length")
    requests = [row["Max concurrent requests"] for row in rows(other, "kv_budget")]
    assert batches == [int(n) if most else 0 for most, n in zip(batches, requests, strict=True)]
    assert sum(batches) > 0
