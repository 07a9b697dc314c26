"""The URL: what is written is what is read, and what makes no sense is named."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc import Range
from calc.text import pack
from pages.parts.inputs.fields import CONTROLS
from pages.parts.state import scenario as module
from pages.parts.state.scenario import DEFAULT_MODEL, EXPECTED, Scenario, encode
from presets import models
from presets.hub import HubError, HubModel

GONE = HubError("The Hub is away.")
OWN = HubModel(id="org/own", revision="c0ffee", files={}, config=models()["Qwen/Qwen2.5-3B"].config)


def decode(params):
    def fetch(model, revision, file):
        if model != "org/own":
            raise GONE
        return OWN

    return module.decode(params, fetch)


QUERY = {
    "model": "Qwen/Qwen2.5-3B",
    "num_key_value_heads": "4",
    "context": "32768",
    "batch": "8",
    "weights": "int4",
    "gpu": "h100-sxm",
    "cuda_graphs": "0-1.5",
    "tie_word_embeddings": "false",
}


def test_a_link_is_read():
    scenario, problems = decode(QUERY)
    assert problems == []
    assert scenario == Scenario(
        model="Qwen/Qwen2.5-3B",
        overrides={"num_key_value_heads": 4, "tie_word_embeddings": False},
        context=32768,
        batch=8,
        weights="int4",
        gpu=("h100-sxm",),
        cuda_graphs=Range(low=0, high=1.5),
    )
    assert encode(scenario) == QUERY


def test_defaults_are_not_written():
    assert encode(Scenario()) == {}
    assert decode({}) == (Scenario(), [])
    assert encode(decode({"model": DEFAULT_MODEL, "batch": "1", "num_hidden_layers": "36"})[0]) == {}


def test_a_model_of_the_hub():
    query = {"model": "org/own", "revision": "v1", "num_hidden_layers": "12"}
    scenario, problems = decode(query)
    assert (scenario.hub, scenario.config()["num_hidden_layers"], problems) == (OWN, 12, [])
    assert encode(scenario) == query
    assert "c0ffee" not in json.dumps(encode(scenario))


def test_a_model_that_the_hub_does_not_give_keeps_its_link():
    query = {"model": "nobody/nothing", "num_hidden_layers": "12", "batch": "4"}
    scenario, problems = decode(query)
    assert (scenario.unread, problems) == (GONE, [])
    assert encode(scenario) == query
    with pytest.raises(HubError, match="away"):
        scenario.config()


def test_an_unknown_family_is_read_as_assumed():
    scenario, _ = decode({"model": "Qwen/Qwen2.5-3B", "assume": "llama"})
    assert scenario.config()["assumed_from"] == "qwen2"
    assert encode(scenario) == {"model": "Qwen/Qwen2.5-3B", "assume": "llama"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("model", "no-slash"),
        ("batch", "0"),
        ("batch", "many"),
        ("batch", "1.5"),
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
    ],
)
def test_nonsense_is_named_and_the_rest_kept(name, text):
    scenario, problems = decode({"tp": "2"} | {name: text})
    assert scenario == Scenario(tp=2)
    assert len(problems) == 1
    assert name in problems[0]
    assert len(problems[0]) < 300


WORDS = [
    *("", "0", "1", "-1", "2", "7", "1024", "9" * 4301, "1.5", "nan", "1e308-1e309", "0-1", "true", "null", "²", "１"),
    *("1_000", " 1", "\x00", "a/b", "../..", "h100-sxm", "h100-sxm,h100-sxm", ",", "<script>", "[a](b)", "llama", "="),
    *("int4", "Q4_K_M", "fp8_ds_mla", "transformers", "eager", "qlora", "muon", "full", "bf16", "fused", "qv"),
    *models(),
    *(
        pack(config)
        for config in ({"model_type": "llama"}, {"model_type": "llama", "num_hidden_layers": 512}, {"x": 1})
    ),
]


@given(
    st.dictionaries(st.sampled_from([*EXPECTED, *CONTROLS, "hub", "x"]), st.sampled_from(WORDS) | st.text(), max_size=6)
)
@settings(max_examples=300)
def test_any_query_gives_a_scenario(query):
    scenario, problems = decode(query)
    again, none = decode(encode(scenario))
    assert again == scenario
    assert none == []
    assert len(problems) <= len(query)
    assert all(len(problem) < 400 for problem in problems)
