"""The pages' answers for programs: the command line's own bytes, refusals as sentences, nothing from elsewhere."""

import json
import re
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

import pages.api
from calc.units import GIB
from cli import main
from pages.api import VERSION, api
from pages.parts.limits import PerMinute
from pages.parts.state.query import GLOSSARY, PAGES
from pages.parts.verify.evidence import FILE
from pages.parts.words import BOUNDS, say
from presets import gpus, hub, models
from presets.hub import HubModel
from tests import load
from tests.pages.app import finding, page, rows
from tests.structures import mark

CLIENT = TestClient(api())
QUESTIONS = {
    "report": ["model=Qwen/Qwen3-8B&gpu=h100-sxm,l4&batch=4", "Qwen/Qwen3-8B --gpu h100-sxm l4 --batch 4"],
    "report, of MIG slices": [
        "model=Qwen/Qwen3-8B&gpu=h100-sxm:3g.40gb,h100-sxm&kv_offloading_size=64",
        "Qwen/Qwen3-8B --gpu h100-sxm:3g.40gb h100-sxm --kv-offloading-size 64",
    ],
    "report, changed": [
        "model=Qwen/Qwen3-8B&num_key_value_heads=4&engine=sglang",
        "Qwen/Qwen3-8B --set num_key_value_heads=4 --engine sglang",
    ],
    "report, on several": [
        "model=deepseek-ai/DeepSeek-V3&num_gpus=8&gpu=h200-sxm&weights=fp8",
        "deepseek-ai/DeepSeek-V3 --num-gpus 8 --gpu h200-sxm --weights fp8",
    ],
    "report, of copies": [
        "model=Qwen/Qwen3-30B-A3B&gpu=h100-sxm&tp=2&dp=2&ep=4&v=3",
        "Qwen/Qwen3-30B-A3B --gpu h100-sxm --tp 2 --dp 2 --ep 4",
    ],
    "train": ["model=Qwen/Qwen3-8B&method=lora", "Qwen/Qwen3-8B --train --method lora"],
    "steps": [
        "model=Qwen/Qwen3-8B&method=lora&gpu=h100-sxm&steps=model%3DQwen/Qwen3-8B%26method%3Dlora%26lora_rank%3D64",
        "Qwen/Qwen3-8B --train --method lora --gpu h100-sxm --with=--method~lora~--lora-rank~64",
    ],
    "together": [
        "model=Qwen/Qwen3-8B&gpu=h100-sxm&num_gpus=2&kv=fp8&share_with=BAAI/bge-m3,context=512;Qwen/Qwen3-0.6B,batch=2",
        "Qwen/Qwen3-8B --gpu h100-sxm --num-gpus 2 --kv fp8 --share-with BAAI/bge-m3,context=512 "
        "--share-with Qwen/Qwen3-0.6B,batch=2",
    ],
    "plan": ["model=Qwen/Qwen3-8B&users=4&plan_gpus=h100-sxm,l4", "Qwen/Qwen3-8B --users 4 --gpu h100-sxm l4"],
    "plan, changed": [
        "model=Qwen/Qwen3-8B&num_key_value_heads=4&users=4&plan_gpus=l4",
        "Qwen/Qwen3-8B --set num_key_value_heads=4 --users 4 --gpu l4",
    ],
    "plan, of MIG slices": [
        "model=Qwen/Qwen3-8B&users=4&plan_gpus=h100-sxm:3g.40gb,l4",
        "Qwen/Qwen3-8B --users 4 --gpu h100-sxm:3g.40gb l4",
    ],
    "plan, with flags of the engine": [
        "model=Qwen/Qwen3-8B&users=4&plan_gpus=l4&gpu_memory_utilization=0.8&enforce_eager=true&version=0.20",
        "Qwen/Qwen3-8B --users 4 --gpu l4 --gpu-memory-utilization 0.8 --enforce-eager --version 0.20",
    ],
    "plan, of smaller nodes": [
        "model=Qwen/Qwen2.5-72B&users=4&plan_gpus=l40s&node=2",
        "Qwen/Qwen2.5-72B --users 4 --gpu l40s --node 2",
    ],
    "plan, priced": [
        "model=Qwen/Qwen3-8B&users=4&plan_gpus=h100-sxm,l4&price=l4=0.1",
        "Qwen/Qwen3-8B --users 4 --gpu h100-sxm l4 --price l4=0.1",
    ],
    "plan of training": [
        "model=Qwen/Qwen3-8B&purpose=train&plan_gpus=h100-sxm&gpus=8",
        "Qwen/Qwen3-8B --train --gpu h100-sxm --gpus 8",
    ],
}


