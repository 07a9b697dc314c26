"""Quantizing a model: what the conversion itself takes of GPU, host memory and disk, phase by phase."""

from calc.quantizing.conversion import RECIPES, Quantizing, QuantizingReport, quantizing_report
from calc.quantizing.task import Part, Phase

__all__ = ["RECIPES", "Part", "Phase", "Quantizing", "QuantizingReport", "quantizing_report"]
