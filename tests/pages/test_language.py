"""Every text on every page and in every state is said in the reader's language, whole."""

import ast
import string

import pytest

from calc.errors import Message
from calc.serving.engines import ENGINES
from calc.text import pack
from calc.verify.checkpoint import Checkpoint, StoredTensor
from pages.parts import words
from pages.parts.state.query import EVERYTHING
from pages.parts.state.scenario import Source, places
from presets import hub, models
from presets.hub import HubError, HubModel
from presets.studies import STUDIES
from tests import DATA, ROOT
from tests.messages import templates
from tests.pages.app import page, rows, run
from tests.pages.pseudo import Pseudo, escaped, texts

FIGURES = ("parameters", "active", "weights", "kv_cache_per_token", "kv_cache", "memory", "verdict_h100-sxm")
STEP = (
    "parameters",
    "trained",
    "weights",
    "master_weights",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "memory",
)
DRAWERS = ("engine_drawer", "layout_drawer", "overhead_drawer", "spread_drawer", "details_drawer")


@pytest.fixture(autouse=True)
def language(monkeypatch):
    """The language that is none. What a page says in it, a catalogue can hold."""
    pseudo = Pseudo()
    monkeypatch.setitem(words.CATALOGUES, "en", pseudo)
    yield
    assert sorted(pseudo.templates - {text for key in templates() for text in key}) == []


def unsaid(app):
    """What escaped on a page."""
    return sorted({(where, text) for where, text in texts(app) if escaped(text)})


def test_an_escape_is_found():
    assert escaped("Weights: ⟦Ŵéíĝĥŧš⟧ 3.00 GiB") == ["Weights"]
    assert escaped("⟦Ŵéíĝĥŧš⟧ 3.00 GiB of `hidden_size` beside H100 SXM 80GB") == ["of", "beside"]


SERVED = {
    "dense": {},
    "experts": {"model": "deepseek-ai/DeepSeek-V3", "tp": "8", "pp": "2", "batch": "8", "kv": "fp8"},
    "windows": {"model": "google/gemma-3-4b-it", "batch": "300", "weights": "int4"},
    "hybrid": {"model": "Qwen/Qwen3.6-35B-A3B", "num_hidden_layers": "8"},
    "recurrent": {"model": "state-spaces/mamba-130m-hf", "weights": "Q4_K_M"},
    "far": {"model": "openai-community/gpt2", "context": "1048576", "num_key_value_heads": "3"},
    "old": {"model": "openai/gpt-oss-120b", "dp": "2", "batch": "0", "frobnicate": "1", "logits": "all", "zero": "9"},
    "none": {"gpu": "l4"},
    "own": {"pasted": pack({"model_type": "llama", "assumed_from": "nonesuch"})},
    "unquantized": {"model": "Qwen/Qwen3-0.6B", "weights": "mxfp4", "gpu": "v100-sxm2-16gb,Mine:48GiB:960GB/s"},
}


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        pytest.param(name, engine, marks=() if engine == "vllm" or name in ("experts", "hybrid") else pytest.mark.sweep)
        for name in SERVED
        for engine in ENGINES
    ],
)
def test_weigh(name, engine):
    query = SERVED[name]
    assert unsaid(page("weigh", *DRAWERS, *(f"derive_{name}" for name in FIGURES), **query, engine=engine)) == []


@pytest.mark.parametrize("query", SERVED.values(), ids=SERVED)
def test_derive(query):
    assert unsaid(page("derive", **query)) == []


@pytest.mark.parametrize("name", [*STUDIES, "Zyphra/Zamba2-1.2B", "deepseek-ai/DeepSeek-V4-Flash"])
def test_derive_a_study(name):
    assert unsaid(page("derive", model=name, gpu="h200-sxm")) == []


TRAINED = {
    "full": {"model": "Qwen/Qwen2.5-0.5B"},
    "qlora": {"model": "Qwen/Qwen3-8B", "method": "qlora", "zero": "3", "dp": "8", "recompute": "selective"},
    "experts": {"model": "deepseek-ai/DeepSeek-V3", "tp": "8", "pp": "4", "dp": "16", "ep": "16", "accumulation": "32"},
    "recurrent": {"model": "Qwen/Qwen3.6-35B-A3B", "recipe": "deepspeed", "optimizer": "muon"},
    "vision": {"model": "google/gemma-3-4b-it", "recipe": "bf16", "loss": "fused", "optimizer_in_backward": "true"},
    "compressed": {"model": "deepseek-ai/DeepSeek-V4-Flash", "method": "lora"},
}