def printed(capsys, name, words):
    doors = {"plan": "plan", "together": "fits"}
    first = next((door for start, door in doors.items() if name.startswith(start)), "report")
    assert main([first, *(word.replace("~", " ") for word in words.split()), "--json"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_answer_is_what_the_command_line_prints(name, capsys):
    query, words = QUESTIONS[name]
    reply = CLIENT.get(f"/{name.partition(',')[0].partition(' ')[0]}?{query}")
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/json"
    assert reply.text == printed(capsys, name, words)


DOORS = {
    "report": ("report", "gpu=h100-sxm,l4&batch=4", "--gpu h100-sxm l4 --batch 4"),
    "train": ("report", "method=lora&gpu=h100-sxm", "--train --method lora --gpu h100-sxm"),
    "plan": ("plan", "users=4&plan_gpus=h100-sxm,l4", "--users 4 --gpu h100-sxm l4"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "door"),
    [
        pytest.param(name, door, marks=mark(name, n, 2 * len(DOORS)))
        for name in models()
        for n, door in enumerate(DOORS)
    ],
)
def test_every_preset_has_the_command_lines_answer(model, door, capsys, monkeypatch):
    """Its bytes; where there is none, its sentence."""
    monkeypatch.setattr(pages.api, "ANSWERED", PerMinute(10_000))
    first, query, words = DOORS[door]
    reply = CLIENT.get(f"/{door}?model={model}&{query}")
    status = main([first, model, *words.split(), "--json"])
    out, err = capsys.readouterr()
    assert (reply.status_code == 200) == (status == 0), (reply.text, err)
    if status == 0:
        assert reply.text == out
    else:
        assert reply.json()["errors"][0] in err


@pytest.mark.slow
@pytest.mark.parametrize("model", [pytest.param("Qwen/Qwen3-8B", marks=pytest.mark.sweep), "openai/gpt-oss-20b"])
def test_an_answer_is_what_the_page_shows(model):
    """Of pages whose question the command line has no words for."""
    files = CLIENT.get("/machine", params={"model": model}).json()["files"]
    shown = rows(page("machine", "local_columns", model=model), "local_files")
    assert [round(run["file"]["bytes"] / GIB, 4) for run in files.values()] == [row["Size, GiB"] for row in shown]

    fits = CLIENT.get("/gpus", params={"model": model, "cards": "2"}).json()["fits"]
    assert f"fits on {len(fits)} of" in finding(page("gpus", model=model, cards="2"))
    passes = CLIENT.get("/gpus", params={"model": model, "view": "roofline"}).json()["passes"]
    assert say(BOUNDS[passes["Decode, batch 1"]["bound"]]) in finding(page("gpus", model=model, view="roofline"))

    both = CLIENT.get("/compare", params={"model": model, "with": "Qwen/Qwen3-0.6B:weights=fp8"}).json()["reports"]
    assert both["B"]["parameters"] == CLIENT.get("/report?model=Qwen/Qwen3-0.6B").json()["parameters"]
    assert both["A"] == CLIENT.get("/report", params={"model": model}).json()


def test_a_comparison_asks_the_hub_once_for_its_model(monkeypatch):
    """The model of the query is read with the question; reports are made of that."""
    given = HubModel(id="org/own", revision="c0ffee", files={}, config=models()["Qwen/Qwen2.5-3B"].config)
    fetched = []
    monkeypatch.setattr(hub, "fetch", lambda *question: fetched.append(question) or given)
    both = CLIENT.get("/compare", params={"model": "org/own", "with": "Qwen/Qwen3-8B"}).json()["reports"]
    assert both["A"]["parameters"] == CLIENT.get("/report?model=Qwen/Qwen2.5-3B").json()["parameters"]
    assert [question[0] for question in fetched] == ["org/own"]


def test_an_answer_about_no_model():
    assert CLIENT.get("/accuracy").json() == json.loads(FILE.read_bytes())
    assert [gpu["id"] for gpu in CLIENT.get("/hardware").json()["gpus"]] == list(gpus())


@pytest.mark.sweep
@pytest.mark.parametrize("model", models())
def test_the_answer_of_every_preset(model, capsys):
    assert CLIENT.get(f"/report?{urlencode({'model': model})}").text == printed(capsys, "report", model)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("report?batch=abc", "The query says batch=“abc”: batch is a whole number from 1 to 16,777,216."),
        ("report?nonsense=1", "The query says nonsense=“1”: no page has a parameter of this name."),
        ("report?batch=1&batch=2", "The query says “batch” 2 times."),
        ("report?model=a b", "The query says model=“a b”: model is a text such as Qwen/Qwen2.5-3B."),
        (
            "report?pasted=zz",
            "The query says pasted=“zz”: There is no text; a config.json is an object of fields in braces.",
        ),
        (
            "report?gpu=h200",
            "The query says gpu=“h200”: There is no GPU “h200”. Near it: h200-sxm, h200-nvl, gh200-96gb, gh200-144gb. "
            "Your own is written name:48GiB:960GB/s:bf16=181.",
        ),
        ("report?hidden_size=7", "The query says hidden_size=“7”: hidden_size is a whole number from 64 to 65,536."),
        ("gpus?engine=transformers", "engine is one of vllm, sglang, tensorrt-llm, llamacpp, mlx here."),
        ("plan?users=4&requests_per_s=3", "users and requests_per_s are two ways to say the same: give one of them."),
        (
            "train?method=magic",
            "The query says method=“magic”: method is one of full, lora, qlora, pretrain, one of sft, dpo, kto, orpo, "
            "simpo, cpo, reward, grpo, rloo, ppo, gkd, distillation, or both with a comma.",
        ),
        ("report?users=4", "The query says users=“4”: it changes nothing of this answer."),
        ("train?num_gpus=2", "The query says num_gpus=“2”: it changes nothing of this answer."),
        ("machine?gpu=l4", "The query says gpu=“l4”: it changes nothing of this answer."),
        ("plan?batch=4", "The query says batch=“4”: it changes nothing of this answer."),
        ("plan?tp=2", "The query says tp=“2”: it changes nothing of this answer."),
        (
            "plan?engine=sglang&enforce_eager=true",
            "The query says enforce_eager=“true”: enforce_eager has no effect with SGLang.",
        ),
        ("report?node=4", "The query says node=“4”: it changes nothing of this answer."),
        (
            "train?share=training_matmul=0.5/0.6/0.7",
            "The query says share=“training_matmul=0.5/0.6/0.7”: it changes nothing of this answer.",
        ),
        ("gpus?kv=fp8", "The query says kv=“fp8”: it changes nothing of this answer."),
        ("gpus?weights=fp8", "The query says weights=“fp8”: it changes nothing of this answer."),
        ("gpus?enforce_eager=true", "The query says enforce_eager=“true”: it changes nothing of this answer."),
        ("gpus?num_gpus=2", "The query says num_gpus=“2”: it changes nothing of this answer."),
        (
            "train?method=dpo&sequence=2048",
            "The query says sequence=“2048”: sequence has no effect with dpo; use prompt, completion and log_probs.",
        ),
        (
            "train?method=dpo&rollout=colocated",
            "The query says rollout=“colocated”: Only method grpo|rloo|ppo|distillation generates completions.",
        ),
        (
            "train?method=grpo&engine_share=0.4",
            "The query says engine_share=“0.4”: engine_share takes effect only with rollout colocated or server.",
        ),
        (
            "steps?gpu=h100-sxm&steps=method%3Ddpo%26sequence%3D2048",
            "The link says sequence=“2048”, which is left out. sequence has no effect with dpo; use prompt, completion "
            "and log_probs.",
        ),
    ],
)
def test_a_bad_question_gets_a_sentence(query, sentence):
    reply = CLIENT.get(f"/{query}")
    assert reply.status_code == 422
    assert reply.json()["errors"] == [sentence]


