"""A byte order mark, a whole number with a point and what steers a terminal, at each door: read, or a sentence without
them. The command line's are in tests/cli/test_command.py."""

import json
from unittest.mock import patch

import pytest
from huggingface_hub import constants

from calc import Architecture, ConfigError
from calc.text import BYTE_ORDER_MARK, pack, parse_config, unpack
from calc.verify.checkpoint import read_safetensors
from calc.verify.logs import read_log
from calc.verify.measurement import read_measurement
from presets import hub, models
from tests import DATA, EXAMPLES, hub_server
from tests.hostile.harm import UNSEEN

CONFIG = {**models()["Qwen/Qwen2.5-0.5B"].config}
POINTS = json.dumps(CONFIG | {"hidden_size": 896.0, "num_hidden_layers": 24.0})
STEERING = "\x1b[31mred\x1b]0;title\x07"


def through_paste(text, folder):
    return parse_config(text)


def through_link(text, folder):
    return unpack(pack(parse_config(text)))


def through_hub(text, folder):
    with hub_server.hub({"o/m": {"config.json": text.encode()}}) as server:
        template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        changes = {"ENDPOINT": server.endpoint, "HUGGINGFACE_CO_URL_TEMPLATE": template, "HF_HUB_CACHE": str(folder)}
        with patch.multiple(constants, **changes):
            return hub.fetch("o/m").config


DOORS = [through_paste, through_link, through_hub]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("begin", ["", BYTE_ORDER_MARK])
def test_whole_numbers_with_a_point(door, begin, tmp_path):
    model, original = Architecture.from_config(door(begin + POINTS, tmp_path)), Architecture.from_config(CONFIG)
    assert (type(model.hidden), model.hidden, model.num_layers) == (int, 896, 24)
    assert model.parameters() == original.parameters()


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("field", ["model_type", "hidden_size", "hidden_act"])
def test_nothing_that_is_echoed_steers_a_terminal(door, field, tmp_path):
    try:
        Architecture.from_config(door(json.dumps(CONFIG | {field: STEERING}), tmp_path))
    except ConfigError as error:
        assert not UNSEEN.search(str(error))
    else:
        assert field == "hidden_act"


INDEX = json.loads((EXAMPLES / "model.safetensors.index.json").read_text())
MEASUREMENT = sorted(DATA.glob("measurement-*.json"))[0].read_text()
LOG = sorted(EXAMPLES.glob("*.log"))[0].read_text()


def index(text):
    return read_safetensors(text.encode())


@pytest.mark.parametrize(
    ("read", "text"), [(index, json.dumps(INDEX)), (read_measurement, MEASUREMENT), (read_log, LOG)]
)
def test_an_uploaded_text_that_begins_with_a_byte_order_mark(read, text):
    assert read(BYTE_ORDER_MARK + text) == read(text)


def test_an_uploaded_index_of_numbers_with_a_point():
    total = INDEX["metadata"]["total_size"]
    pointed = INDEX | {"metadata": {"total_size": float(total)}}
    assert index(json.dumps(pointed)) == index(json.dumps(INDEX))


@pytest.mark.parametrize("key", ["metadata", "weight_map"])
def test_nothing_of_an_uploaded_index_steers_a_terminal(key):
    try:
        index(json.dumps(INDEX | {key: {STEERING: STEERING}}))
    except ConfigError as error:
        assert not UNSEEN.search(str(error))
