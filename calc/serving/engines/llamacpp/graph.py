"""A forward pass as ggml sees it: tensors in the order that they are computed, with their shapes, strides and sources.

Shapes and strides are ggml's: the innermost side first, strides in bytes. Sizes may be numbers that remember their
formula (calc.model.traced), so that the same pass yields bytes and derivation. Source: ggml/src/ggml.c, ggml 0.25.3.
"""

from collections.abc import Iterable, Sequence

from calc.formats.ggml import TYPES

Side = int
Shape = tuple[Side, ...]

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


class Node:
    """One tensor. `op` is "none" for what is not computed: inputs, weights, the cache."""

    __slots__ = (
        "backend",
        "home",
        "is_input",
        "is_output",
        "is_weight",
        "layer",
        "name",
        "nb",
        "ne",
        "op",
        "root",
        "srcs",
        "type",
    )

    def __init__(
        self,
        op: str,
        kind: str,
        ne: Shape,
        srcs: Sequence["Node"] = (),
        *,
        name: str = "",
        nb: Shape | None = None,
        root: "Node | None" = None,
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

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the last."""
        block, size = BLOCKS[self.type]
        if block == 1:
            inner = size + (self.ne[0] - 1) * self.nb[0]
        else:
            inner = self.ne[0] * self.nb[0] // block
        return inner + sum((n - 1) * b for n, b in zip(self.ne[1:], self.nb[1:], strict=True))

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
    def holder(self) -> "Node":
        """The tensor that holds its bytes."""
        return self.root or self


def strides(kind: str, ne: Shape) -> Shape:
    """Strides of a tensor without gaps."""
    block, size = BLOCKS[kind]
    row = size * ne[0] // block if block > 1 else size * ne[0]
    return size, row, row * ne[1], row * ne[1] * ne[2]


def like(node: Node, op: str, *srcs: Node, name: str = "") -> Node:
    """A new tensor of the same type and shape as another."""
    return Node(op, node.type, node.ne, (node, *srcs), name=name)


def view(node: Node, ne: Shape, nb: Shape | None = None) -> Node:
    """A window into a tensor; `nb` are its strides from the second side on, in bytes; None: it has no gaps."""
    full, steps = (*ne, *(1,) * (4 - len(ne))), (BLOCKS[node.type][1], *(nb or ()))
    while nb is not None and len(steps) < 4:
        steps = (*steps, steps[-1] * full[len(steps) - 1])
    return Node("view", node.type, full, (node,), nb=steps if nb else None, root=node.holder, name=node.name)


def reshape(node: Node, *ne: Side) -> Node:
    return Node("reshape", node.type, ne, (node,), root=node.holder, name=node.name)


def permute(node: Node, *axes: int) -> Node:
    """Axis i of the tensor becomes axis `axes[i]`."""
    ne, nb = [1] * 4, [0] * 4
    for axis, to in enumerate(axes):
        ne[to], nb[to] = node.ne[axis], node.nb[axis]
    return Node("permute", node.type, tuple(ne), (node,), nb=tuple(nb), root=node.holder, name=node.name)


def transpose(node: Node) -> Node:
    swapped = permute(node, 1, 0, 2, 3)
    swapped.op = "transpose"
    return swapped


def matmul(weight: Node, x: Node, name: str = "") -> Node:
    return Node("mul_mat", "f32", (weight.ne[1], *x.ne[1:]), (weight, x), name=name)


def matmul_experts(weight: Node, x: Node, ids: Node, name: str = "") -> Node:
    """Each token through the experts that its row of `ids` names."""
    return Node("mul_mat_id", "f32", (weight.ne[1], ids.ne[0], x.ne[2]), (weight, x, ids), name=name)


def get_rows(table: Node, ids: Node, name: str = "") -> Node:
    kind = "i32" if table.type == "i32" else "f32"
    return Node("get_rows", kind, (table.ne[0], *ids.ne[:3]), (table, ids), name=name)


def set_rows(cache: Node, rows: Node, ids: Node) -> Node:
    """Rows written into the cache, of which the result is a view."""
    return Node("set_rows", cache.type, cache.ne, (rows, ids, cache), nb=cache.nb, root=cache.holder, name=cache.name)


def copy(source: Node, to: Node) -> Node:
    """A tensor written into another, of which the result is a view."""
    return Node("cpy", to.type, to.ne, (source, to), nb=to.nb, root=to.holder, name=to.name)


def contiguous(node: Node, *ne: Side, name: str = "") -> Node:
    return Node("cont", node.type, ne or node.ne, (node,), name=name or node.name)


def concat(a: Node, b: Node, axis: int) -> Node:
    ne = tuple(x + y if i == axis else x for i, (x, y) in enumerate(zip(a.ne, b.ne, strict=True)))
    return Node("concat", a.type, ne, (a, b))


class Graph:
    """The tensors that lead to what was asked for, in the order that they are computed."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.leaves: list[Node] = []
        self.seen: set[int] = set()
        self.uses: dict[int, int] = {}

    def expand(self, *targets: Node) -> None:
        """Add what a tensor needs and does not stand there yet, sources first, and then itself."""
        for target in targets:
            self._visit(target)

    def _visit(self, target: Node) -> None:
        stack: list[tuple[Node, Iterable[Node]]] = []
        if id(target) not in self.seen:
            self.seen.add(id(target))
            stack.append((target, iter(target.srcs)))
        while stack:
            node, sources = stack[-1]
            for source in sources:
                self.uses[id(source)] = self.uses.get(id(source), 0) + 1
                if id(source) not in self.seen:
                    self.seen.add(id(source))
                    stack.append((source, iter(source.srcs)))
                    break
            else:
                stack.pop()
                (self.leaves if node.op == "none" else self.nodes).append(node)
