"""The script that measures on a GPU, as far as it goes without one, and its files beside what is predicted."""

import json

import pytest
from hypothesis import given

from benchmarks.measure import FORMAT, cut_layers, language_model, parser
from calc import Architecture, ConfigError
from calc.verify.measurement import read_measurement, with_predictions
from presets import models
from tests import DATA, EXAMPLES, load
from tests.cases import in_one_test
from tests.mutation import mutated

# Each was written by the script, with torch and transformers, from the config that it holds.
QWEN3 = EXAMPLES / "measurement.json"
FILES = [QWEN3, *(DATA / f"measurement-{name}.json" for name in ("deepseek_v3", "gpt_oss", "llama", "qwen3_moe"))]


def rows(file):
    return with_predictions(read_measurement(file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_weights_are_exact(file):
    parameters, weights = rows(file)[:2]
    assert (parameters.kind, weights.kind) == ("parameters", "weights")
    assert parameters.measured == parameters.predicted
    assert weights.measured == weights.predicted
    assert weights.difference == 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("generated", [0, 1])
def test_the_cache_is_exact(file, generated):
    caches = [row for row in rows(file) if row.kind == "cache" and row.generated == generated]
    assert {row.batch for row in caches} == {1, 2}
    assert [row.measured for row in caches] == [row.predicted for row in caches]


@pytest.mark.parametrize("file", [QWEN3, DATA / "measurement-llama.json"], ids=lambda file: file.stem)
def test_the_peak_of_eager_attention_is_exact(file):
    peaks = [row for row in rows(file) if row.kind == "prefill" and row.attention == "eager"]
    assert {(row.batch, row.logits) for row in peaks} == {(1, "last"), (1, "all"), (2, "last"), (2, "all")}
    assert [row.measured for row in peaks] == [row.predicted for row in peaks]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_training_step_comes_close(file):
    steps = [row for row in rows(file) if row.kind == "train" and not row.checkpointing and row.measured is not None]
    assert {row.batch for row in steps} == {1, 2}
    assert [row.predicted for row in steps] == [pytest.approx(row.measured, rel=0.04) for row in steps]


def test_a_refused_combination_keeps_its_reason():
    refused = [row for row in rows(DATA / "measurement-gpt_oss.json") if row.error]
    assert {row.attention for row in refused} == {"flash"}  # transformers has no sdpa for it
    assert all(row.measured is None and row.difference is None for row in refused)


def test_every_row_of_the_file_is_there():
    written = load(QWEN3)
    assert [row.kind for row in rows(QWEN3)] == ["parameters", *(row["kind"] for row in written["rows"])]
    assert written["format"] == FORMAT


def changed(*path, value):
    """The file of Qwen3 with one value in it changed; None: left out."""
    written = load(QWEN3)
    *way, last = path
    inner = written
    for step in way:
        inner = inner[step]
    inner[last] = value
    return json.dumps(written)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("", "not JSON", id="nothing"),
        pytest.param("[" * 100_000, "not JSON", id="deep"),
        pytest.param('{"rows": ' + "9" * 5000 + "}", "not JSON", id="a huge number"),
        pytest.param("[1]", "not a measurement", id="a list"),
        pytest.param('{"model_type": "llama"}', "not a measurement", id="a config"),
        pytest.param('{"format": "\\ud800"}', "half of a surrogate pair", id="half a character"),
        pytest.param(" " * 1_000_001, "larger than 1 MB", id="large"),
        pytest.param('{"format": "weighbridge-measurement/1"}', "config is not right", id="only a format"),
        pytest.param(changed("format", value="weighbridge-measurement/2"), "format", id="another version"),
        pytest.param(changed("rows", value=[]), "rows", id="no rows"),
        pytest.param(changed("rows", value=[{"kind": "rest", "bytes": 1}]), "rows.0", id="an unknown kind"),
        pytest.param(changed("rows", 0, "bytes", value=-1), "rows.0.weights.bytes", id="less than nothing"),
        pytest.param(changed("rows", 0, "bytes", value=None), "bytes or an error", id="neither bytes nor error"),
        pytest.param(changed("rows", 1, "batch", value=0), "batch", id="no sequence"),
        pytest.param(changed("settings", "dtype", value="int4"), "settings.dtype", id="a dtype that it never wrote"),
    ],
)
def test_bad_files_are_refused_in_a_sentence(text, sentence):
    with pytest.raises(ConfigError, match=sentence) as error:
        read_measurement(text)
    assert "\n" not in str(error.value)


