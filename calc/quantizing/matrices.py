"""The matrices of a block that tools quantize, as transformers runs them: one Linear each, every expert by itself."""

from collections.abc import Iterator
from typing import NamedTuple

from calc.formats.scheme import ALWAYS_PLAIN, EXPERTS, LINEARS
from calc.model.architecture import Architecture
from calc.model.block import Block
from calc.model.tensor import Shapes


class Matrix(NamedTuple):
    """A Linear [rows, columns], which are [out, in], of which a block has so many copies."""

    name: str
    rows: int
    columns: int
    copies: int = 1


def matrices(model: Architecture, block: Block) -> tuple[Matrix, ...]:
    """The quantized matrices of a block in the order in which a token meets them; the router is none of them."""
    quantized = []
    for tensor in model.tensors_of(block):
        *path, leaf = tensor.name.split(".")
        if tensor.component not in LINEARS - EXPERTS or leaf != "weight" or len(tensor.shape) != 2:
            continue
        if ALWAYS_PLAIN.isdisjoint(path):
            rows, columns = tensor.shape
            quantized.append(Matrix(path[-1], rows, columns, tensor.a_layer))
    if block.moe is not None:
        for name, sides in pairs(block.moe.expert_shapes(model.hidden)):
            quantized.append(Matrix(name, *sides, block.moe.n_experts))
    return tuple(quantized)


def scale_searches(model: Architecture, block: Block) -> Iterator[tuple[int, tuple[Matrix, ...]]]:
    """AWQ's searches for scales in a block, in order: elements per token that the searched module reads, which runs
    once for each scale tried, and the matrices that are scaled. llm-compressor,
    `modifiers/transform/awq/mappings.py`: inputs of attention; its output where values are as wide as that reads;
    inputs of the feed-forward; its output."""
    for mixer in block.attentions:
        shapes, read = dict(pairs(mixer.shapes(model.hidden))), getattr(mixer, "d_in", None) or model.hidden
        yield read, tuple(Matrix(name, *sides) for name, sides in shapes.items() if sides[1] == read)
        values, out = shapes.get("v_proj"), shapes.get("o_proj")
        if values is not None and out is not None and values[0] == out[1]:
            yield out[1], (Matrix("o_proj", *out),)
    if (moe := block.moe) is not None:
        experts = [Matrix(name, *sides, moe.n_experts) for name, sides in pairs(moe.expert_shapes(model.hidden))]
        yield model.hidden, tuple(matrix for matrix in experts if matrix.name != "down_proj")
        yield moe.n_experts * moe.expert.intermediate, tuple(m for m in experts if m.name == "down_proj")
    elif (dense := block.dense) is not None:
        both = [Matrix(name, *sides) for name, sides in pairs(dense.shapes(model.hidden))]
        yield model.hidden, tuple(matrix for matrix in both if matrix.name != "down_proj")
        yield dense.intermediate, tuple(matrix for matrix in both if matrix.name == "down_proj")


def pairs(shapes: Shapes) -> Iterator[tuple[str, tuple[int, int]]]:
    """Module and sides [out, in] of each matrix among some weights."""
    for name, shape in shapes.items():
        if len(shape) == 2:
            yield name.removesuffix(".weight"), (shape[0], shape[1])
