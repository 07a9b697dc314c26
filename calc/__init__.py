"""The physics of Weighbridge: a config.json-shaped dict in, named tensors and every number that follows out."""

from calc.architecture import Architecture
from calc.errors import ConfigError
from calc.gpu import GPU
from calc.inference import Memory, Overhead, Range
from calc.layout import Layout, TrainingLayout
from calc.precision import Precision
from calc.recipe import RECIPES, Recipe
from calc.report import Report, report
from calc.training import TrainingMemory
from calc.training_report import TrainingReport, training_report
from calc.workload import TrainingWorkload, Workload

__all__ = [
    "GPU",
    "RECIPES",
    "Architecture",
    "ConfigError",
    "Layout",
    "Memory",
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
