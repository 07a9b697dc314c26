"""The parameters of a model on paper: every module with its tensors, every kind of layer, their sums."""

from collections.abc import Iterator
from typing import Any

from calc.errors import Message
from calc.model.architecture import Architecture
from calc.model.derivation import Step, Symbols, derive
from calc.model.formula import Formula, product, sides, total
from calc.model.paper import (
    ANCHORS,
    SECTIONS,
    Anchor,
    Cell,
    Code,
    Equation,
    Exact,
    Heading,
    Item,
    PaperTable,
    Section,
    added,
    legend,
    legend_of,
)
from calc.model.paper import lines as rows_of
from calc.model.tensor import Component, Tensor

Pair = tuple[Tensor, Tensor]
"""A tensor, and the same with symbols for its sizes."""
ORDER: tuple[Component, ...] = (
    *("embedding", "norms", "attention", "ssm_linear", "mlp", "router", "experts_routed", "experts_shared"),
    *("other", "lm_head"),
)
WHAT = {
    "embedding": Message("One vector of the hidden width for each entry of the vocabulary."),
    "attention": Message("Matrices as [out, in]; then biases and norms of heads where there are any."),
    "ssm_linear": Message("The recurrent mixer: projections, convolution, and what its state needs."),
    "mlp": Message("Two matrices up and down, and a third where the first is gated."),
    "router": Message("One row for each expert: it scores the token."),
    "experts_routed": Message("Every expert is a feed-forward of its own; a token passes through a few of them."),
    "experts_shared": Message("A feed-forward that every token passes through beside its experts."),
    "norms": Message("One weight for each element of the hidden state, two where a norm has a bias."),
    "lm_head": Message("One row for each entry of the vocabulary: it scores the next token."),
}


