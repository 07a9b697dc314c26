"""Whatever comes in: an Architecture, or a sentence that says what is wrong and what would be right."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calc import Architecture, ConfigError
from calc.families import override
from calc.text import parse_config, parse_value
from presets import models

LLAMA = models()["meta-llama/Llama-3.1-8B"].config


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"num_hidden_layers": 10**12}, "num_hidden_layers"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"hidden_size": 10**400}, "hidden_size"),
        ({"hidden_size": float("nan")}, "hidden_size"),
        ({"hidden_size": 4096.0}, "hidden_size"),
        ({"hidden_size": "4096"}, "hidden_size"),
        ({"hidden_size": -1}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"hidden_size": [4096]}, "hidden_size"),
        ({"hidden_size": {}}, "hidden_size"),
        ({"vocab_size": None}, "vocab_size"),
        ({"attention_bias": 1}, "attention_bias"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"model_type": "nonesuch"}, "model_type"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"model_type": None}, "model_type"),
        ({"num_key_value_heads": 7}, "num_key_value_heads"),
        ({"num_attention_heads": 33, "num_key_value_heads": 33}, "num_attention_heads"),
    ],
)
def test_a_sentence_about_the_field(change, field):
    with pytest.raises(ConfigError) as caught:
        Architecture.from_config(LLAMA | change)
    assert caught.value.field == field
    assert str(caught.value).endswith(".")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("model", "change", "nearest"),
    [
        ("meta-llama/Llama-3.1-8B", {"num_key_value_heads": 7}, (4, 8)),
        ("meta-llama/Llama-3.1-8B", {"num_attention_heads": 24, "num_key_value_heads": 24}, (16, 32)),
        ("openai-community/gpt2", {"n_head": 11}, (8, 12)),
        ("Qwen/Qwen3-30B-A3B", {"num_experts_per_tok": 129}, (128,)),
        ("deepseek-ai/DeepSeek-V3", {"n_routed_experts": 4}, (4,)),
    ],
)
def test_the_nearest_values_are_right(model, change, nearest):
    config = override(models()[model].config, change)
    with pytest.raises(ConfigError) as caught:
        Architecture.from_config(config)
    assert caught.value.nearest == nearest
    for value in nearest:
        repaired = config | {caught.value.field: value}
        if "num_key_value_heads" in change and caught.value.field == "num_attention_heads":
            repaired["num_key_value_heads"] = value
        Architecture.from_config(repaired)


def test_layer_types_of_the_wrong_length():
    config = models()["openai/gpt-oss-20b"].config
    with pytest.raises(ConfigError, match="lists 24 layers, but the model has 23"):
        Architecture.from_config(config | {"num_hidden_layers": 23})


def test_an_override_continues_the_pattern():
    config = override(models()["openai/gpt-oss-20b"].config, {"num_hidden_layers": 30})
    assert config["layer_types"] == ["sliding_attention", "full_attention"] * 15
    assert Architecture.from_config(config).num_layers == 30


def test_an_override_reaches_the_wrapped_language_model():
    config = override(models()["google/gemma-3-12b-it"].config, {"num_hidden_layers": 12})
    assert Architecture.from_config(config).num_layers == 12


def test_an_unknown_override_names_its_neighbours():
    with pytest.raises(ConfigError, match="num_key_value_heads"):
        override(LLAMA, {"num_kv_heads": 4})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 500_000, "nested too deep"),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, "nested too deep"),
        ("[1]", "object of fields"),
        ("3", "object of fields"),
        ('{"hidden_size": ' + "9" * 10_000 + "}", "number too long"),
        ("x" * 1_000_001, "characters long"),
    ],
)
def test_text_that_is_no_config(text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_config(text)


def test_values_of_the_command_line():
    assert [parse_value(text) for text in ("8", "true", "null", "abc", "[" * 100_000)][:4] == [8, True, None, "abc"]


CONFIGS = [preset.config for preset in models().values()]
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.integers(0, 300),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@given(data=st.data())
@settings(max_examples=400, deadline=500)
def test_mutated_configs(data):
    config = copy.deepcopy(data.draw(st.sampled_from(CONFIGS)))
    target = data.draw(st.sampled_from([part for part in (config, *config.values()) if isinstance(part, dict)]))
    for name in data.draw(st.lists(st.sampled_from(sorted(target)), max_size=4)):
        target[name] = data.draw(JUNK)
    try:
        architecture = Architecture.from_config(config)
    except ConfigError as error:
        assert str(error)
    else:
        assert architecture.parameters().total > 0


@given(st.dictionaries(st.text(max_size=12), JUNK, max_size=5))
def test_random_objects(config):
    with pytest.raises(ConfigError):
        Architecture.from_config(config)
