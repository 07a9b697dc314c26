"""Steps side by side: the GPU that they are compared on."""

import pytest

from calc import Architecture, TrainingLayout, TrainingWorkload, training_report
from calc.hardware.gpus import gpus
from calc.time.step_report import compared_place, compared_steps
from presets import models

CONFIG = models()["Qwen/Qwen3-8B"].config


def report(names, **work):
    kinds = [gpus()[name] for name in names]
    layout = TrainingLayout(dp=8, zero=3)
    return kinds, training_report(CONFIG, workload=TrainingWorkload(**work), layout=layout, gpus=kinds)


@pytest.mark.parametrize(
    ("names", "place"),
    [
        (("h200-sxm", "h100-sxm"), 1),  # both fit on the smaller
        (("l4", "h100-sxm", "h200-sxm"), 1),  # the smallest fits neither
        (("l4", "a100-sxm-40gb"), 1),  # none fits both: the largest
    ],
)
def test_the_smallest_on_which_all_fit(names, place):
    kinds, small = report(names)
    _, large = report(names, micro_batch=2, recompute="full")
    verdicts = [all(step.verdicts[i].verdict == "fits" for step in (small, large)) for i in range(len(kinds))]
    assert compared_place([small, large], kinds) == place
    assert verdicts[place] or not any(verdicts)
    comparison = compared_steps([(Architecture.from_config(CONFIG), one) for one in (small, large)], kinds)
    assert comparison.gpu == names[place]
    assert [step.step_s is not None for step in comparison.steps] == [
        step.verdicts[place].verdict in ("fits", "tight") for step in (small, large)
    ]
