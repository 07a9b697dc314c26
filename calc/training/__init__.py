"""Memory of a training step: what is trained and how (`training_workload`, `recipe`, `optimizer`, `sharding`, and
`trainers`' defaults); layers as their modules compute, on a tape of storages (`autograd`, `training_operations`,
`rearranging`, `modules`, then `decoder` and what it calls; `profile` reads the tape); weights and what belongs to them
(`states`); the moments of a step on one rank (`schedule`, `stage`, `fsdp`) and their named parts (`parts`); the step,
its derivation, its report, and what would make it smaller (`training_changes`, `training_levers`)."""

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
