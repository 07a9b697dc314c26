"""Whatever comes in: an Architecture, or a sentence that says what is wrong and what would be right."""

import base64
import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from calc import Architecture, ConfigError, report, training_report
from calc.families import override
from calc.text import parse_config, parse_value, unpack
from presets import models
from tests import load
from tests.cases import in_one_test
from tests.mutation import JUNK, mutated

LLAMA = models()["meta-llama/Llama-3.1-8B"].config
QUANTIZATION_CONFIGS = [
    {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]},
    {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": False, "dynamic": {"-:.*k": {}}},
    {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
    {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
    {
        "quant_method": "compressed-tensors",
        "ignore": ["lm_head", "re:.*gate$"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True},
            }
        },
    },
    {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head"]},
    {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {"quant_algo": "FP8"}}},
    {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}}},
]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"num_hidden_layers": 10**12}, "num_hidden_layers"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": 1025}, "num_hidden_layers"),
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
        ("deepseek-ai/DeepSeek-V3", {"num_nextn_predict_layers": 10_000}, (16,)),
        ("ibm-granite/granite-4.0-h-tiny", {"hidden_size": 1540}, (1536,)),
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


EXAONE = {"model_type": "exaone4", "num_hidden_layers": 8, "sliding_window": 64}
LAYERS = ["sliding_attention"] * 3 + ["full_attention"]


@pytest.mark.parametrize(
    ("config", "full"),
    [
        pytest.param({"sliding_window_pattern": "LLLG", "layer_types": LAYERS * 2}, (3, 7), id="both, as published"),
        pytest.param({"sliding_window_pattern": {}, "layer_types": LAYERS[::-1] * 2}, (0, 4), id="layer_types decides"),
        pytest.param({"sliding_window_pattern": "LLLG"}, (3, 7), id="letters, as its first code reads them"),
        pytest.param({"sliding_window_pattern": 2}, (1, 3, 5, 7), id="a number"),
        pytest.param({"sliding_window": None, "sliding_window_pattern": {}}, tuple(range(8)), id="no window at all"),
    ],
)
def test_what_is_not_needed_is_not_read(config, full):
    blocks = Architecture.from_config(EXAONE | config).blocks
    assert tuple(i for block in blocks for i in block.layers if block.mixers[0].window is None) == full


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


def test_the_family_is_not_overridden():
    with pytest.raises(ConfigError, match="model_type can't be changed"):
        override(LLAMA, {"model_type": "qwen3"})


def test_an_unknown_override_names_its_neighbours():
    with pytest.raises(ConfigError, match="num_key_value_heads"):
        override(LLAMA, {"num_kv_heads": 4})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (" \n", "no text"),
        ("{", "not JSON"),
        ("print(model.config)", "should begin, not “print\\(model.config\\)”"),
        ("<!doctype html>\n<html>", "should begin, not “<!doctype html>”"),
        ("https://huggingface.co/Qwen/Qwen3-8B", "should begin, not “https://huggingface.co/Qwen/Qwen3-8B”"),
        ('{"hidden_size": 8, // wide\n}', "column 20, a comment begins"),
        ("[" * 200_000, "nested too deep"),
        ("[" * 500_000, "500,000 commas and opening brackets; 250,000 are the most"),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, "nested too deep"),
        ('{"a":' * 51 + "1" + "}" * 51, "nested too deep"),
        ('{"model_type": "\\ud800"}', r"half of a surrogate pair \(\\ud800\)"),
        ("[1]", "object of fields"),
        ("3", "object of fields"),
        ('{"hidden_size": ' + "9" * 10_000 + "}", "number too long"),
        ("x" * 8_000_001, "characters long"),
        ('{"hidden_size": 8,}', "column 19, a comma stands before a closing bracket"),
        ("{'hidden_size': {1, 2}}", "not JSON"),
        ("{'a': " * 10_000, "not JSON"),
    ],
)
def test_text_that_is_no_config(text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_config(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{'model_type': 'llama', 'head_dim': None, 'tie_word_embeddings': True,}", id="a dict of Python"),
        pytest.param(
            'LlamaConfig {\n  "model_type": "llama", "head_dim": null,\n "tie_word_embeddings": true}', id="print"
        ),
        pytest.param(
            '```json\n{"model_type": "llama", "head_dim": null, "tie_word_embeddings": true}\n```\n', id="fence"
        ),
    ],
)
def test_what_python_prints_of_a_config(text):
    assert parse_config(text) == {"model_type": "llama", "head_dim": None, "tie_word_embeddings": True}


def test_a_config_without_a_size_says_so():
    (said,) = Architecture.from_config({"model_type": "llama"}).assumptions
    assert "states no size" in str(said)


