"""Encoders for images and sound, by the classes of transformers 5.23 on the meta device."""

import copy
from functools import reduce

import pytest

from calc import Architecture, ConfigError
from calc.families.sound_towers import folding_steps
from calc.families.vision_fields import uncounted
from tests import load
from tests.cases import in_one_test

TOWERS = load("towers.json")


@in_one_test("row", [pytest.param(row, id=row["config"]["model_type"]) for row in TOWERS])
def test_image_towers(row):
    assert Architecture.from_config(row["config"]).parameters().not_in_total["vision"] == row["vision"]


def tower_row(model_type):
    """The last config of a wrapper in the table of towers: a small one."""
    return [row for row in TOWERS if row["config"]["model_type"] == model_type][-1]["config"]


@pytest.mark.parametrize(
    ("model_type", "section", "field", "value", "sentence"),
    [
        ("emu3", "vq_config", "channel_multiplier", "2", "channel_multiplier"),
        ("emu3", "vq_config", "num_res_blocks", 10**6, "50,000 different weights"),
        ("blip-2", "qformer_config", "num_hidden_layers", 10**6, "num_hidden_layers"),
        ("dots3_note", "vision_config", "num_local_experts", 10**6, "1,024 equal layers"),
        ("dots3_note", "vision_config", "pyramid_num_routed", [-1, 4], "pyramid_num_routed lists 2 layers"),
        ("glm_ocr", "vision_config", "depth", 10**6, "depth"),
        ("granite4_vision", None, "downsample_rate", "4:8", "it must be two whole numbers such as 4.8"),
        ("gemma3n", "audio_config", "sscp_conv_kernel_size", [3, "x"], "sscp_conv_kernel_size"),
    ],
)
def test_what_is_wrong_with_an_encoder_is_said(model_type, section, field, value, sentence):
    config = tower_row(model_type)
    wrong = config | ({field: value} if section is None else {section: config[section] | {field: value}})
    with pytest.raises(ConfigError, match=sentence):
        Architecture.from_config(wrong)


WRONG = [None, True, -1, 0, 1, 10**9, 2**31, "x", [], [0, 0], [3, "x"], {}, {"a": 1}, 1.5]


def paths(config, path=()):
    """Of every field of the encoders in a config."""
    for name, value in config.items():
        if path or name not in ("model_type", "text_config"):
            yield (*path, name)
            if isinstance(value, dict):
                yield from paths(value, (*path, name))


@pytest.mark.parametrize("model_type", sorted({row["config"]["model_type"] for row in TOWERS}))
def test_a_wrong_field_of_an_encoder_is_a_sentence(model_type):
    """Whatever stands in a field: an answer or a ConfigError, soon."""
    for i, (*outer, last) in enumerate(paths(tower_row(model_type))):
        for value in WRONG[i % 2 :: 2]:
            config = copy.deepcopy(tower_row(model_type))
            section = reduce(dict.__getitem__, outer, config)
            section[last] = value
            try:
                assert Architecture.from_config(config).parameters().total > 0
            except ConfigError as error:
                assert str(error).endswith(".")


@pytest.mark.parametrize(
    ("model_type", "named"),
    [
        ("fast_vlm", {"architecture": "resnet50"}),
        ("fast_vlm", {"model_args": {}}),
        ("perception_lm", {"model_args": {"embed_dim": 192, "global_pool": "map"}}),
        ("perception_lm", {"model_args": {"embed_dim": 192, "global_pool": "", "mlp_ratio": 2.0}}),
        ("llava", {"model_type": "dinov2"}),
    ],
)
def test_another_encoder_is_named_and_left_out(model_type, named):
    config = tower_row(model_type)
    other = config | {"vision_config": config["vision_config"] | named}
    assert Architecture.from_config(other).vision is None
    assert uncounted(other) == other["vision_config"]["model_type"]


@pytest.mark.parametrize(
    ("frames", "side", "layers", "channels"),
    [
        pytest.param(2, 40, 4, [3, 128, 320, 4800, 614400], id="fewer-layers-than-steps"),
        pytest.param(2, 8, 3, [3, 64, 192, 24576], id="fewer-by-one"),
        pytest.param(2, 40, 6, [3, 3, 128, 320, 1216, 4800, 614400], id="as-many"),
    ],
)
def test_steps_of_inkling(frames, side, layers, channels):
    """By `plan_out_scales` of transformers 5.23."""
    assert [step[3] for step in folding_steps(frames, side, 3, layers)] == channels
