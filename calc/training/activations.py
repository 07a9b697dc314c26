"""Activation functions as transformers computes them (`activations.py`): in one kernel, or operation by operation."""

from calc.model.kernels import Kernels
from calc.training.autograd import Name, TrackedTensor, scoped
from calc.training.rearranging import Rearranging


class Activations(Rearranging):
    """A tape with the activation function of one model. `fused`: gates and GELU are one kernel each; `trains`: the
    model's own weights are trained, those of xIELU too."""

    def __init__(self, kernels: Kernels, width: int, *, autocast: bool, fused: bool, trains: bool) -> None:
        super().__init__(width, autocast=autocast)
        self.kernels, self.fused, self.trains = kernels, fused, trains

    @scoped
    def gate(self, gate: TrackedTensor, up: TrackedTensor) -> TrackedTensor:
        """act(gate)·up."""
        if self.fused:
            return self.fused_gate(gate, up, "gated")
        return self.multiply(self.activated(gate, "activated gate"), up, "gated")

    @scoped
    def activated(self, x: TrackedTensor, label: Name = "activated") -> TrackedTensor:
        """act(x)."""
        if self.kernels.activation == "written_out" and not self.fused:
            return self.written_out_gelu(x, label)
        if self.kernels.activation == "squared":
            return self.power(self.result_saved(x, "relu"), "relu, squared")
        if self.kernels.activation == "relu":
            return self.result_saved(x, label)
        if self.kernels.activation == "xielu" and not self.fused:
            return self.xielu(x, label)
        return self.activation(x, label)

    @scoped
    def written_out_gelu(self, x: TrackedTensor, name: Name) -> TrackedTensor:
        """0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), operation by operation."""
        label: Name = "steps of GELU"
        half = self.scale(x, label)
        inner = self.scale(self.add(x, self.scale(self.power(x, label), label), label), label)
        return self.multiply(half, self.shift(self.result_saved(inner, label), label), name)

    @scoped
    def xielu(self, x: TrackedTensor, name: Name) -> TrackedTensor:
        """xIELU, arXiv:2411.13010, by two trained numbers: α₊·x² + β·x above zero and (eˣ - 1 - x)·α₋ + β·x below, both
        for all of x (`XIELUActivation._xielu_python`)."""
        label: Name = "steps of xIELU"
        width = 4 if self.autocast else x.width  # softplus of the two runs in 32 bits
        above, below = (self.weight(1, width, trained=self.trains) for _ in range(2))
        mask = self.local(self.new("masks of xIELU", x.columns, 1, x.unit))
        square = self.multiply(self.multiply(above, x, label), x, label)
        first = self.add(square, self.scale(x, label), label)
        inner = self.subtract(self.exponential_less_one(self.clamped_below(x, label), label), x, label)
        second = self.add(self.multiply(inner, below, label), self.scale(x, label), label)
        return self.chosen(mask, first, second, name)