@pytest.mark.parametrize("query", TRAINED.values(), ids=TRAINED)
def test_train(query):
    app = page("train", *DRAWERS, *(f"derive_{name}" for name in STEP), "derive_verdict_h100-sxm", **query)
    assert unsaid(app) == []


@pytest.mark.parametrize("query", SERVED.values(), ids=SERVED)
def test_attention(query):
    assert unsaid(page("attention", **query)) == []


@pytest.mark.parametrize(
    "others",
    [
        "",
        "deepseek-ai/DeepSeek-V3,Qwen/Qwen3-8B:num_key_value_heads=32:kv=fp8,google/gemma-3-4b-it,"
        "state-spaces/mamba-130m-hf,openai/gpt-oss-120b",
        "Qwen/Qwen3-8B:frobnicate=1",
        "Qwen/Qwen3-8B:weights=fp8_ds_mla",
        "Qwen/Qwen3-8B",
    ],
)
def test_compare(others):
    assert unsaid(page("compare", model="Qwen/Qwen3-8B", num_gpus="2", **{"with": others})) == []


FEW = {"plan_gpus": "l4,h100-sxm"}
"""Of the usual GPUs, where others would be said in the same sentences."""
PLANNED = {
    "usual": {},
    "targets": {"users": "64", "tpot_ms": "30", "ttft_ms": "500", "weight_formats": "bf16,int4", "kv_formats": "fp8"}
    | FEW,
    "out of reach": {"users": "5000", "tpot_ms": "1", "ttft_ms": "1", "max_gpus": "2", "plan_gpus": "l4,h100-sxm"},
    "no money": {"budget": "0.01"},
    "no room": {"model": "deepseek-ai/DeepSeek-V3", "plan_gpus": "t4", "max_gpus": "1"},
    "rate": {"requests_per_s": "3", "prefix_share": "0.5", "engine": "sglang", "price": "l4=0.5", "budget": "9"} | FEW,
    "own": {"gpu": "Mine:48GiB:960GB/s:bf16=181", "plan_gpus": "Mine:48GiB:960GB/s:bf16=181", "users": "200"},
    "apart": {"users": "200", "prefill_decode": "apart", "plan_gpus": "h100-sxm,l4", "tpot_ms": "30"},
    "apart, out of reach": {"requests_per_s": "900", "prefill_decode": "apart", "ttft_ms": "1", "plan_gpus": "l4,b200"},
}


@pytest.mark.slow
@pytest.mark.parametrize("query", PLANNED.values(), ids=PLANNED)
def test_plan(query):
    drawers = ("plan_engine_drawer", "prices_drawer", "sensitivity_drawer", "listed_drawer", "launch_best")
    assert unsaid(page("plan", *drawers, **query)) == []


