"""The embedding, with that of its own that each layer mixes in, and the last norm."""

from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.training.feedforward import activated
from calc.training.modules import Modules
from calc.training.operations import ACTIVATION_GRADIENTS
from calc.training.tape import CountedBy, TrackedTensor, scoped


@scoped
def embedding(t: Modules, model: Architecture) -> TrackedTensor:
    """Input of the first layer: rows of the table, scaled or with those of positions where the family does so."""
    columns, tied = model.d_embedding or model.hidden, model.tied and t.settings.reads_table
    looked_up = x = t.local(look_up(t, model.vocab * columns, columns, "embedded tokens", tied=tied))
    if t.settings.inputs_need_gradients:
        t.leaf(x)
    if t.kernels.scales_embedded:
        x = t.scale(x, "embedded tokens, scaled")
    if model.d_embedding is not None:
        x = t.matrix(x, "project_in", model.hidden, "embedded tokens in the width of the model")
    if model.positions:
        unit = CountedBy.TOKEN if t.kernels.positions_by_sequence else CountedBy.POSITION
        places = t.local(look_up(t, model.positions * model.hidden, model.hidden, "embedded positions", unit))
        x = t.add(x, places, "embedded tokens and positions")
    if "embedding" in t.kernels.dropout:
        x = t.dropout(x, "embedded tokens after dropout")
    if "embedded" in t.kernels.norms_unweighted:
        x = t.unweighted_norm(x, "normed embedded tokens")
    if t.settings.inputs_need_gradients and x is not looked_up:
        t.outputs.append(looked_up)  # a leaf is kept by where its gradient ends
    return x


def look_up(
    t: Modules, size: int, columns: int, name: str, unit: CountedBy = CountedBy.TOKEN, *, tied: bool = False
) -> TrackedTensor:
    """Rows of a table. Its gradient is as large as the table; a tied one is added to that of the head, which waits."""
    table = t.parameter(size)

    def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
        own = t.gradient(table)
        t.free(gradient)
        return [t.gradient(table, own) if tied else own]

    return t.record(t.new(name, columns, t.settings.rest, unit), [table], backward)


@scoped
def final_norm(t: Modules, model: Architecture, x: TrackedTensor) -> TrackedTensor:
    if model.final_norm == "none" != model.blocks[0].norm:
        return x  # there is none: OPT-350m
    return t.norm(x, t.kernels.norm_kind(model.final_norm), "states that the head reads")


# The embedding of its own that each layer mixes in: Gemma 3n and 4 (transformers' `modeling_gemma4.py`,
# `project_per_layer_inputs`). One tensor holds those of all layers, and so does its gradient.


INPUTS = "inputs of single layers"


def per_layer_columns(model: Architecture) -> int:
    """Columns of all layers' inputs side by side; 0 where there are none."""
    return sum(block.per_layer_width * len(block.layers) for block in model.blocks)


@scoped
def with_per_layer_inputs(t: Modules, model: Architecture, x: TrackedTensor) -> TrackedTensor:
    """Embedded tokens, while the inputs of all layers are held until the backward pass reaches them: rows of a
    second table and a projection of the first."""
    columns, width = per_layer_columns(model), model.blocks[0].per_layer_width
    (table,) = (tensor for tensor in model.tensors() if tensor.name.endswith("embed_tokens_per_layer.weight"))
    rows = t.scale(look_up(t, table.shape[0] * columns, columns, INPUTS), INPUTS)
    projected = t.scale(t.matrix(x, "per_layer_model_projection", columns, INPUTS), INPUTS)
    projected = t.norm(projected, t.kernels.norm_kind("rms"), INPUTS, heads=columns // width)
    inputs = t.scale(t.add(projected, rows, INPUTS), INPUTS)
    return t.record(x.view(), [x, inputs], lambda gradient: [gradient, t.gradient(inputs)], [inputs.storage])


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
    own = inputs.view(narrow)

    def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
        zeros = t.new(ACTIVATION_GRADIENTS, inputs.columns, inputs.width, inputs.unit)
        t.like(ACTIVATION_GRADIENTS, zeros, zeros)
        return [None]

    t.record(own, [inputs], backward)
    label = "gated input of the layer"
    gate = t.local(activated(t, t.matrix(x, "per_layer_input_gate", narrow, label), label))
    y = t.matrix(t.multiply(gate, own, label), "per_layer_projection", x.columns, "input of the layer")
    with t.alive(y):
        y = t.norm(y, t.kernels.norm_kind(block.norm), "normed input of the layer")
    return t.add(x, y, "residual stream")
