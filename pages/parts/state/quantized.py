"""Memory to quantize the model on screen."""

from collections.abc import Mapping
from typing import Any

from calc.options import checked
from calc.quantizing import QuantizingReport, quantizing_report
from pages.parts.state.scenario import Scenario
from pages.parts.state.weighed import Model, Reported, answered, read


class Quantized(Reported[QuantizingReport]):
    """The answer about a conversion."""


def quantized(scenario: Scenario, model: Model | None = None) -> Quantized:
    """The conversion of a model; by default of the session's."""
    model = model or read(scenario)

    def compute() -> Mapping[str, Any]:
        report = quantizing_report(
            model.config or {},
            checked(scenario.quantizing),
            gpus=scenario.chosen_gpus(),
            model=model.identifier(scenario),
        )
        return {"result": report}

    return answered(Quantized, scenario, model, compute)