def test_a_config_that_cannot_be_read_is_a_config_error():
    with pytest.raises(ConfigError):
        with_predictions(read_measurement(changed("config", "hidden_size", value="wide")))


@pytest.mark.parametrize(
    ("config", "layers", "cut"),
    [
        pytest.param({"n_layer": 12, "n_embd": 768}, 3, {"n_layer": 3, "n_embd": 768}, id="by another name"),
        pytest.param(
            {"num_hidden_layers": 4, "layer_types": ["a", "b", "a", "b"], "eos_token_id": [1, 2, 3]},
            2,
            {"num_hidden_layers": 2, "layer_types": ["a", "b"], "eos_token_id": [1, 2, 3]},
            id="a word a layer",
        ),
        pytest.param(
            {"num_hidden_layers": 3, "num_nextn_predict_layers": 1, "compress_ratios": [0, 4, 8, 16]},
            2,
            {"num_hidden_layers": 2, "num_nextn_predict_layers": 1, "compress_ratios": [0, 4, 16]},
            id="the layer that predicts further tokens stays",
        ),
        pytest.param(
            {"num_hidden_layers": 4, "mlp_only_layers": [0, 2], "linear_attn_config": {"kda_layers": [1, 2, 3]}},
            2,
            {"num_hidden_layers": 2, "mlp_only_layers": [0], "linear_attn_config": {"kda_layers": [1, 2]}},
            id="numbers of layers, from 0 and from 1",
        ),
        pytest.param(
            {"num_hidden_layers": 4, "hybrid_override_pattern": "M-M*"},
            3,
            {"num_hidden_layers": 3, "hybrid_override_pattern": "M-M"},
            id="a letter a layer",
        ),
    ],
)
def test_layers_are_cut(config, layers, cut):
    assert cut_layers(config, layers) == cut


ALONE = {name: language_model(preset.config) for name, preset in models().items()}


UNNAMED = ["MiniMaxAI/MiniMax-M3"]  # whose text_config names no class of its own


def test_all_but_these_name_a_class_of_their_own():
    assert [name for name, config in ALONE.items() if "model_type" not in config] == UNNAMED


@in_one_test("model", sorted(ALONE.keys() - UNNAMED))
def test_every_preset_can_be_cut(model):
    assert Architecture.from_config(cut_layers(ALONE[model], 2)).num_layers == 2


@pytest.mark.parametrize(("config", "layers"), [({"num_hidden_layers": 2}, 3), ({"num_hidden_layers": 2}, 0), ({}, 1)])
def test_what_cannot_be_cut_is_refused(config, layers):
    with pytest.raises(ValueError, match="layers"):
        cut_layers(config, layers)


def test_the_language_model_alone():
    text = {"model_type": "gemma3_text", "hidden_size": 8, "quantization_config": {"quant_method": "fp8"}}
    config = {"model_type": "gemma3", "tie_word_embeddings": True, "vision_config": {}, "text_config": text}
    alone = {"model_type": "gemma3_text", "hidden_size": 8, "tie_word_embeddings": True}
    assert language_model(config) == alone
    assert language_model(alone | {"_name_or_path": "here"}) == alone


def test_arguments():
    words = "config.json --batch 1 4 --context 512 4096 32768 --attention flash eager --layers 4 --train --dtype fp16"
    a = parser().parse_args(words.split())
    assert (a.batch, a.context, a.attention) == ([1, 4], [512, 4096, 32768], ["flash", "eager"])
    assert (a.layers, a.train, a.gradient_checkpointing, a.dtype, a.out) == (4, True, False, "fp16", None)


@pytest.mark.slow
@pytest.mark.drawn
@given(mutated([load(file) for file in FILES]))
def test_a_mutated_file_is_read_or_refused(measurement):
    try:
        assert with_predictions(read_measurement(json.dumps(measurement)))
    except ConfigError as error:
        assert str(error).endswith(".")
