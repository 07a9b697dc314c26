"""Memory of a training step: what is trained and how (`workload`, `recipe`, `layout`); layers as their modules compute,
on a tape that says when each storage comes and goes (`tape`, `operations`, `modules`; a file for each kind of module:
`attention`, `mlp`, `experts`, `recurrent`, `ends`; `decoder` puts them together, `profile` reads the tape); weights
and what belongs to them (`states`); the moments of a step on one rank (`moments`, `course`, `stage`); losses of
preference and reinforcement learning (`objective`, `methods`); the step, its verdict, its report, and what would make
it smaller (`levers`)."""

from calc.training.layout import TrainingLayout
from calc.training.objective import Objective
from calc.training.recipe import RECIPES, Recipe
from calc.training.report import TrainingReport, training_report
from calc.training.step import Training, TrainingMemory
from calc.training.workload import TrainingWorkload

__all__ = [
    "RECIPES",
    "Objective",
    "Recipe",
    "Training",
    "TrainingLayout",
    "TrainingMemory",
    "TrainingReport",
    "TrainingWorkload",
    "training_report",
]
