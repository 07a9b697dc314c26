"""The page of plans draws what calc's search finds, and takes a plan over to Weigh."""

import json
from functools import cache
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from calc import Architecture, Precision
from calc.serving.engines import ENGINES
from calc.text import pack
from calc.time.plan import Needs, Search
from calc.time.plan_report import plan_range
from calc.time.training_plan import TrainingNeeds, training_plan_report
from cli import main
from pages.api import api
from pages.parts.state import query as query_of
from pages.parts.state import session
from pages.parts.state.compared import compared
from pages.parts.state.planned import as_step, planned, training_planned, weigh
from pages.parts.state.query import decode, encode
from pages.parts.state.scenario import Scenario
from pages.parts.state.weighed import trained, weighed
from presets import gpus, models
from tests.pages.app import QUESTION, ask, components, facts, finding, metrics, newest, opened, page, rows, run, texts
from tests.pages.app import charts as drawn

ASKED = {
    "one user": ("Qwen/Qwen3-8B", {}, {}, [None]),
    "many users": (
        "meta-llama/Llama-3.1-70B",
        {"users": "64", "prompt": "4000", "output": "200", "tpot_ms": "50", "ttft_ms": "2000"},
        {"users": 64, "prompt": 4000, "output": 200, "tpot_ms": 50, "ttft_ms": 2000},
        ["bf16", "fp8"],
    ),
    "latents": ("deepseek-ai/DeepSeek-V3", {"requests_per_s": "2"}, {"requests_per_s": 2}, [None]),
}
FEW = ("h100-sxm", "h200-sxm", "l40s", "mi300x", "b200")
"""GPUs of all searches but the first, which is on all."""


@cache
def searched(name):
    """The search without a page."""
    model, _, needs, formats = ASKED[name]
    config = models()[model].config
    precisions = [Precision.of(config, form) for form in formats]
    whole = Architecture.from_config(config)
    kinds = list(gpus().values()) if name == "one user" else [gpus()[kind] for kind in FEW]
    return Search(whole, ENGINES["vllm"](), Needs(**needs), kinds, precisions)


@pytest.mark.parametrize("name", ASKED)
def test_the_table_is_the_search(name):
    model, query, _, formats = ASKED[name]
    more = {"weight_formats": ",".join(formats)} if None not in formats else {}
    more |= {"plan_gpus": ",".join(FEW)} if name != "one user" else {}
    app = page("plan", "plan_columns", model=model, **query, **more)
    plans = searched(name).plans(40)
    shown = rows(app, "plans_table")
    assert len(shown) == len(plans)
    for row, plan in zip(shown, plans, strict=True):
        assert (row["GPU"], row["GPUs"], row["Weights"]) == (gpus()[plan.gpu].name, plan.gpus, plan.weights)
        speeds = plan.tokens_per_s_per_user, plan.tokens_per_s, plan.ttft_ms, plan.headroom_gib
        heads = "Tokens/s per user", "Tokens/s in all", "TTFT, ms", "Headroom, GiB per GPU"
        assert [row[head] for head in heads] == [round(figure, 4) for figure in speeds]
        assert row["Meets"] == plan.meets
    assert gpus()[plans[0].gpu].name in finding(app)


@pytest.mark.parametrize("name", ASKED)
def test_the_range_is_round_the_plan(name):
    search = searched(name)
    for plan in search.plans(20):
        span = plan_range(search, plan)
        assert span.tpot_ms.expected == pytest.approx(plan.tpot_ms)
        assert span.ttft_ms.expected == pytest.approx(plan.ttft_ms)
        assert span.tokens_per_s.expected == pytest.approx(plan.tokens_per_s)
        assert span.tpot_ms.low < plan.tpot_ms < span.tpot_ms.high


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "query"),
    [
        pytest.param("Qwen/Qwen3-8B", {"users": "4"}, id="small"),
        pytest.param("meta-llama/Llama-3.1-70B", {"users": "16", "weight_formats": "fp8"}, id="large"),
        pytest.param("deepseek-ai/DeepSeek-V3", {"users": "32", "plan_gpus": "h200-sxm"}, id="experts"),
    ],
)
def test_a_plan_is_taken_over(model, query):
    app = page("plan", model=model, **query)
    first = rows(app, "plans_table")[0]
    run(app.button(key="use_best").click())
    assert metrics(app).keys() >= {"Parameters", "Memory per GPU"}
    assert first["GPU"] in finding(app)
    again = page(**{name: value[0] if isinstance(value, list) else value for name, value in app.query_params.items()})
    assert metrics(again) == metrics(app)