def test_hardware():
    assert unsaid(page("hardware", gpu="Mine:48GiB:960GB/s:bf16=181,l4")) == []


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("plan", {"users": "3", "requests_per_s": "2"}),
        ("plan", {"engine": "transformers"}),
        ("weigh", {"model": "Qwen/Qwen2.5-3B", "tp": "3"}),
        ("weigh", {"model": "Qwen/Qwen2.5-3B", "pp": "1000"}),
        ("weigh", {"model": "Qwen/Qwen2.5-3B", "ep": "3", "v": "2"}),
        ("weigh", {"model": "Qwen/Qwen3-30B-A3B", "ep": "3", "v": "2"}),
        pytest.param("weigh", {"model": "Qwen/Qwen2.5-3B", "num_key_value_heads": "7"}),
        ("weigh", {"model": "Qwen/Qwen2.5-3B", "generated": "9000"}),
        ("weigh", {"model": "Qwen/Qwen2.5-3B", "kv": "fp8_ds_mla"}),
        ("weigh", {"model": "Qwen/Qwen2.5-3B", "speculative": "mtp"}),
        ("weigh", {"kv_cache_memory_bytes": "9", "num_gpu_blocks_override": "9"}),
        pytest.param("weigh", {"pasted": pack({"model_type": "nonesuch"})}),
        pytest.param("weigh", {"pasted": pack({"hidden_size": 1})}),
        pytest.param("weigh", {"pasted": pack({"model_type": "llama", "num_hidden_layers": None})}),
        pytest.param("weigh", {"pasted": pack({"model_type": "llama", "hidden_size": [1]})}),
        ("train", {"tp": "3"}),
        ("train", {"model": "Qwen/Qwen3-30B-A3B", "ep": "3"}),
        ("train", {"model": "Qwen/Qwen3-30B-A3B", "ep": "5", "dp": "5"}),
        ("train", {"accumulation": "4", "optimizer_in_backward": "true"}),
        ("train", {"fp32_rest": "true"}),
        pytest.param("verify", {"pasted": pack({"model_type": "nonesuch"})}),
    ],
)
def test_what_does_not_go(name, query):
    app = page(name, **query)
    assert app.error
    assert unsaid(app) == []


OWN_PAGES = {"training": "train", "planning": "plan"}


def test_a_link_may_say_anything_for_some():
    free = ["revision", "file", "teacher", "model_draft", "overhead_log", "steps"]
    assert [place.name for place in places(EVERYTHING).values() if not refuses(place)] == free


def refuses(place):
    try:
        place.parse("²")
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("name", ["revision", "file"])
def test_what_a_preset_has_none_of(name):
    assert unsaid(page("weigh", **{name: "²"})) == []


@pytest.mark.parametrize("name", ["weigh", *OWN_PAGES.values()])
def test_what_a_link_says_wrong(name):
    """All that a page refuses in one link: each has a sentence of its own, and the rest of the page is as ever."""
    there = [place for place in places(EVERYTHING).values() if OWN_PAGES.get(place.path[0], "weigh") == name]
    wrong = [place.name for place in there if refuses(place)]
    app = page(name, **dict.fromkeys(wrong, "²"))
    said = [warning.value for warning in app.warning]
    assert [one for one in wrong if not any(f" {one}=" in sentence for sentence in said)] == []
    assert unsaid(app) == []


@pytest.mark.parametrize(
    "text",
    [
        *("", "[1]", "{1", "{'a': 1}", '{"a" 1}', '{"a": 1 "b"}', '{"a": "b', "[" * 99_999, '"\\x"'),
        pytest.param('{"model_type": "x"}'),
    ],
)
def test_a_paste_that_can_not_be_read(text):
    app = page("weigh", "own_drawer")
    app.text_area(key="own_text").set_value(text)
    run(app.button(key="own_weigh").click())
    assert unsaid(app) == []


GIVEN = HubModel(
    id="org/own",
    revision="c0ffee0c0ffee",
    files={"one-Q4_K_M.gguf": 1, "two.gguf": 1},
    config=models()["Qwen/Qwen2.5-3B"].config,
    note=Message(
        "Read from the header of {name}, whose tensors take {gib:.2f} GiB ({bytes:,} bytes).",
        name="x.gguf",
        gib=1,
        bytes=1,
    ),
)


def test_a_model_of_the_hub(monkeypatch):
    monkeypatch.setattr(hub, "fetch", lambda *_: GIVEN)
    assert unsaid(page(model="org/own", revision="v1")) == []


def test_an_unknown_family_of_the_hub(monkeypatch):
    strange = GIVEN.model_copy(update={"config": {"model_type": "strange"}})
    monkeypatch.setattr(hub, "fetch", lambda *_: strange)
    monkeypatch.setattr(hub, "checkpoint", lambda *_: Checkpoint(tensors={"a": StoredTensor("F8_E4M3", (8, 8), 64)}))
    assert unsaid(page(model="org/own")) == []


@pytest.mark.parametrize("wants_token", [True, False])
def test_a_model_that_the_hub_does_not_give(monkeypatch, wants_token):
    def fetch(*_):
        raise HubError(
            Message("The Hub ({hub}) can't be reached. {ways}", hub="x", ways=hub.WAYS), wants_token=wants_token
        )

    monkeypatch.setattr(hub, "fetch", fetch)
    assert unsaid(page(model="org/own")) == []


