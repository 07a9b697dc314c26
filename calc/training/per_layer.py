"""The embedding of its own that each layer mixes in: Gemma 3n and 4 (transformers' `modeling_gemma4.py`,
`project_per_layer_inputs`). One tensor holds those of all layers, and so does its gradient."""

from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.training.autograd import CountedBy, TrackedTensor, scoped
from calc.training.ends import look_up
from calc.training.modules import Modules
from calc.training.training_operations import ACTIVATION_GRADIENTS

INPUTS = "inputs of single layers"


def per_layer_columns(model: Architecture) -> int:
    """Columns of all layers' inputs side by side; 0 where there are none."""
    return sum(block.per_layer_width * len(block.layers) for block in model.blocks)


@scoped
def with_per_layer_inputs(t: Modules, model: Architecture, x: TrackedTensor) -> TrackedTensor:
    """Embedded tokens, beside which the inputs of all layers are held until the backward pass reaches them: rows of a
    second table and a projection of the first."""
    columns, width = per_layer_columns(model), model.blocks[0].per_layer_width
    (table,) = (tensor for tensor in model.tensors() if tensor.name.endswith("embed_tokens_per_layer.weight"))
    rows = t.scale(look_up(t, table.shape[0] * columns, columns, INPUTS), INPUTS)
    projected = t.scale(t.matrix(x, "per_layer_model_projection", columns, INPUTS), INPUTS)
    projected = t.norm(projected, t.kernels.norm_kind("rms"), INPUTS, heads=columns // width)
    inputs = t.scale(t.add(projected, rows, INPUTS), INPUTS)
    together, side = TrackedTensor(x.storage, x.columns, x.width, x.unit), (columns, inputs.width, x.unit)
    return t.record(together, [x, inputs], lambda gradient: [gradient, t.gradient(side)], [inputs.storage])


def per_layer_inputs(t: Modules, columns: int) -> TrackedTensor:
    """The inputs of all layers as one of them meets them."""
    inputs = t.new(INPUTS, columns, t.settings.rest, CountedBy.TOKEN)
    if t.settings.trains or t.settings.adapters is not None:
        t.leaf(inputs)
    return inputs


@scoped
def mixed_in(t: Modules, block: Block, x: TrackedTensor, inputs: TrackedTensor) -> TrackedTensor:
    """A layer's output with its own input mixed in. Its gradient is put into zeros as large as those of all layers, and
    added to what waits for the layers before, which is counted outside."""
    narrow = block.per_layer_width
    own = TrackedTensor(inputs.storage, narrow, inputs.width, inputs.unit)

    def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
        zeros = t.new(ACTIVATION_GRADIENTS, inputs.columns, inputs.width, inputs.unit)
        t.like(ACTIVATION_GRADIENTS, zeros, zeros)
        return [None]

    t.record(own, [inputs], backward)
    label = "gated input of the layer"
    gate = t.local(t.activated(t.matrix(x, "per_layer_input_gate", narrow, label), label))
    y = t.matrix(t.multiply(gate, own, label), "per_layer_projection", x.columns, "input of the layer")
    with t.alive(y):
        y = t.norm(y, t.kernels.norm_kind(block.norm), "normed input of the layer")
    return t.add(x, y, "residual stream")
