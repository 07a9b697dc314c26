"""What is in memory is said by the tape, not by Python: whatever else refers to a tensor changes nothing."""

import gc
import sys

import pytest

from benchmarks.accuracy.steps import configs, load, name_of, training
from calc import Architecture, TrainingWorkload
from calc.training import RECIPES, CountedBy, Training, TrainingScenario
from calc.training.tape import Tape, scoped
from presets import models

CONFIGS = configs()
ROWS = {name_of(row): row for row in load("train_steps.json")}
EVERY_KIND = [name for name, row in ROWS.items() if row["model"] in ("Qwen3-8B", "gpt-oss-20b", "Qwen3-30B-A3B")]


@pytest.fixture
def nothing_dies():
    """Every frame that runs stays, with all of its variables, as a profiler or an exception may hold it."""
    frames = []
    sys.setprofile(lambda frame, event, argument: frames.append((frame, argument)))
    gc.disable()
    yield
    sys.setprofile(None)
    gc.enable()
    assert frames


def bytes_of(step):
    return {phase: sum(part.bytes for part in parts) for phase, parts in step.phases().items()}


@pytest.mark.parametrize("name", EVERY_KIND[::3])
def test_frames_that_stay_leave_a_tracked_step_as_it_is(nothing_dies, name):
    row = ROWS[name]
    ours = bytes_of(training(row, Architecture.from_config(CONFIGS[row["model"]])))
    assert ours == pytest.approx(row["phases"], rel=0.001)


@pytest.mark.parametrize(
    ("model", "work", "recipe"),
    [
        pytest.param("Qwen/Qwen3.5-9B", {"recompute": "full"}, "autocast", id="delta rule, checkpointed"),
        pytest.param("ibm-granite/granite-4.0-h-tiny", {"method": "lora"}, "bf16", id="Mamba-2, LoRA"),
        pytest.param(
            "deepseek-ai/DeepSeek-V3", {"recompute": "full", "reentrant": True}, "bf16", id="latents, reentrant"
        ),
        pytest.param("google/gemma-2-9b", {"recompute": "selective", "attention": "eager"}, "bf16", id="scores again"),
    ],
)
def test_frames_that_stay_change_no_byte(request, model, work, recipe):
    def step():
        architecture = Architecture.from_config(models()[model].config)
        workload = TrainingWorkload(**work)
        return Training(architecture, TrainingScenario(workload=workload, recipe=RECIPES[recipe]))

    alone = bytes_of(step())
    request.getfixturevalue("nothing_dies")
    assert bytes_of(step()) == alone


def peak(tape):
    """Bytes of a token at the fullest moment."""
    now = most = 0
    for number in tape.events()[0]:
        _, _, size = tape.sizes[number if number >= 0 else -1 - number]
        now += size if number >= 0 else -size
        most = max(most, now)
    assert now == 0
    return most


def test_a_storage_is_in_memory_until_it_is_read_last():
    """y = f(x), z = g(y): two at a time; held until the end of a function or a block, or let go of before it."""

    def chain(tape):
        x = tape.new("x", 1, 2, CountedBy.TOKEN)
        return tape.new("z", 1, 2, CountedBy.TOKEN, tape.new("y", 1, 2, CountedBy.TOKEN, x))

    @scoped
    def local(tape):
        tape.local(tape.new("x", 1, 2, CountedBy.TOKEN))
        return chain(tape)

    @scoped
    def freed(tape):
        tape.free(tape.local(tape.new("x", 1, 2, CountedBy.TOKEN)))
        return chain(tape)

    def block(tape):
        with tape.alive(tape.new("x", 1, 2, CountedBy.TOKEN)):
            return chain(tape)

    for run, nbytes in ((chain, 4), (local, 6), (freed, 4), (block, 6)):
        tape = Tape()
        run(tape)
        assert peak(tape) == nbytes, run.__name__
