"""Memory of a training step: what is trained and how (`workload`, `recipe`, `optimizer`, `layout`), what a layer keeps
for its backward pass (`saved`), what belongs to the weights (`states`), the moments of a step (`step`), and the report.
"""

from calc.training.recipe import RECIPES, Recipe
from calc.training.sharding import TrainingLayout
from calc.training.step import Training, TrainingMemory
from calc.training.training_report import TrainingReport, training_report
from calc.training.training_workload import TrainingWorkload

__all__ = [
    "RECIPES",
    "Recipe",
    "Training",
    "TrainingLayout",
    "TrainingMemory",
    "TrainingReport",
    "TrainingWorkload",
    "training_report",
]
