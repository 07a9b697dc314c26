"""The URL: what is written is what is read, what links of the first generation said is still read, and what makes no
sense is named."""

import json
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from calc import Layout, Overhead, Range, TrainingLayout, TrainingWorkload, Workload
from calc.families import settings as config_settings
from calc.formats import WEIGHT_FORMATS
from calc.serving.engines import ENGINES
from calc.text import pack
from pages.parts.inputs.fields import CONTROLS
from pages.parts.state import query
from pages.parts.state.query import EVERYTHING, FORMERLY, PAGES, TRAIN, VERIFY, WEIGH, encode
from pages.parts.state.scenario import (
    DEFAULT_MODEL,
    Scenario,
    ServingChoice,
    Source,
    TrainingChoice,
    places,
)
from presets import models
from tests.cases import in_one_test
from tests.drawn import values

VLLM = ENGINES["vllm"].options_type


def published(source):
    """The settings of presets, of pasted configs, and of one model of the Hub."""
    if source.pasted is not None:
        return config_settings(source.pasted) if source.pasted.get("model_type") == "llama" else {}
    known = {"org/own": "Qwen/Qwen2.5-3B"}.get(source.model, source.model)
    return config_settings(models()[known].config) if known in models() else {}


def decode(params, page=WEIGH, now=None):
    return query.decode(params, page, now or Scenario(), published)


QUERY = {
    "model": "Qwen/Qwen2.5-3B",
    "num_key_value_heads": "4",
    "context": "32768",
    "batch": "8",
    "weights": "int4",
    "gpu": "h100-sxm",
    "cuda_graphs": "0-1.5",
    "tie_word_embeddings": "false",
    "max_num_seqs": "64",
    "enforce_eager": "true",
    "tp": "2",
}


def test_a_link_is_read():
    scenario, problems = decode(QUERY)
    assert problems == []
    assert scenario == Scenario(
        source=Source(model="Qwen/Qwen2.5-3B"),
        overrides={"num_key_value_heads": 4, "tie_word_embeddings": False},
        gpu=("h100-sxm",),
        serving=ServingChoice(
            workload=Workload(batch=8, context=32768),
            weights="int4",
            layout=Layout(tp=2),
            options=VLLM(max_num_seqs=64, enforce_eager=True),
        ),
        overhead=Overhead(cuda_graphs=Range(low=0, high=1.5)),
    )
    assert encode(scenario, WEIGH) == QUERY


def test_a_preset_however_its_letters_are_cased():
    scenario, problems = decode({"model": "qwen/qwen2.5-3b"})
    assert (scenario, problems) == (Scenario(source=Source(model="Qwen/Qwen2.5-3B")), [])


def test_defaults_are_not_written():
    for page in PAGES:
        assert encode(Scenario(), page) == {}
    assert decode({}) == (Scenario(), [])
    assert encode(decode({"model": DEFAULT_MODEL, "batch": "1", "num_hidden_layers": "36"})[0], WEIGH) == {}


def test_dp_is_the_layout_of_the_page():
    served, _ = decode({"dp": "8", "ep": "8", "v": "3"})
    assert (served.serving.layout, served.training.layout) == (Layout(dp=8, ep=8), TrainingLayout())
    assert encode(served, WEIGH) == {"dp": "8", "ep": "8", "v": "3"}
    trained, problems = decode({"dp": "4", "zero": "3"}, TRAIN, served)
    assert problems == []
    assert trained.serving.layout == served.serving.layout  # the session keeps both
    assert trained.training.layout == TrainingLayout(dp=4, zero=3)
    assert encode(trained, TRAIN) == {"dp": "4", "zero": "3"}
    assert encode(trained, VERIFY) == {}


