"""The physics of Weighbridge: a config.json-shaped dict in, named tensors and every number that follows out."""

from calc.errors import ConfigError
from calc.formats import Precision
from calc.hardware.gpu import GPU
from calc.hardware.overhead import Overhead, Range
from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.serving.memory import Memory
from calc.serving.report import Report, report
from calc.serving.workload import Workload
from calc.training import (
    RECIPES,
    Objective,
    Recipe,
    TrainingLayout,
    TrainingMemory,
    TrainingReport,
    TrainingWorkload,
    training_report,
)

__all__ = [
    "GPU",
    "RECIPES",
    "Architecture",
    "ConfigError",
    "Layout",
    "Memory",
    "Objective",
    "Overhead",
    "Precision",
    "Range",
    "Recipe",
    "Report",
    "TrainingLayout",
    "TrainingMemory",
    "TrainingReport",
    "TrainingWorkload",
    "Workload",
    "report",
    "training_report",
]
