"""The solvers beside slow ones that try size after size; `python -m benchmarks.speed.solvers` asks all of it."""

from random import Random

import pytest

from benchmarks.speed.solvers import compared
from presets import gpus, models

DRAWN = Random(7).sample(sorted(models()), 14)


@pytest.mark.slow
@pytest.mark.parametrize("model", [*DRAWN[:2], *(pytest.param(name, marks=pytest.mark.sweep) for name in DRAWN[2:])])
def test_solvers_say_what_trying_says(model):
    some = Random(model).sample(sorted(gpus().values(), key=lambda gpu: gpu.id), 5)
    for what, fast, slow in compared(model, some):
        assert fast == slow, what
