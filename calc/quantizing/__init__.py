"""Quantizing a model: what the conversion itself takes of GPU, host memory and disk, phase by phase."""

from calc.quantizing.conversion import RECIPES, Quantizing, QuantizingReport, quantizing_report, recipe_of
from calc.quantizing.task import HeldPart, QuantizingPhase
