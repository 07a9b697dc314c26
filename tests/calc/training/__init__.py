"""A training step of a preset."""

from calc import RECIPES, Precision, TrainingLayout, TrainingWorkload
from calc.training import Training, TrainingScenario
from tests.structures import architectures

ARCHITECTURES = architectures()


def training(model, recipe="master", frozen="bf16", layout=None, **work):
    architecture, chosen = ARCHITECTURES[model], RECIPES[recipe]
    layout, precision = layout or TrainingLayout(), Precision(weights=frozen)
    return Training(
        architecture,
        TrainingScenario(workload=TrainingWorkload(**work), recipe=chosen, layout=layout, frozen=precision),
    )