def test_the_load_is_asked_for_in_the_question():
    """Users stand for requests a second, and the other way round; lengths are of both."""
    app = page("plan", model="Qwen/Qwen3-0.6B", requests_per_s="2", plan_gpus="l4")
    assert "users" not in pieces(app)
    ask(app, prompt=1000, output=100)
    asked = [app.query_params[name] for name in ("prompt", "output", "requests_per_s")]
    assert asked == ["1000", "100", "2"]
    ask(app, users=8)
    assert "users" in pieces(app)
    assert "requests_per_s" not in app.query_params
    run(newest(app.number_input, "requests_per_s").set_value(3.0))
    assert "users" not in app.query_params
    assert "for 3 requests" in finding(app)


def test_a_training_run_is_asked_for_in_the_question():
    app = page("train_plan", model="Qwen/Qwen3-0.6B", plan_gpus="h100-sxm", gpus="8", global_batch="32")
    assert pieces(app) == ["model", "gpus", "global_batch", "sequence"]
    ask(app, gpus=4, sequence=2048)
    assert (app.query_params["gpus"], app.query_params["sequence"]) == ("4", "2048")
    assert "4 × H100" in finding(app)


def pieces(app):
    """Names of the controls that the question shows."""
    (bar,) = components(app, QUESTION).values()
    return [piece["id"] for piece in bar["pieces"] if "id" in piece]


@pytest.mark.slow
def test_a_link_is_the_same_page():
    app = page("plan", model="Qwen/Qwen3-8B", plan_gpus="h100-sxm,l4")
    ask(app, users=24)
    run(app.number_input(key="min_rate").set_value(30.0))
    run(app.multiselect(key="weight_formats").set_value(["fp8", "int4"]))
    app.query_params.pop("page", None)
    link = {name: value[0] if isinstance(value, list) else value for name, value in app.query_params.items()}
    assert link == {"users": "24", "tpot_ms": "33.333", "weight_formats": "fp8,int4", "plan_gpus": "h100-sxm,l4"}
    again = page("plan", **link)
    assert rows(again, "plans_table") == rows(app, "plans_table")
    assert again.number_input(key="min_rate").value == 30.0


def test_a_filter_leaves_what_passes_and_a_row_opens():
    app = page("plan", model="Qwen/Qwen3-8B", users="16")
    every = rows(app, "plans_table")
    run(app.multiselect(key="plan_vendors").set_value(["AMD"]))
    left = rows(app, "plans_table")
    names = {gpu.name for gpu in gpus().values() if gpu.vendor == "AMD"}
    assert 0 < len(left) < len(every)
    assert {row["GPU"] for row in left} <= names
    run(app.toggle(key="plan_meeting").set_value(True))
    assert all(row["Meets"] for row in rows(app, "plans_table"))


def test_a_plan_says_how_it_is_started_and_where_its_time_goes():
    app = page("plan", model="meta-llama/Llama-3.1-70B", users="16", plan_gpus="h100-sxm", weight_formats="fp8")
    opened(app, "launch_best", "operations_best", "sensitivity_drawer")
    layout = rows(app, "plans_table")[0]["Layout"]
    assert f"--tensor-parallel-size {layout.removeprefix('TP ')}" in "\n".join(texts(app.code))
    shown = "\n".join(texts(app.markdown))
    assert "Attention over the cache" in shown
    assert "8 instead of 16 concurrent users" in shown
    assert "fp8, 16 requests" in str(drawn(app)["frontier"])
    assert drawn(app).keys() == {"frontier"}


@pytest.mark.parametrize(
    "changed", [{"num_key_value_heads": "4"}, {"pasted": pack(models()["Qwen/Qwen3-0.6B"].config)}]
)
def test_a_plan_of_a_model_of_ones_own_starts_no_published_one(changed):
    """On the page, for programs, and for several models on the same GPUs."""
    link = {"model": "Qwen/Qwen3-8B", "users": "4", "plan_gpus": "h100-sxm", "gpu": "h100-sxm"} | changed
    plan, both = opened(page("plan", **link), "launch_best"), page("together", share_with="BAAI/bge-m3", **link)
    (launch,) = (text for text in texts(plan.code) if text.startswith("vllm serve"))
    own, other = (text for text in texts(both.code) if text.startswith("vllm serve"))
    answer = TestClient(api()).get(f"/plan?{urlencode(link)}").json()
    assert answer["launch"]["words"][2] == "./model"
    for command in (launch, own):
        assert command.startswith("vllm serve ./model ")
    assert other.startswith("vllm serve BAAI/bge-m3 ")