@pytest.mark.parametrize(
    ("page", "old", "path", "value"),
    [
        (WEIGH, {"attention_dp": "8"}, ("serving", "layout", "dp"), 8),
        (WEIGH, {"expert_ranks": "16"}, ("serving", "layout", "ep"), 16),
        (WEIGH, {"prefill": "512"}, ("serving", "options", "max_num_batched_tokens"), 512),
        (WEIGH, {"prefill": "512", "engine": "transformers"}, ("serving", "options", "prefill_chunk_size"), 512),
        (WEIGH, {"engine": "transformers", "attention": "eager"}, ("serving", "options", "attention"), "eager"),
        (WEIGH, {"engine": "transformers", "logits": "all"}, ("serving", "options", "logits"), "all"),
        (WEIGH, {"language_model_only": "true"}, ("serving", "options", "language_model_only"), True),
        (WEIGH, {"gpu_memory_utilization": "0.9"}, ("serving", "options", "gpu_memory_utilization"), 0.9),
        (WEIGH, {"speculative": "mtp"}, ("serving", "options", "speculative"), "mtp"),
        (
            WEIGH,
            {"speculative": "eagle3", "num_speculative_tokens": "5"},
            ("serving", "options", "num_speculative_tokens"),
            5,
        ),
        (
            WEIGH,
            {
                "engine": "sglang",
                "speculative_algorithm": "STANDALONE",
                "speculative_draft_model_path": "Qwen/Qwen3-0.6B",
            },
            ("serving", "options", "speculative_draft_model_path"),
            "Qwen/Qwen3-0.6B",
        ),
        (WEIGH, {"generated": "7"}, ("serving", "workload", "generated"), 7),
        (WEIGH, {"fragmentation": "1-3"}, ("overhead", "fragmentation"), Range(low=1, high=3)),
        (WEIGH, {"method": "qlora"}, ("training", "workload", "method"), "qlora"),
        (WEIGH, {"attention": "eager"}, ("training", "workload", "attention"), "eager"),
        (WEIGH, {"zero": "0"}, ("training", "layout", "zero"), 0),
        (TRAIN, {"dp": "16"}, ("training", "layout", "dp"), 16),
        (TRAIN, {"ep": "16"}, ("training", "layout", "ep"), 16),
        (TRAIN, {"method": "lora", "weights": "nf4"}, ("training", "weights"), "nf4"),
        (TRAIN, {"recipe": "bf16"}, ("training", "recipe"), "bf16"),
        (TRAIN, {"fused": "true"}, ("training", "workload", "fused"), True),
        (TRAIN, {"batch": "8"}, ("serving", "workload", "batch"), 8),
        (TRAIN, {"attention_dp": "8"}, ("serving", "layout", "dp"), 8),
        (VERIFY, {"tp": "8", "v": "2"}, ("serving", "layout", "tp"), 8),
    ],
)
def test_links_of_the_first_generation(page, old, path, value):
    scenario, problems = decode(old, page)
    assert problems == []
    for name in path:
        scenario = getattr(scenario, name)
    assert scenario == value


def test_dp_and_ep_of_an_old_link_to_weigh_are_those_of_training():
    scenario, problems = decode({"dp": "16", "ep": "16", "tp": "2"})
    assert scenario.training.layout == TrainingLayout(dp=16, ep=16)
    assert scenario.serving.layout == Layout(tp=2)
    assert ["v=2" in str(problem) for problem in problems] == [True, True]
    assert decode({"dp": "16"}, VERIFY)[0].training.layout.dp == 16


def test_a_link_means_what_it_meant_when_it_was_copied():
    """Links with `v=2` were copied when five GPUs were on a fresh page."""
    scenario, problems = decode({"v": "2"})
    assert problems == []
    assert scenario.gpu == ("v100-sxm2-16gb", "v100-sxm2-32gb", "a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm")
    assert decode({"v": "2", "gpu": "l4"})[0].gpu == ("l4",)
    assert decode({"v": "3"}) == decode({}) == (Scenario(), [])


def test_no_gpu_is_a_choice_too():
    scenario, problems = decode({"gpu": "none"})
    assert (scenario.gpu, problems) == ((), [])
    assert encode(scenario, WEIGH) == {"gpu": "none"}


def test_a_model_of_the_hub():
    link = {"model": "org/own", "revision": "v1", "num_hidden_layers": "12"}
    scenario, problems = decode(link)
    assert (scenario.overrides, problems) == ({"num_hidden_layers": 12}, [])
    assert encode(scenario, WEIGH) == link


def test_a_model_that_the_hub_does_not_give_keeps_its_link():
    link = {"model": "nobody/nothing", "num_hidden_layers": "12", "batch": "4"}
    scenario, problems = decode(link)
    assert problems == []
    assert encode(scenario, WEIGH) == link


def test_a_gpu_of_ones_own():
    link = {"gpu": "h100-sxm,Mine:48GiB:960GB/s:bf16=181,fp8=362,l4"}
    scenario, problems = decode(link)
    assert problems == []
    assert scenario.gpu == ("h100-sxm", "Mine:48GiB:960GB/s:bf16=181,fp8=362", "l4")
    assert encode(scenario, WEIGH) == link


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("model", "no-slash"),
        ("batch", "0"),
        ("batch", "many"),
        ("batch", "1.5"),
        ("batch", "1_000"),
        ("context", "9" * 5000),
        ("weights", "fp3"),
        ("kv", "int3"),
        ("engine", "magic"),
        ("gpu", ""),
        ("gpu", "h100-sxm,h900"),
        ("cuda_graphs", "2-1"),
        ("cuda_graphs", "nan-nan"),
        ("cuda_graphs", "-1-2"),
        ("num_hidden_layers", "-4"),
        ("num_hidden_layers", "10000000000000"),
        ("num_hidden_layers", "9" * 5000),
        ("num_hidden_layers", "²"),
        ("tie_word_embeddings", "maybe"),
        ("n_embd", "768"),
        ("frobnicate", "1"),
        ("__class__", "x"),
        ("logits", "all"),
        ("gpu_memory_utilization", "0"),
        ("zero", "7"),
        ("v", "4"),
        ("serving", "x"),
        ("options", "x"),
    ],
)
def test_nonsense_is_named_and_the_rest_kept(name, text):
    scenario, problems = decode({"tp": "2"} | {name: text})
    assert scenario == Scenario(serving=ServingChoice(layout=Layout(tp=2)))
    (problem,) = map(str, problems)
    assert name in problem
    assert len(problem) < 300