def test_one_address_gets_so_many_answers_a_minute(monkeypatch):
    monkeypatch.setattr(pages.api, "ANSWERED", PerMinute(2))
    reader = TestClient(api(), client=("8.8.8.8", 50000))
    replies = [reader.get("/report?model=Qwen/Qwen3-8B&gpu=l4").status_code for _ in range(3)]
    assert replies == [200, 200, 429]
    assert TestClient(api(), client=("9.9.9.9", 50000)).get("/report?batch=x").status_code == 422


def test_how_a_page_is_shown_changes_no_number():
    plain = CLIENT.get("/report?model=Qwen/Qwen3-8B")
    assert CLIENT.get("/report?model=Qwen/Qwen3-8B&lang=zh&tab=length&v=3&embed=true").text == plain.text


def test_the_documentation_is_of_this_server():
    text = CLIENT.get("/docs").text
    sources = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert len(sources) >= 3
    assert all(source.startswith("/") and not source.startswith("//") for source in sources)
    assert {CLIENT.get(source).status_code for source in sources} == {200}


def paths(schema, known, prefix, seen=()):
    """Every field of an answer: its path and its JSON types."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in seen:
            yield from paths(known[name], known, prefix, (*seen, name))
        return
    for choice in schema.get("anyOf", schema.get("oneOf", ())):
        yield from paths(choice, known, prefix, seen)
    for name, inner in schema.get("properties", {}).items():
        yield f"{prefix}.{name}"
        yield from paths(inner, known, f"{prefix}.{name}", seen)
    if "items" in schema:
        yield from paths(schema["items"], known, f"{prefix}[]", seen)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from paths(schema["additionalProperties"], known, f"{prefix}.*", seen)


def fields():
    """Of every answer, from the OpenAPI document."""
    document = CLIENT.get("/openapi.json").json()
    known = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        schema = methods["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        yield from paths(schema, known, path)


def test_no_field_of_the_contract_is_gone():
    """tests/data/api_1.json has the fields of the first release with an API: `python -m tests.pages.test_api`. A field
    that has to go opens a new version."""
    assert CLIENT.get("/openapi.json").json()["info"]["version"] == VERSION
    assert set(load("api_1.json")) <= set(fields())


def test_every_page_but_the_glossary_has_a_route():
    document = CLIENT.get("/openapi.json").json()
    assert {f"/{place.answers_at}" for place in PAGES if place != GLOSSARY} == set(document["paths"])


def test_what_memory_sets_no_limit_to_is_no_number():
    """Mamba has states alone, as long as a sequence may be: a report's `max_context` is null too."""
    found = CLIENT.get("/gpus?model=state-spaces/mamba-2.8b-hf").json()["fits"]
    assert found["h100-sxm"]["bf16"]["max_context"] is None
    (verdict,) = CLIENT.get("/report?model=state-spaces/mamba-2.8b-hf&gpu=h100-sxm").json()["verdicts"]
    assert verdict["max_context"] is None
    assert CLIENT.get("/machine?model=state-spaces/mamba-2.8b-hf").json()["best"]["longest"] is None


if __name__ == "__main__":
    print(json.dumps(sorted(set(fields())), indent=0))