def test_a_plan_in_two_parts_says_how_each_is_started():
    asked = {"users": "128", "prompt": "8192", "tpot_ms": "20", "plan_gpus": "h100-sxm", "prefill_decode": "apart"}
    app = page("plan", model="Qwen/Qwen3-32B", **asked)
    opened(app, "launch_best", "operations_best", "plan_engine_drawer")
    row = rows(app, "plans_table")[0]
    prefill, decode = " ".join(row["Layout"].split()).removesuffix(" decode").split(" prefill + ")
    assert f"**{row['GPUs']} × H100 SXM 80GB, {prefill} prefill + {decode} decode**" in texts(app.markdown)[0]
    first, second, router = (code.value for code in app.code if "vllm" in code.value)
    assert "kv_producer" in first
    assert "kv_consumer" in second
    assert "--tensor-parallel-size " + decode.partition("TP ")[2].removesuffix(")") in second
    assert f"http://prefill-{prefill.split()[0]}:8000" in router
    run(app.segmented_control(key="prefill_decode").set_value("together"))
    assert "prefill" not in rows(app, "plans_table")[0]["Layout"]
    run(app.button(key="use_best").click())
    assert metrics(app)["Memory per GPU"]


def test_what_cannot_be_separated_is_a_sentence():
    app = page("plan", model="Qwen/Qwen3-8B", prefill_decode="apart", users="4", max_gpus="1")
    assert any("at least two" in text for text in texts(app.error))


def test_a_training_plan_is_that_of_calc_and_goes_to_train():
    asked = {"tokens": "10000000000", "gpus": "8", "global_batch": "32", "plan_gpus": "h100-sxm"}
    app = page("train_plan", model="Qwen/Qwen3-0.6B", **asked)
    opened(app, "operations_best", "savings_table_columns")
    assert "Exchange between replicas" in "\n".join(texts(app.markdown))
    found = training_plan_report(
        models()["Qwen/Qwen3-0.6B"].config,
        TrainingNeeds(tokens=1e10, gpus=8, global_batch=32),
        gpus=[gpus()["h100-sxm"]],
    )
    best, savings = (rows(app, key) for key in ("training_plans_table", "savings_table"))
    assert best[0]["Days"] == round(found.plans[0].campaign.days.expected, 4)
    rates = [round(plan.time.tokens_per_s_per_gpu.expected, 4) for plan in found.savings]
    assert [row["Tokens/s per GPU"] for row in savings] == rates
    assert app.number_input(key="billions").value == 10
    run(app.button(key="use_best").click())
    assert metrics(app)["Memory per GPU"]
    assert app.query_params["dp"] in ("8", ["8"])


def test_what_no_layout_divides_is_a_sentence():
    app = page("train_plan", model="Qwen/Qwen3-0.6B", gpus="7", global_batch="256")
    assert any("No layout divides 7 GPUs" in text for text in texts(app.error))


def test_efficiencies_that_are_edited_count_on_plan_and_on_weigh():
    share = "bandwidth=0.2/0.3/0.4"
    usual, slow = (page("plan", plan_gpus="h100-sxm", **more) for more in ({}, {"share": share}))
    rates = [rows(app, "plans_table")[0]["Tokens/s per user"] for app in (usual, slow)]
    assert rates[1] < 0.5 * rates[0]
    opened(slow, "efficiencies_drawer")
    shares = slow.dataframe[-1].value
    assert (shares.iloc[0]["expected"], shares.iloc[0]["mine"]) == (0.3, True)
    assert shares.iloc[1:]["source"].str.startswith("https://").all()
    rates = [facts(page(**more))["tokens/s per user"] for more in ({}, {"share": share})]
    assert float(rates[1]) < 0.5 * float(rates[0])