def verify(choice, **query):
    app = page("verify", **query)
    return run(app.segmented_control(key="beside").set_value(choice))


@pytest.mark.parametrize("choice", ["hub", "printed", "file", "log", "measured", "presets"])
def test_verify(choice):
    assert unsaid(verify(choice, model="Qwen/Qwen2.5-0.5B")) == []


def test_a_checkpoint_that_differs(monkeypatch):
    tensors = {"model.norm.weight": StoredTensor("F32", (3,), 12), "odd.weight": StoredTensor("BF16", (2, 2), 8)}
    monkeypatch.setattr(hub, "fetch", lambda *_: GIVEN)
    monkeypatch.setattr(hub, "checkpoint", lambda *_: Checkpoint(tensors=tensors))
    app = run(page("verify", model="Qwen/Qwen2.5-0.5B").button(key="read_headers").click())
    assert rows(app, "differences")
    assert unsaid(app) == []


@pytest.mark.parametrize(
    "text",
    [
        "Model(\n (e): Embedding(2, 2)\n (x): Odd(in_features=8, out_features=6)\n (y): Strange(size=8)\n)\nOther(\n",
        "Model(\n (e): Embedding(2, 2)\n (h): Linear(in_features=2, out_features=2)\n (n): LayerNorm((8,), eps=1)\n)",
        "Model(\n  (q): Linear4bit(in_features=8, out_features=6, bias=False)\n",
        "nothing",
        "Model(\n  (e): Embedding(x, 2)\n)",
    ],
)
def test_a_print_out(text):
    app = verify("printed", model="Qwen/Qwen2.5-0.5B")
    run(app.text_area(key="printed").set_value(text))
    assert unsaid(app) == []


LOGS = (DATA / "logs.txt").read_text()
STATES = LOGS.partition("=== vllm-state-blocks")[2].partition("\n===")[0]


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "Model loading took 15.1749 GiB\nAvailable KV cache memory: 50.13 GiB\nGPU KV cache size: 367,584 tokens",
        "Model loading took 14.99 GiB",
        "non-default args: {'model': 'Qwen/Qwen3-8B', 'tensor_parallel_size': 5000}\nModel loading took 15.1749 GiB",
        LOGS,
    ],
)
def test_a_log(text):
    app = verify("log", model="meta-llama/Llama-3.1-8B")
    run(app.text_area(key="log").set_value(text))
    assert unsaid(app) == []


@pytest.mark.parametrize("text", [STATES, "Graph capturing finished in 3 secs, took 0.45 GiB"])
def test_a_log_that_calibrates_and_one_that_died(text):
    app = verify("log", model="Qwen/Qwen3.6-27B")
    run(app.text_area(key="log").set_value(text))
    assert unsaid(app) == []
    for button in [button for button in app.button if button.key == "calibrate"]:
        assert unsaid(run(button.click())) == []


def test_overhead_from_a_log():
    assert unsaid(page(libraries="0.07-0.1", peak_gap="0.4-0.4", overhead_log="vLLM 0.25")) == []


@pytest.mark.parametrize("subject", ["memory", "starts", "speed"])
def test_accuracy(subject):
    app = page("accuracy", "served_drawer")
    assert unsaid(run(app.segmented_control(key="sections").set_value(subject))) == []


def test_a_name_that_the_reader_gave_is_no_template():
    assert words.say("{text}", text="{braces}") == "⟦{braces}⟧"
    assert Source().model in models()


@pytest.mark.slow
def test_templates_and_their_plurals_have_the_same_values():
    for file in [*(ROOT / "calc").rglob("*.py"), *(ROOT / "pages").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ("say", "Message"):
                plural = [keyword.value.value for keyword in node.keywords if keyword.arg == "plural"]
                if plural and isinstance(node.args[0], ast.Constant):
                    one, many = (
                        {name for _, name, _, _ in string.Formatter().parse(text) if name}
                        for text in (node.args[0].value, plural[0])
                    )
                    assert one | {"n"} == many | {"n"}
