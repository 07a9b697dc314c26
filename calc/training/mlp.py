"""Feed-forwards as transformers' classes compute them in training: matrices, gates and activation functions
(`activations.py`), in one kernel or operation by operation."""

from calc.model.feedforward import MLP
from calc.training.modules import Modules
from calc.training.tape import CountedBy, Name, TrackedTensor, scoped


@scoped
def mlp(t: Modules, ffn: MLP, x: TrackedTensor) -> TrackedTensor:
    """down(act(gate(x))·up(x)), or down(act(up(x)))."""
    columns, f = x.columns, ffn.intermediate
    if ffn.gated:
        y = gated(t, x, f, bias=ffn.bias)
    else:
        y = activated(t, t.matrix(x, "up_proj", f, "states of the feed-forward", bias=ffn.bias))
    if t.kernels.norms_inside:
        with t.alive(y):
            y = t.norm(y, "rms", "normed gated states")
    return t.matrix(
        t.local(y), "down_proj", columns, "output of the feed-forward", bias=ffn.bias, unit=CountedBy.STREAM
    )


@scoped
def activated_gate(t: Modules, gate: TrackedTensor, up: TrackedTensor) -> TrackedTensor:
    """act(gate)·up."""
    if t.settings.fused:
        return t.fused_gate(gate, up, "gated")
    return t.multiply(activated(t, gate, "activated gate"), up, "gated")


@scoped
def activated(t: Modules, x: TrackedTensor, label: Name = "activated") -> TrackedTensor:
    """act(x)."""
    if t.kernels.activation == "written_out" and not t.settings.fused:
        return written_out_gelu(t, x, label)
    if t.kernels.activation == "squared":
        return t.power(t.result_saved(x, "relu"), "relu, squared")
    if t.kernels.activation == "relu":
        return t.result_saved(x, label)
    if t.kernels.activation == "xielu" and not t.settings.fused:
        return xielu(t, x, label)
    return t.activation(x, label)


@scoped
def written_out_gelu(t: Modules, x: TrackedTensor, name: Name) -> TrackedTensor:
    """0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), operation by operation."""
    label: Name = "steps of GELU"
    half = t.scale(x, label)
    inner = t.scale(t.add(x, t.scale(t.power(x, label), label), label), label)
    return t.multiply(half, t.shift(t.result_saved(inner, label), label), name)


@scoped
def xielu(t: Modules, x: TrackedTensor, name: Name) -> TrackedTensor:
    """xIELU, arXiv:2411.13010, by two trained numbers: α₊·x² + β·x above zero and (eˣ - 1 - x)·α₋ + β·x below, both
    for all of x (`XIELUActivation._xielu_python`)."""
    label: Name = "steps of xIELU"
    width = 4 if t.autocast else x.width  # softplus of the two runs in 32 bits
    above, below = (t.weight(1, width, trained=t.settings.trains) for _ in range(2))
    mask = t.local(t.new("masks of xIELU", x.columns, 1, x.unit))
    square = t.multiply(t.multiply(above, x, label), x, label)
    first = t.add(square, t.scale(x, label), label)
    inner = t.subtract(t.expm1(t.clamped_below(x, label), label), x, label)
    second = t.add(t.multiply(inner, below, label), t.scale(x, label), label)
    return t.chosen(mask, first, second, name)


@scoped
def gated(t: Modules, x: TrackedTensor, columns: int, *, bias: bool) -> TrackedTensor:
    """act(gate(x))·up(x), by two matrices or one."""
    if t.kernels.multiplied:
        return multiplied_gate(t, x, columns, bias=bias)
    if t.packs("gate_proj", "up_proj"):
        gate, up = t.split(t.matrix(x, "gate_proj", 2 * columns, "gate and up", bias=bias), columns, columns)
        return activated_gate(t, gate, up)
    gate = t.matrix(x, "gate_proj", columns, "gate", bias=bias)
    if t.settings.fused:
        return t.fused_gate(t.local(gate), t.matrix(x, "up_proj", columns, "up", bias=bias), "gated")
    gate = t.local(activated(t, gate, "activated gate"))
    return t.multiply(gate, t.matrix(x, "up_proj", columns, "up", bias=bias), "gated")


@scoped
def multiplied_gate(t: Modules, x: TrackedTensor, columns: int, *, bias: bool) -> TrackedTensor:
    """up(x)·act(gate(x)·m): Falcon-H1."""
    up = t.local(t.matrix(x, "up_proj", columns, "up", bias=bias))
    gate = t.scale(t.matrix(x, "gate_proj", columns, "gate", bias=bias), "gate")
    if t.settings.fused:
        return t.fused_gate(gate, up, "gated")
    return t.multiply(up, activated(t, gate, "activated gate"), "gated")