@pytest.mark.parametrize(
    ("name", "query"),
    [("plan", {"users": "many"}), ("plan", {"share": "nonsense=1"}), ("train_plan", {"gpus": "0"})],
)
def test_what_a_link_says_wrong_is_said(name, query):
    (field,) = query
    assert any(f"The link says {field}=" in text for text in texts(page(name, plan_gpus="l4", **query).warning))


def test_efficiencies_of_training_that_are_edited_count_on_plan_and_on_train():
    share = {"share": "training_matmul=0.1/0.1/0.1"}
    asked = {"gpus": "8", "global_batch": "32", "plan_gpus": "h100-sxm"}
    usual, slow = (page("train_plan", model="Qwen/Qwen3-0.6B", **asked, **more) for more in ({}, share))
    mfu = [rows(app, "training_plans_table")[0]["MFU"] for app in (usual, slow)]
    assert mfu[1] < 0.2 < mfu[0]
    opened(slow, "efficiencies_drawer")
    shares = slow.dataframe[-1].value
    assert (shares.iloc[0]["expected"], shares.iloc[0]["mine"]) == (0.1, True)
    assert shares["source"].str.startswith("https://").all()
    rates = [facts(page("train", model="Qwen/Qwen3-0.6B", **more))["tokens/s per GPU"] for more in ({}, share)]
    assert rates[0] != rates[1]


@pytest.mark.slow
def test_shares_that_a_page_does_not_use_are_named():
    told = [
        texts(page(where, model="Qwen/Qwen3-0.6B", share=f"{name}=0.1/0.2/0.3", **more).caption)
        for where, name, more in (
            ("plan", "training_matmul", {"plan_gpus": "l4"}),
            ("weigh", "training_matmul", {}),
            ("train", "bandwidth", {}),
        )
    ]
    assert all(any("have no effect on" in text for text in captions) for captions in told)


def test_the_budget_leaves_out_what_costs_more():
    prices = [row["Price per hour"] for row in rows(page("plan", budget="2"), "plans_table")]
    assert 0 < max(prices) <= 2


def test_a_stated_price_orders():
    first = rows(page("plan", plan_gpus="h100-sxm,l4", price="h100-sxm=0.01"), "plans_table")[0]
    assert (first["GPU"], first["Price per hour"]) == ("H100 SXM 80GB", 0.01)


def test_an_own_gpu_is_among_the_plans():
    app = page("plan", gpu="Mine:96GiB:4000GB/s:bf16=900", price="Mine:96GiB:4000GB/s:bf16=900=0.05")
    assert rows(app, "plans_table")[0]["GPU"] == "Mine"


@pytest.mark.parametrize(
    ("query", "sentence", "button"),
    [
        pytest.param({"engine": "transformers"}, "No plan for transformers", "near_vllm", id="engine"),
        pytest.param({"model": "BAAI/bge-m3"}, "output tokens. Choose another model above.", None, id="no-tokens"),
        pytest.param({"users": "2", "requests_per_s": "1"}, "two ways to say the same", None, id="two-loads"),
        pytest.param(
            {"budget": "0.01", "price": "h100-sxm=2.5"},
            "The cheapest plan costs \\$2.50 per hour: H100",
            None,
            id="budget",
        ),
        pytest.param(
            {"budget": "0.01", "price": "h100-sxm=2.5", "ttft_ms": "0.5", "max_gpus": "1"},
            "What comes closest to the targets costs \\$2.50 per hour: H100",
            None,
            id="budget-and-target",
        ),
        pytest.param({"budget": "0.01", "plan_gpus": "v100-sxm2-32gb"}, "price is not known: 1.", None, id="no-price"),
        pytest.param(
            {"model": "deepseek-ai/DeepSeek-V3", "plan_gpus": "t4", "max_gpus": "1"},
            "Nothing that may",
            None,
            id="room",
        ),
        pytest.param({"ttft_ms": "0.5"}, "no plan meets every target", None, id="target"),
    ],
)
def test_what_does_not_go_is_a_sentence(query, sentence, button):
    app = page("plan", **({"plan_gpus": "h100-sxm"} | query))
    assert any(sentence in text for text in texts([*app.title, *app.error]))
    if button:
        run(app.button(key=button).click())
        assert rows(app, "plans_table")


def test_weigh_says_how_fast():
    told = [text for text in texts(page(model="Qwen/Qwen3-8B", batch="8").markdown) if "tokens/s" in text]
    assert len(told) == 1
    assert "limited by memory bandwidth" in told[0]
    assert not [text for text in texts(page(model="deepseek-ai/DeepSeek-V3", gpu="l4").markdown) if "tokens/s" in text]


