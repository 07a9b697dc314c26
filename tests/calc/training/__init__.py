"""A training step of a preset."""

from calc import RECIPES, Architecture, Precision, TrainingLayout, TrainingWorkload
from calc.training import Training, TrainingScenario
from presets import models

ARCHITECTURES = {name: Architecture.from_config(preset.config) for name, preset in models().items()}


def training(model, recipe="master", frozen="bf16", layout=None, **work):
    architecture, chosen = ARCHITECTURES[model], RECIPES[recipe]
    layout, precision = layout or TrainingLayout(), Precision(weights=frozen)
    return Training(
        architecture,
        TrainingScenario(workload=TrainingWorkload(**work), recipe=chosen, layout=layout, frozen=precision),
    )
