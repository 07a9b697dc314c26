"""Memory to quantize the model on screen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calc.options import checked
from calc.quantizing import QuantizingReport, quantizing_report
from pages.parts.state.scenario import Scenario
from pages.parts.state.weighed import Answer, Model, answered, read


@dataclass(frozen=True)
class Quantized(Answer):
    """The answer about a conversion."""

    result: QuantizingReport | None = None

    @property
    def report(self) -> QuantizingReport:
        assert self.result is not None
        return self.result

    @property
    def download(self) -> QuantizingReport | None:  # type: ignore[override]
        return self.result


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