def test_a_plan_takes_what_was_chosen_on_weigh_and_says_so():
    """By link and by navigation: GPUs, their number and the formats."""
    app = page("plan", model="Qwen/Qwen3-8B", gpu="h100-sxm", num_gpus="2", weights="fp8")
    plans = rows(app, "plans_table")
    assert {(row["GPU"], row["Weights"]) for row in plans} == {("H100 SXM 80GB", "fp8")}
    assert max(row["GPUs"] for row in plans) <= 2
    assert any("From Weigh: H100 SXM 80GB; 2 GPUs at most; Weights in fp8." in text for text in texts(app.caption))
    assert dict(app.query_params) == {"model": "Qwen/Qwen3-8B", "gpu": "h100-sxm", "num_gpus": "2", "weights": "fp8"}
    run(app.button(key="without_weigh").click())
    assert len({row["GPU"] for row in rows(app, "plans_table")}) > 5
    assert not any("From Weigh" in text for text in texts(app.caption))


def test_a_plan_says_what_it_leaves_on_weigh_and_is_weighed_without():
    link = {"gpu": "l4", "tp": "2", "version": "0.30", "max_num_seqs": "8", "cuda_context": "3-4"}
    app = page("plan", "plan_columns", users="4", **link)
    assert "From Weigh: L4; `max_num_seqs=8`; `version=0.30`." in texts(app.caption)
    assert "Left on Weigh, without effect here: TP 2; overhead." in texts(app.caption)
    row = rows(app, "plans_table")[0]
    run(app.button(key="use_best").click())
    assert app.query_params.keys().isdisjoint({"cuda_context", "tp"})
    assert app.query_params["version"] in ("0.30", ["0.30"])
    spare = float(facts(app)["headroom per GPU"].split()[0])
    assert spare == pytest.approx(row["Headroom, GiB per GPU"], abs=0.006)


@pytest.mark.slow
def test_the_load_of_weigh_is_one_click_away():
    app = page("plan", model="Qwen/Qwen3-8B", batch="16", context="4096", plan_gpus="l4")
    assert any("Weigh asks about 16 sequences of 4,096 tokens." in text for text in texts(app.caption))
    run(app.button(key="load_of_weigh").click())
    assert app.query_params["users"] == "16"
    assert int(app.query_params["prompt"]) + int(app.query_params.get("output", 512)) == 4096


def test_train_says_that_weigh_has_several_gpus():
    app = page("train", model="Qwen/Qwen3-0.6B", num_gpus="4")
    assert any("Weigh has 4 GPUs of each; this step runs on one." in text for text in texts(app.caption))
    run(app.button(key="gpus_of_weigh").click())
    assert app.query_params["dp"] == "4"
    assert not any("Weigh has 4" in text for text in texts(app.caption))


@pytest.fixture
def no_session():
    before = session.PROGRAM.set(session.Program({}))
    yield
    session.PROGRAM.reset(before)


def asked_on(page, **query):
    scenario, problems = decode({name: str(value) for name, value in query.items()}, page, Scenario(), lambda _: {})
    assert not problems
    return scenario


@pytest.mark.usefixtures("no_session")
def test_a_plan_opens_with_its_nodes():
    """Eight L40S have PCIe within a node, and a network between nodes of two: Weigh says the plan's speed."""
    query = {"model": "Qwen/Qwen2.5-72B", "plan_gpus": "l40s", "users": 1, "prompt": 16000, "output": 512}
    rates = []
    for node in (2, 8):
        found = planned(asked_on(query_of.PLAN, **query, node=node))
        (best, *_) = found.plans.plans
        there = weigh(found, best)
        opened_on_weigh = weighed(asked_on(query_of.WEIGH, **encode(there, query_of.WEIGH)))
        assert opened_on_weigh.scenario.efficiencies.node == node
        rates.append(opened_on_weigh.speed.tokens_per_s_per_user.expected)
        assert rates[-1] == pytest.approx(best.tokens_per_s_per_user, rel=1e-6)
        assert compared(there).speed == opened_on_weigh.speed
    assert rates[0] < 0.6 * rates[1]


