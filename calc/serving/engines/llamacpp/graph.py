"""A forward pass as ggml sees it: tensors in the order that they are computed, with their shapes, strides and sources.

Shapes and strides are ggml's: the innermost side first, strides in bytes. Sizes may be numbers that remember their
formula (calc.model.traced), so that the same pass yields bytes and derivation. Source: ggml/src/ggml.c, ggml 0.25.3.
"""

from collections.abc import Iterator, Sequence

from calc.formats.ggml import TYPES

Side = int
Extents = tuple[Side, ...]

BLOCKS = {kind.name.lower(): (kind.block, kind.bytes) for kind in TYPES.values()}
"""Weights and bytes of a block of each type."""
VIEWS = frozenset({"view", "reshape", "permute", "transpose"})
UNARY = frozenset({"silu", "gelu", "relu", "sigmoid", "tanh", "softplus", "exp", "neg"})
IN_PLACE = UNARY | {
    "scale",
    "add",
    "add_id",
    "sub",
    "mul",
    "div",
    "sqr",
    "sqrt",
    "rope",
    "rms_norm",
    "clamp",
    "soft_max",
}
"""Operations that may write over their input (ggml-alloc.c: ggml_op_can_inplace)."""


class GraphNode:
    """One tensor. `op` is "none" for what is not computed: inputs, weights, the cache."""

    __slots__ = (
        "allocated",
        "backend",
        "home",
        "is_input",
        "is_output",
        "is_weight",
        "layer",
        "name",
        "nb",
        "ne",
        "offset",
        "op",
        "placed_on",
        "readers",
        "root",
        "srcs",
        "type",
        "views",
    )

    def __init__(
        self,
        op: str,
        kind: str,
        ne: Extents,
        srcs: Sequence["GraphNode"] = (),
        *,
        name: str = "",
        nb: Extents | None = None,
        root: "GraphNode | None" = None,
        home: int | None = None,
        is_weight: bool = False,
        is_input: bool = False,
    ) -> None:
        self.op, self.type, self.name = op, kind, name
        self.ne = (*ne, *(1,) * (4 - len(ne)))
        self.nb = strides(kind, self.ne) if nb is None else nb
        self.srcs = tuple(srcs)
        self.root = root  # the tensor that a view looks into
        self.home = home  # device whose buffer holds it, of weights and cache
        self.is_weight, self.is_input, self.is_output = is_weight, is_input, False
        self.backend = -1
        self.layer = -1  # device of its layer, of attention
        # of the allocator: what reads it still, views of it that are read, its bytes, and where it lies while it does
        self.readers = self.views = 0
        self.allocated = self.placed_on = self.offset = -1

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the last."""
        block, size = BLOCKS[self.type]
        (n0, n1, n2, n3), (b0, b1, b2, b3) = self.ne, self.nb
        inner = size + (n0 - 1) * b0 if block == 1 else n0 * b0 // block
        return inner + (n1 - 1) * b1 + (n2 - 1) * b2 + (n3 - 1) * b3

    @property
    def elements(self) -> int:
        return self.ne[0] * self.ne[1] * self.ne[2] * self.ne[3]

    @property
    def rows(self) -> int:
        return self.ne[1] * self.ne[2] * self.ne[3]

    @property
    def contiguous(self) -> bool:
        return self.nb == strides(self.type, self.ne)

    @property
    def holder(self) -> "GraphNode":
        """The tensor that holds its bytes."""
        return self.root or self


def strides(kind: str, ne: Extents) -> Extents:
    """Strides of a tensor without gaps."""
    block, size = BLOCKS[kind]
    row = size * ne[0] // block if block > 1 else size * ne[0]
    return size, row, row * ne[1], row * ne[1] * ne[2]


def like(node: GraphNode, op: str, *srcs: GraphNode, name: str = "") -> GraphNode:
    """A new tensor of the same type and shape as another."""
    return GraphNode(op, node.type, node.ne, (node, *srcs), name=name)


def view(node: GraphNode, ne: Extents, nb: Extents | None = None) -> GraphNode:
    """A window into a tensor; `nb` are its strides from the second side on, in bytes; None: it has no gaps."""
    full, steps = (*ne, *(1,) * (4 - len(ne))), (BLOCKS[node.type][1], *(nb or ()))
    while nb is not None and len(steps) < 4:
        steps = (*steps, steps[-1] * full[len(steps) - 1])
    return GraphNode("view", node.type, full, (node,), nb=steps if nb else None, root=node.holder, name=node.name)


def reshape(node: GraphNode, *ne: Side) -> GraphNode:
    return GraphNode("reshape", node.type, ne, (node,), root=node.holder, name=node.name)


def permute(node: GraphNode, *axes: int) -> GraphNode:
    """Axis i of the tensor becomes axis `axes[i]`."""
    ne, nb = [1] * 4, [0] * 4
    for axis, to in enumerate(axes):
        ne[to], nb[to] = node.ne[axis], node.nb[axis]
    return GraphNode("permute", node.type, tuple(ne), (node,), nb=tuple(nb), root=node.holder, name=node.name)


def transpose(node: GraphNode) -> GraphNode:
    swapped = permute(node, 1, 0, 2, 3)
    swapped.op = "transpose"
    return swapped


def matmul(weight: GraphNode, x: GraphNode, name: str = "") -> GraphNode:
    return GraphNode("mul_mat", "f32", (weight.ne[1], *x.ne[1:]), (weight, x), name=name)


def matmul_experts(weight: GraphNode, x: GraphNode, ids: GraphNode, name: str = "") -> GraphNode:
    """Each token through the experts that its row of `ids` names."""
    return GraphNode("mul_mat_id", "f32", (weight.ne[1], ids.ne[0], x.ne[2]), (weight, x, ids), name=name)


def get_rows(table: GraphNode, ids: GraphNode, name: str = "") -> GraphNode:
    kind = "i32" if table.type == "i32" else "f32"
    return GraphNode("get_rows", kind, (table.ne[0], *ids.ne[:3]), (table, ids), name=name)


def set_rows(cache: GraphNode, rows: GraphNode, ids: GraphNode) -> GraphNode:
    """Rows written into the cache, of which the result is a view."""
    return GraphNode(
        "set_rows", cache.type, cache.ne, (rows, ids, cache), nb=cache.nb, root=cache.holder, name=cache.name
    )


def copy(source: GraphNode, to: GraphNode) -> GraphNode:
    """A tensor written into another, of which the result is a view."""
    return GraphNode("cpy", to.type, to.ne, (source, to), nb=to.nb, root=to.holder, name=to.name)


def contiguous(node: GraphNode, *ne: Side, name: str = "") -> GraphNode:
    return GraphNode("cont", node.type, ne or node.ne, (node,), name=name or node.name)


def concat(a: GraphNode, b: GraphNode, axis: int) -> GraphNode:
    ne = tuple(x + y if i == axis else x for i, (x, y) in enumerate(zip(a.ne, b.ne, strict=True)))
    return GraphNode("concat", a.type, ne, (a, b))


class Graph:
    """The tensors that lead to what was asked for, in the order that they are computed."""

    def __init__(self) -> None:
        self.nodes: list[GraphNode] = []
        self.leaves: list[GraphNode] = []
        self.seen: set[int] = set()
        self.uses: dict[int, int] = {}

    def expand(self, *targets: GraphNode) -> None:
        """Add what a tensor needs and does not stand there yet, sources first, and then itself."""
        for target in targets:
            self._visit(target)

    def _visit(self, target: GraphNode) -> None:
        seen, uses, stack = self.seen, self.uses, list[tuple[GraphNode, Iterator[GraphNode]]]()
        if id(target) not in seen:
            seen.add(id(target))
            stack.append((target, iter(target.srcs)))
        while stack:
            node, sources = stack[-1]
            for source in sources:
                key = id(source)
                if key in seen:
                    uses[key] = uses.get(key, 0) + 1
                    continue
                uses[key] = 1
                seen.add(key)
                if source.srcs:
                    stack.append((source, iter(source.srcs)))
                    break
                self._append(source)
            else:
                stack.pop()
                self._append(node)

    def _append(self, node: GraphNode) -> None:
        (self.leaves if node.op == "none" else self.nodes).append(node)