class Counting:
    """Counts of one architecture."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture, self.symbols = architecture, Symbols()
        formulas = self.symbols.apply(architecture)
        pairs = zip(architecture.tensors(), formulas.tensors(), strict=True)
        self.pairs: list[Pair] = [pair for pair in pairs if pair[0].excluded_as is None]
        self.outside = [pair for pair in self.pairs if not pair[0].layers]
        self.kinds = list(self.layer_kinds())

    def layer_kinds(self) -> Iterator[tuple[tuple[int, ...], list[Pair]]]:
        """Indices of layers that hold the same, with what one of them holds."""
        stored: dict[tuple[int, ...], list[Pair]] = {}
        for tensor, formula in self.pairs:
            if tensor.layers:
                stored.setdefault(tensor.layers, []).append((tensor, formula))
        layers_and_members: dict[Any, tuple[list[int], list[Pair]]] = {}
        for layers, members in stored.items():
            key = tuple((local(tensor.name), self.shape(formula), tensor.experts) for tensor, formula in members)
            layers_and_members.setdefault(key, ([], members))[0].extend(layers)
        for indices, members in layers_and_members.values():
            yield tuple(sorted(indices)), members

    def shape(self, formula: Tensor) -> Formula:
        return sides(*(self.symbols.written(side)[0] for side in formula.shape))

    def sections(self) -> list[Section]:
        counted = [
            Section(anchor="embedding", title=Message("Embedding"), items=tuple(self.outside_of("embedding"))),
            Section(anchor="layers", title=Message("Layers"), items=tuple(self.all_layers())),
            Section(anchor="output", title=Message("Final norm and output head"), items=tuple(self.output())),
            Section(anchor="parameters", title=Message("Parameters in all"), items=tuple(self.total())),
            Section(anchor="active", title=Message("Active parameters"), items=tuple(self.active())),
        ]
        meanings = legend(self.symbols.occurring().items())
        about = Message("Every size below is a field of the model's config; sums and products follow the tensors.")
        return [Section(anchor="symbols", title=Message("Symbols"), items=(about, meanings)), *counted]

    def outside_of(self, *components: Component) -> Iterator[Item]:
        for component in components:
            members = [pair for pair in self.outside if pair[0].component == component]
            if members:
                yield from self.module(component, members)

    def output(self) -> Iterator[Item]:
        others = [name for name in ORDER if name != "embedding"]
        yield from self.outside_of(*others)
        if self.architecture.tied:
            yield Message("The output head is the embedding again (tied): it is stored and counted once.")

    def module(self, component: Component, members: list[Pair], anchor: Anchor | None = None) -> Iterator[Item]:
        """The tensors of a module, and their sum."""
        yield Heading(title=component, anchor=anchor)
        if component in WHAT:
            yield WHAT[component]
        yield PaperTable(
            head=(Message("Tensor"), Message("Shape"), Message("With values"), Message("Parameters")),
            rows=tuple(self.row(tensor, formula) for tensor, formula in members),
        )
        yield Equation(step=self.sum_of(component, members))

    def row(self, tensor: Tensor, formula: Tensor) -> tuple[Cell, ...]:
        copies = "{expert}" in tensor.name
        plain, shape = sides(*tensor.shape), self.shape(formula)
        if copies:
            plain, shape = sides(tensor.experts, plain), sides(self.symbols.written(formula.experts)[0], shape)
        return (
            Code(text=local(tensor.name)),
            shape,
            plain,
            Exact(number=tensor.layer_numel),
        )

    def sum_of(self, component: Component, members: list[Pair]) -> Step:
        """Elements of a module, in one layer."""
        elements: Any = sum(symbolic.layer_numel for _, symbolic in members)
        formula, values = self.symbols.written(elements)
        return Step(what="", formula=formula, values=values, result=layer_sum(members))

    def all_layers(self) -> Iterator[Item]:
        """Each kind of layer by module, and the sum over all layers. A link means a module where it first stands."""
        unseen = set(ANCHORS[len(SECTIONS) :])
        for indices, members in self.kinds:
            yield Heading(title=self.kind_title(indices))
            modules = {name: [pair for pair in members if pair[0].component == name] for name in ORDER}
            for component, own in modules.items():
                if own:
                    anchor = next((anchor for anchor in unseen if anchor == component), None)
                    unseen.discard(anchor)
                    yield from self.module(component, own, anchor)
            yield added(Message("One layer", plural="{n:,} layers", n=1), [layer_sum(own) for own in modules.values()])
        n = self.architecture.num_layers
        products = [(len(indices), layer_sum(members)) for indices, members in self.kinds]
        yield Equation(
            step=Step(
                what=Message("The one layer", plural="All {n:,} layers", n=n),
                values=total(*(product(layers, each) for layers, each in products)),
                result=sum(layers * each for layers, each in products),
            )
        )

    def kind_title(self, indices: tuple[int, ...]) -> Message:
        """Layers as people count them: layers 3 to 60."""
        first, last, n = indices[0], indices[-1], len(indices)
        if n == 1:
            return Message("Layer {first}", first=first)
        if indices == tuple(range(first, last + 1)):
            return Message("One of the {n:,} equal layers {first} to {last}", first=first, last=last, n=n)
        return Message("One of {n:,} equal layers, {first} to {last}", first=first, last=last, n=n)

    def total(self) -> Iterator[Item]:
        """All modules outside, and all layers."""
        parts: list[Step] = []
        for component in ORDER:
            own = [pair for pair in self.outside if pair[0].component == component]
            if own:
                parts.append(Step(what=component, result=layer_sum(own)))
        for indices, members in self.kinds:
            n, each = len(indices), layer_sum(members)
            parts.append(Step(what=self.kind_title(indices), values=product(n, each), result=n * each))
        count = self.architecture.parameters()
        yield rows_of(parts, Message("Parameters"))
        yield added(Message("Total"), [step.result for step in parts])
        yield Message("The same by component:")
        for step in derive(self.architecture).parameters:
            yield Equation(step=step)
        excluded = {name: n for name, n in count.not_in_total.items() if n}
        if excluded:
            yield Message("Stored beside these, and not in the total:")
            rows = [Step(what=name, result=n) for name, n in excluded.items()]
            yield rows_of(rows, Message("Parameters"))

    def active(self) -> Iterator[Item]:
        count = self.architecture.parameters()
        if count.active == count.total:
            yield Message("There are no routed experts: one token passes through every weight.")
            yield added(Message("Active parameters"), [count.active])
            return
        yield Message("One token passes through a few of the routed experts, and through everything else.")
        derivation, known = derive(self.architecture), self.symbols.occurring()
        steps = derivation.active
        yield from legend_of(steps, {name: row for name, row in derivation.legend.items() if name not in known})
        for step in steps:
            yield Equation(step=step)
        yield added(Message("Active parameters"), [step.result for step in steps])


def local(name: str) -> str:
    """A tensor's name within its layer."""
    before, layer, within = name.partition("{layer}.")
    return (within if layer else before).replace(".{expert}", ".*")


def layer_sum(members: list[Pair]) -> int:
    """Elements of what one layer holds."""
    return sum(tensor.layer_numel for tensor, _ in members)