def test_a_misspelt_field_is_named():
    stated = {"model_type": "llama", "hidden_size": 4096, "vocab_size": 32000, "num_key_value_haeds": 8}
    (said,) = Architecture.from_config(stated).assumptions
    assert "“num_key_value_haeds”, which is not read, and not num_key_value_heads" in str(said)
    assert Architecture.from_config({**stated, "num_key_value_heads": 8}).assumptions == ()
    config = {"model_type": "dbrx", "vocab_size": 512, "attn_config": {"kv_n_haeds": 8}}
    (said,) = Architecture.from_config(config).assumptions
    assert "“attn_config.kv_n_haeds”, which is not read, and not attn_config.kv_n_heads" in str(said)


@pytest.mark.parametrize(
    ("config", "said", "field", "nearest"),
    [
        (
            {"loop_layer_index_end": 6},
            "start is 6 and loop_.*_end 6;.*num_hidden_layers, 24",
            "loop_layer_index_end",
            (24,),
        ),
        ({"loop_layer_index_end": 30}, "start is 6 and loop_layer_index_end 30", "loop_layer_index_end", (24,)),
        ({"loop_config": {"core_end": 6}}, "start is 6 and loop_config.core_end 6;", "loop_config.core_end", (24,)),
        ({"loop_config": {"core_end": 14}}, "end is 14; it must be a multiple", "loop_config.core_end", (12, 18)),
        ({"loop_config": {"core_start": 0}}, "start is 0; it must lie between 1 and", "loop_layer_index_start", (1,)),
        (
            {"loop_config": {"core_last": 12}},
            "holds “core_last”; it must be one of core_start, core_end,",
            "loop_config",
            (),
        ),
        ({"loop_config": 3}, "loop_config is 3; it must be an object of fields", "loop_config", ()),
        (
            {"n_output_layers": 30},
            "n_input_layers 8 and n_output_layers 30.*than num_hidden_layers 36",
            "n_output_layers",
            (28,),
        ),
    ],
)
def test_a_loop_is_as_its_class_takes_it(config, said, field, nearest):
    """`validate_architecture` of transformers 5.24 `configuration_inkling2_loop.py` and `configuration_dory.py`."""
    family = "dory" if "n_output_layers" in config else "inkling2_loop_text"
    with pytest.raises(ConfigError, match=said) as caught:
        Architecture.from_config({"model_type": family, **config})
    assert (caught.value.field, caught.value.nearest) == (field, nearest)


@in_one_test("row", load("oracle.json"), ids=lambda row: row["id"])
def test_no_published_config_is_taken_for_misspelt(row):
    said = Architecture.from_config(row["config"]).assumptions
    assert not [sentence for sentence in said if "misspelt" in str(sentence)]


def test_nothing_is_near_that_is_not():
    with pytest.raises(ConfigError, match="Similar families: llama\\.") as lama:
        Architecture.from_config({"model_type": "lama"})
    assert lama.value.nearest == ("llama",)
    with pytest.raises(ConfigError, match="llama, qwen3, deepseek_v3 and others are"):
        Architecture.from_config({"model_type": "xyzzy"})


def test_values_of_the_command_line():
    assert [parse_value(text) for text in ("8", "true", "null", "abc", "[" * 100_000)][:4] == [8, True, None, "abc"]


CONFIGS = list({preset.config["model_type"]: preset.config for preset in models().values()}.values())
QUANTISED = [
    preset.config | {"quantization_config": found}
    for preset in models().values()
    if (found := preset.config.get("quantization_config")) is not None
]
OTHERS = [LLAMA | {"quantization_config": found} for found in QUANTIZATION_CONFIGS]


@pytest.mark.slow
@pytest.mark.drawn
@given(mutated(CONFIGS))
@example({"model_type": "zamba", "hidden_size": 1})
@example(models()["deepseek-ai/DeepSeek-V4-Flash"].config | {"compress_ratios": [{}]})
def test_mutated_configs(config):
    for weigh in (report, training_report):
        try:
            found = weigh(config, gpus=[])
        except ConfigError as error:
            assert str(error).endswith((".", "?"))
            assert len(str(error)) < 500
        else:
            assert found.parameters.total > 0


@given(mutated(QUANTISED + OTHERS))
@settings(max_examples=150)
def test_mutated_quantization(config):
    try:
        assert report(config, gpus=[]).memory.weights > 0
    except ConfigError as error:
        assert str(error).endswith(".")


@given(st.dictionaries(st.text(max_size=12), st.sampled_from(JUNK), max_size=5))
def test_random_objects(config):
    with pytest.raises(ConfigError):
        Architecture.from_config(config)


@given(st.binary(max_size=400) | st.text().map(str.encode))
def test_a_packed_word_is_a_config_or_damaged(data):
    for word in (base64.urlsafe_b64encode(data).decode(), data.decode(errors="replace")):
        with pytest.raises(ConfigError):
            unpack(word)


def test_a_packed_word_that_would_swell_to_a_hundred_megabytes():
    packed = zlib.compressobj()
    swollen = b"".join(packed.compress(bytes(10**7)) for _ in range(10)) + packed.flush()
    with pytest.raises(ConfigError):
        unpack(base64.urlsafe_b64encode(swollen).decode())
