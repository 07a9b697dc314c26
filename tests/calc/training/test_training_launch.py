"""Commands that start training: every flag is one that accelerate's and torchrun's own parsers have."""

import json
from itertools import product
from pathlib import Path

import pytest

from calc import RECIPES
from calc.training import TrainingLayout, TrainingWorkload, accelerate, torchrun

FLAGS = json.loads(Path("tests/data/engine_flags.json").read_text(encoding="utf-8"))


def words(layout, recipe="master", **workload):
    return " ".join(accelerate(TrainingWorkload(**workload), RECIPES[recipe], TrainingLayout(**layout)).words)


def test_every_flag_is_one_that_the_launcher_has():
    for zero, tp, cp, dp in product(range(4), (1, 2), (1, 2), (1, 16)):
        layout = TrainingLayout(zero=zero, tp=tp, cp=cp, dp=dp, cpu_offload=zero == 3 and cp * dp > 1)
        for launch in (
            torchrun(layout),
            accelerate(TrainingWorkload(accumulation=4, recompute="full"), RECIPES["master"], layout),
        ):
            given = {word for word in launch.words if word.startswith("--")}
            assert given <= set(FLAGS[launch.words[0]]), launch.text


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ({"dp": 8, "zero": 3}, "--use_fsdp --fsdp_version 2 --fsdp_reshard_after_forward true"),
        (
            {"dp": 2, "zero": 3, "cpu_offload": True},
            "--fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP --fsdp_offload_params true",
        ),
        ({"dp": 8, "zero": 2}, "--use_deepspeed --zero_stage 2"),
        ({"dp": 8}, "--num_processes 8 --num_machines 1 --mixed_precision bf16 --multi_gpu train.py"),
        ({"dp": 2, "tp": 4, "zero": 3}, "--parallelism_config_dp_shard_size 2 --parallelism_config_tp_size 4"),
        ({"dp": 16, "zero": 3}, "--num_processes 16 --num_machines 2"),
    ],
)
def test_a_layout_in_accelerate_s_words(layout, said):
    assert said in words(layout)


@pytest.mark.parametrize(
    ("recipe", "said"), [("bf16", "no"), ("fp32", "no"), ("autocast", "bf16"), ("deepspeed", "bf16")]
)
def test_mixed_precision(recipe, said):
    assert f"--mixed_precision {said} " in words({}, recipe)


def test_torchrun_starts_a_process_a_gpu():
    assert torchrun(TrainingLayout(dp=8)).words == ("torchrun", "--standalone", "--nproc-per-node", "8", "train.py")
    assert "--nnodes 4" in " ".join(torchrun(TrainingLayout(dp=8, tp=4)).words)


def test_interleaved_stages_are_the_script_s():
    assert not torchrun(TrainingLayout(pp=4)).notes
    (note,) = torchrun(TrainingLayout(pp=4, vp=2)).notes
    assert "--num-virtual-stages-per-pipeline-rank 2" in str(note)


def test_what_a_command_can_not_say_is_said_beside_it():
    launch = accelerate(TrainingWorkload(), RECIPES["master"], TrainingLayout(pp=2))
    assert "Megatron-LM" in str(launch.notes[0])
