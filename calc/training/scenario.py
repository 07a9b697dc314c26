from calc.errors import Frozen
from calc.formats import Precision
from calc.hardware.overhead import Overhead
from calc.training.recipe import Recipe
from calc.training.sharding import TrainingLayout
from calc.training.training_workload import TrainingWorkload


class TrainingScenario(Frozen):
    """What was asked of a training step."""

    workload: TrainingWorkload
    recipe: Recipe
    frozen: Precision
    layout: TrainingLayout
    overhead: Overhead
