"""The physics of Weighbridge: a config.json-shaped dict in, named tensors and every number that follows out."""

from calc.architecture import Architecture
from calc.errors import ConfigError
from calc.gpu import GPU
from calc.inference import Memory, Overhead, Range
from calc.layout import Layout
from calc.precision import Precision
from calc.report import Report, report
from calc.training import (
    RECIPES,
    Recipe,
    TrainingLayout,
    TrainingMemory,
    TrainingReport,
    TrainingWorkload,
    training_report,
)
from calc.workload import Workload

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