def test_a_field_of_calc_is_all_that_an_option_needs():
    """Every field of calc's models is in the link of a page, by its own name."""
    fields = {*Workload.model_fields, *Layout.model_fields, *Overhead.model_fields}
    for name, engine in ENGINES.items():
        assert fields | engine.options_type.model_fields.keys() <= places(WEIGH.uses, name).keys()
    assert {*TrainingWorkload.model_fields, *TrainingLayout.model_fields} <= places(TRAIN.uses).keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
@in_one_test("engine", ENGINES)
def test_a_name_means_one_thing_on_a_page(page, engine):
    parts = [place.name for part in page.uses for place in places((part,), engine).values()]
    assert [name for name, times in Counter([*parts, *CONTROLS, *FORMERLY, "prefill", "v"]).items() if times > 1] == []


WORDS = [
    *("", "0", "1", "-1", "2", "7", "1024", "9" * 4301, "1.5", "nan", "1e308-1e309", "0-1", "true", "null", "²", "１"),
    *("1_000", " 1", "\x00", "a/b", "../..", "h100-sxm", "h100-sxm,h100-sxm", ",", "<script>", "[a](b)", "llama", "="),
    *(
        "int4",
        "Q4_K_M",
        "fp8_ds_mla",
        "transformers",
        "sglang",
        "eager",
        "qlora",
        "muon",
        "full",
        "bf16",
        "fused",
        "qv",
    ),
    *models(),
    *(
        pack(config)
        for config in ({"model_type": "llama"}, {"model_type": "llama", "num_hidden_layers": 512}, {"x": 1})
    ),
]
NAMES = [
    *(name for engine in ENGINES for name in places(EVERYTHING, engine)),
    *CONTROLS,
    *FORMERLY,
    "prefill",
    "v",
    "x",
]


@pytest.mark.slow
@pytest.mark.drawn
@given(
    st.sampled_from(PAGES),
    st.dictionaries(st.sampled_from(sorted(set(NAMES))), st.sampled_from(WORDS) | st.text(), max_size=6),
)
def test_any_query_gives_a_scenario(page, params):
    scenario, problems = decode(params, page)
    again, none = decode(encode(scenario, page), page, scenario)
    assert again == scenario
    assert none == []
    assert len(problems) <= len(params)
    assert all(len(str(problem)) < 500 for problem in problems)


@st.composite
def scenarios(draw, page):
    """A scenario whose fields that the page uses have any value."""
    engine = draw(st.sampled_from(list(ENGINES)) if "serving" in page.uses else st.just("vllm"))
    scenario = Scenario(serving=ServingChoice().with_engine(engine))
    known = {name: place for name, place in places(page.uses, engine).items() if name != "engine"}
    for name in draw(st.lists(st.sampled_from(sorted(known)), max_size=8, unique=True)):
        scenario = known[name].put(scenario, draw(values(known[name].option)))
    base = published(scenario.source)
    fields = {name: control for name, control in CONTROLS.items() if base.get(name) is not None}
    for name in draw(st.lists(st.sampled_from(sorted(fields)), max_size=3, unique=True)) if fields else ():
        least = getattr(fields[name], "least", None)
        taken = draw(st.booleans() if least is None else st.integers(least, fields[name].most))
        if taken != base[name]:
            scenario = scenario.model_copy(update={"overrides": scenario.overrides | {name: taken}})
    return scenario


@pytest.mark.slow
@pytest.mark.drawn
@given(st.sampled_from(PAGES).flatmap(lambda page: st.tuples(st.just(page), scenarios(page))))
@example((WEIGH, Scenario(serving=ServingChoice(options=VLLM(gpu_memory_utilization=1e-07)))))
@example((TRAIN, Scenario(training=TrainingChoice(workload=TrainingWorkload(method="qlora", fp32_rest=True)))))
def test_what_is_written_is_read(case):
    page, scenario = case
    params = encode(scenario, page)
    again, problems = decode(params, page)
    assert problems == []
    assert encode(again, page) == params
    if "training" not in page.uses:  # of a step, what changes none of its numbers is not written
        assert again == scenario
    assert decode(json.loads(json.dumps(params)), page)[0] == again


def test_every_format_has_its_word():
    for name in WEIGHT_FORMATS:
        assert decode({"weights": name})[0].serving.weights == name