@pytest.mark.usefixtures("no_session")
def test_a_training_plan_opens_with_its_nodes():
    query = {"model": "Qwen/Qwen3-0.6B", "plan_gpus": "l40s", "gpus": 8, "global_batch": 32}
    rates = []
    for node in (2, 8):
        found = training_planned(asked_on(query_of.TRAIN_PLAN, **query, purpose="train", node=node))
        best = found.report.plans[0]
        there = asked_on(query_of.TRAIN, **encode(as_step(found.scenario, best), query_of.TRAIN))
        rates.append(trained(there).pace.step_s)
        assert rates[-1] == best.time.step_s
    assert rates[0] != rates[1]


def test_the_command_line_has_nodes_too(capsys):
    flags = ["--tp", "4", "--gpu", "l40s", "--time", "--json"]
    steps = []
    for node in ("2", "8"):
        assert main(["Qwen/Qwen2.5-72B", *flags, "--node", node]) == 0
        steps.append(json.loads(capsys.readouterr().out)["time"]["decode"]["step_ms"]["expected"])
    assert steps[0] > steps[1]
    assert main(["Qwen/Qwen2.5-72B", "--node", "4"]) == 2
    assert capsys.readouterr().err == "--node takes effect only with --time.\n"


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize(
    ("engine", "flags"),
    [
        ("vllm", {"gpu_memory_utilization": "0.8", "enforce_eager": "true", "max_num_batched_tokens": "2048"}),
        ("vllm", {"version": "0.11", "block_size": "64"}),
        ("vllm", {"speculative": "draft_model", "model_draft": "Qwen/Qwen3-0.6B"}),
        ("sglang", {"mem_fraction_static": "0.7", "chunked_prefill_size": "1024"}),
        ("sglang", {"speculative_algorithm": "NGRAM"}),
        ("tensorrt-llm", {"max_num_tokens": "2048"}),
    ],
)
def test_a_plan_has_the_flags_of_weigh(engine, flags):
    """They are in its memory and its command, and Weigh says the same of it."""
    query = {"model": "Qwen/Qwen3-32B", "plan_gpus": "h100-sxm,l40s", "users": 32, "prompt": 4000, "output": 200}
    found = planned(asked_on(query_of.PLAN, **query, engine=engine, **flags))
    assert len(found.plans.plans) == 2
    for plan in found.plans.plans:
        there = weighed(asked_on(query_of.WEIGH, **encode(weigh(found, plan), query_of.WEIGH)))
        (verdict,) = there.report.verdicts
        assert (verdict.verdict, verdict.max_batch) == ("fits", plan.capacity)
        assert verdict.spare / 2**30 == pytest.approx(plan.headroom_gib, abs=1e-9)
        assert {name: str(getattr(there.serving.engine.options, name)).lower() for name in flags} == {
            name: value.lower() for name, value in flags.items()
        }
        assert not any(flag.startswith("--version") for flag in plan.flags)


def test_a_query_for_programs_has_what_figures_depend_on():
    """What the page's own link keeps for other pages is refused there."""
    scenario = asked_on(query_of.WEIGH, batch=4, tp=2, kv="fp8", enforce_eager="true", context=4096)
    assert encode(scenario, query_of.PLAN, for_programs=True) == {"kv": "fp8", "enforce_eager": "true"}
    assert encode(scenario, query_of.GPUS, for_programs=True) == {}
    roofline = scenario.model_copy(update={"hardware": scenario.hardware.model_copy(update={"view": "roofline"})})
    assert encode(roofline, query_of.GPUS, for_programs=True) == {"kv": "fp8", "view": "roofline"}
    for page_of, of in ((query_of.PLAN, scenario), (query_of.GPUS, scenario), (query_of.GPUS, roofline)):
        params = encode(of, page_of, for_programs=True) | (
            {"plan_gpus": "h100-sxm"} if page_of == query_of.PLAN else {}
        )
        assert TestClient(api()).get(f"/{page_of.answers_at}", params=params).status_code == 200


def test_a_line_says_the_size_of_nodes_and_leads_back():
    app = page(model="Qwen/Qwen2.5-72B", gpu="l40s", tp="8", context="4096", node="2")
    assert "Speed on nodes of 2 GPUs." in texts(app.caption)
    before = facts(app)["tokens/s per user"]
    run(app.button(key="node_reset").click())
    assert "node" not in app.query_params
    assert facts(app)["tokens/s per user"] != before
