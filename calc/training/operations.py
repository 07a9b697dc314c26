"""Tensors that single operations make and save, forward and back: torch 2.13's formulas (`derivatives.yaml`), with what
each of them allocates on the way."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from calc.training.tape import (
    Accumulator,
    AllSavedError,
    Backward,
    Checkpointed,
    CountedBy,
    Gradients,
    Name,
    Node,
    Tape,
    Tracked,
    scoped,
)

ACTIVATION_GRADIENTS = "gradients of activations"
WEIGHT_GRADIENTS = "gradients of weights"
TensorSize = tuple[int, int, CountedBy]
"""Columns, width and unit of a tensor."""


class Operations(Tape):
    """A tape with the operations that models are made of. `width` is the bytes of what matrices multiply."""

    def __init__(self, width: int, *, autocast: bool = False) -> None:
        super().__init__()
        self.width, self.autocast = width, autocast
        self.gradient_names: dict[int, str] = {}  # by the columns of what they belong to

    def weight(self, size: int, width: int, *, trained: bool, uses: int = 1) -> Tracked:
        """A weight of so many elements, whose memory is counted elsewhere."""
        return Tracked(None, size, width, CountedBy.ONCE, Accumulator(uses_left=uses) if trained else None)

    def gradient(self, of: Tracked | TensorSize, *read: Tracked | None, by_heads: bool = False) -> Tracked:
        """A gradient as large as a tensor, and what is read to make it."""
        columns, width, unit = (of.columns, of.width, of.unit) if isinstance(of, Tracked) else of
        name = WEIGHT_GRADIENTS if unit == CountedBy.ONCE else self.gradient_names.get(columns, ACTIVATION_GRADIENTS)
        return self.new(name, columns, width, unit, *read, by_heads=by_heads)

    def required_gradient(self, of: Tracked, *, by_heads: bool = False) -> Tracked | None:
        """A gradient as large as a tensor; None where none is asked for."""
        return None if of.node is None else self.gradient(of, by_heads=by_heads)

    def gradients_of_all(self, *inputs: Tracked) -> Backward:
        """The backward of a kernel that makes the gradients of all its inputs at once."""
        return lambda gradient: [self.required_gradient(x, by_heads=x.by_heads) for x in inputs]

    def gradient_like(self, gradient: Tracked) -> Tracked:
        """A gradient as large as another, laid out like it."""
        return self.gradient(gradient, gradient, by_heads=gradient.by_heads)

    def gradient_by_steps(self, of: Tracked | TensorSize, count: int) -> Tracked:
        """A gradient made by way of others as large, which are in memory until it stands."""
        *others, last = [self.gradient(of) for _ in range(count)]
        self.use(*others)
        return last

    def pass_on(self, gradient: Tracked) -> Gradients:
        """The gradient of what changes no value of a gradient."""
        return [gradient]

    def scaled_gradient(self, gradient: Tracked) -> Gradients:
        """The gradient of an operation that multiplies it, element by element, with something saved or fixed."""
        return [self.gradient_like(gradient)]

    def scaled_twice(self, gradient: Tracked) -> Gradients:
        """The gradient of two operations in a row that multiply it."""
        return [self.gradient_like(self.gradient_like(gradient))]

    @scoped
    def checkpoint(self, run: Callable[..., Tracked], *inputs: Tracked, reentrant: bool) -> Tracked:
        """Activation checkpointing, arXiv:1604.06174: only the inputs are saved; going back, it all runs again. The
        reentrant kind holds the output and its gradient meanwhile; the other goes back through the first run's nodes,
        for which the second makes only what they saved."""
        saved = [self.detached(x) for x in inputs]

        def leaves() -> list[Tracked]:
            return [self.detached(x, Node()) for x in saved]

        def again() -> None:
            nodes, autocast = self.nodes, self.autocast
            self.nodes, self.checkpointed = [], part
            with self.autocast_region(), suppress(AllSavedError):
                run(*leaves())
            self.nodes, self.autocast, self.checkpointed = nodes, autocast, None

        if not reentrant:
            self.checkpointed = part = Checkpointed(again, saved)
            out = run(*inputs)
            self.checkpointed = None
            return out
        recording, self.recording = self.recording, False
        out = run(*map(self.detached, inputs))
        self.recording = recording

        def backward(gradient: Tracked) -> Gradients:
            nodes, self.nodes = self.nodes, []
            entered = leaves()
            sources = [x.node for x in entered]
            with self.autocast_region():
                out = run(*entered)
            with self.alive(out):
                if out.node is not None:
                    self.backward((out.node, out.slot), gradient)
            self.nodes = nodes
            gradients = [None if source is None else source.gradients[0] for source in sources]
            self.use(*gradients)
            return gradients

        return self.record(out, inputs, backward, [x.storage for x in inputs])

    def detached(self, x: Tracked, leaf: Node | None = None) -> Tracked:
        """A tensor without the node that made it, where its gradient would go."""
        return x.view(node=leaf, by_heads=x.by_heads)

    @contextmanager
    def autocast_region(self) -> Iterator[None]:
        """A region of autocast: its copies of weights are in memory until it ends."""
        outer, self.casts = self.casts, {}
        try:
            yield
        finally:
            self.use(*self.casts, *self.casts.values())
            self.casts = outer

    # Types and layouts

    def cast(self, x: Tracked, width: int, name: Name) -> Tracked:
        """x.to(dtype): nothing happens where it has that type."""
        if x.width == width:
            return x
        out = self.new(name, x.columns, width, x.unit, by_heads=x.by_heads)
        return self.record(out, [x], lambda gradient: [self.in_type(gradient, x.width)])

    def recast(self, x: Tracked, width: int, name: Name) -> Tracked:
        """x = x.to(dtype): a function keeps the copy until it returns, and lets go of what it was given."""
        out = self.local(self.cast(x, width, name))
        if out is not x:
            self.free(x)
        return out

    def add_in_place(self, a: Tracked, b: Tracked) -> Tracked:
        """a += b: no memory of its own."""
        return self.record(a.view(), [a, b], lambda gradient: [gradient, gradient])

    def scaled_in_place(self, x: Tracked) -> Tracked:
        """x *= number: no memory of its own, and nothing saved."""
        return self.record(x.view(), [x], self.scaled_gradient)

    def in_type(self, gradient: Tracked, width: int) -> Tracked:
        """A gradient in the type of what it belongs to."""
        if gradient.width == width:
            return gradient
        return self.gradient((gradient.columns, width, gradient.unit), gradient, by_heads=gradient.by_heads)

    def cast_weight(self, weight: Tracked, width: int, name: Name) -> Tracked:
        """Autocast's copy of a weight, which it makes once; a frozen one it makes for each use."""
        if weight.width == width:
            return weight
        if weight.node is None:
            return self.new(name, weight.columns, width, CountedBy.ONCE)
        if weight not in self.casts:
            self.casts[weight] = self.cast(weight, width, name)
        return self.casts[weight]

    def by_tokens(self, x: Tracked, name: Name) -> Tracked:
        """x.contiguous(), token by token: a copy where it lies head by head."""
        if not x.by_heads:
            return x
        return self.record(self.new(name, x.columns, x.width, x.unit), [x], self.pass_on)

    # Matrices

    def linear(
        self, x: Tracked, weight: Tracked, columns: int, name: Name, unit: CountedBy = CountedBy.TOKEN
    ) -> Tracked:
        """x·W: saves x for the gradient of W, and W for that of x."""
        if self.autocast:
            weight = self.cast_weight(weight, self.width, "weights in 16 bits")
            x = self.cast(x, self.width, "inputs of matrices in 16 bits")
        out = self.new(name, columns, weight.width, unit)

        def backward(gradient: Tracked) -> Gradients:
            if gradient.by_heads:  # the reshape to a matrix copies it
                self.local(self.gradient(gradient))
                self.free(gradient)
            of_weight = self.required_gradient(weight)
            return [self.required_gradient(x), of_weight]

        return self.record(out, [x, weight], backward, saved_for_each_other(x, weight))

    @scoped
    def without_autocast(
        self, x: Tracked, weight: Tracked, columns: int, name: Name, unit: CountedBy = CountedBy.TOKEN
    ) -> Tracked:
        """x·W in the type that both have."""
        autocast, self.autocast = self.autocast, False
        out = self.linear(x, weight, columns, name, unit)
        self.autocast = autocast
        return out

    def product(self, a: Tracked, b: Tracked, columns: int, unit: CountedBy, name: Name) -> Tracked:
        """torch.bmm: saves both."""
        out = self.new(name, columns, a.width, unit, by_heads=True)

        def backward(gradient: Tracked) -> Gradients:
            return [self.required_gradient(x, by_heads=True) for x in (a, b)]

        return self.record(out, [a, b], backward, saved_for_each_other(a, b))

    # Element by element

    def add(self, a: Tracked, b: Tracked, name: Name) -> Tracked:
        """a + b; both get the same gradient, each in its type."""
        out = self.new(name, a.columns, max(a.width, b.width), a.unit, by_heads=a.by_heads)
        return self.record(out, [a, b], lambda gradient: [self.in_type(gradient, x.width) for x in (a, b)])

    def scale(self, x: Tracked, name: Name) -> Tracked:
        """x times a number: saves nothing."""
        return self.record(self.new_like(name, x), [x], self.scaled_gradient)

    def copied(self, x: Tracked, name: Name) -> Tracked:
        """x plus a number, its running sum, or a reshape that its strides do not allow: a copy, which saves nothing."""
        return self.record(self.new_like(name, x), [x], self.pass_on)

    def multiply(self, a: Tracked, b: Tracked, name: Name) -> Tracked:
        """a·b, of which either may be one column or one row for all: each is saved for the gradient of the other."""
        wide = b if a.unit == CountedBy.ONCE or a.columns < b.columns else a
        out = self.new(name, wide.columns, max(a.width, b.width), wide.unit, by_heads=wide.by_heads)

        def backward(gradient: Tracked) -> Gradients:
            products = [self.gradient_like(gradient) if x.node else None for x in (a, b)]
            for place, (x, product) in enumerate(zip((a, b), products, strict=True)):
                if product is not None:  # sums over what was repeated, and casts
                    if (x.columns, x.unit) != (out.columns, out.unit):
                        product = self.gradient((x.columns, product.width, x.unit), product)
                    products[place] = self.in_type(product, x.width)
            return products

        return self.record(out, [a, b], backward, saved_for_each_other(a, b))

    def activation(self, x: Tracked, name: Name) -> Tracked:
        """silu(x), gelu(x) and the like in one kernel, which saves its input."""
        return self.record(self.new_like(name, x), [x], self.scaled_gradient, [x.storage])

    def result_saved(self, x: Tracked, name: Name) -> Tracked:
        """tanh(x), relu(x), softmax(x): saves its output."""
        out = self.new_like(name, x)
        return self.record(out, [x], self.scaled_gradient, [out.storage])

    @scoped
    def power(self, x: Tracked, name: Name) -> Tracked:
        """x to a power, which autocast takes in 32 bits: saves its input."""
        if self.autocast:
            x = self.recast(x, 4, ("{tensor} in 32 bits", self.name_of(x)))
        # the power below, times its exponent, times that
        return self.record(self.new_like(name, x), [x], lambda gradient: [self.gradient_by_steps(x, 3)], [x.storage])

    def dropout(self, x: Tracked, name: Name) -> Tracked:
        """Dropout in training: a mask of a byte for each element is saved."""
        out, mask = self.new_like(name, x), self.new("masks of dropout", x.columns, 1, x.unit)
        return self.record(out, [x], self.scaled_gradient, [mask.storage])

    def name_of(self, x: Tracked) -> str:
        """Name of a tensor, for names that are made of it."""
        name = "weights" if x.storage is None else self.sizes[x.storage][0]
        return name if isinstance(name, str) else name[1]

    def mark_loss(self) -> None:
        """Mark where the loss begins."""
        self.uses_before_loss = len(self.uses)

    def leave_autocast(self) -> None:
        """The region of autocast ends, and with it its copies of weights."""
        self.use(*self.casts, *self.casts.values())
        self.casts, self.autocast = {}, False
        self.uses_in_autocast = len(self.uses)

    def mark_reference(self) -> None:
        """A reference runs here, between a policy's forward pass and its loss."""
        self.uses_before_reference = len(self.uses)

    # Norms, and kernels that are several operations in one

    def inverse_rms(self, x: Tracked, heads: int) -> Tracked:
        """rsqrt(mean of x² + ε) over all columns or those of each head, in steps."""
        name = "1 / rms of norms"
        squares = self.new_like("squares", x)
        mean = self.new(name, heads, 4, x.unit, squares)
        out = self.new(name, heads, 4, x.unit, mean)
        # back through the mean, then the square
        return self.record(out, [x], lambda gradient: [self.gradient_by_steps(x, 4)], [x.storage, out.storage])

    def centred(self, x: Tracked, heads: int, name: Name) -> Tracked:
        """x less its mean."""
        mean = self.new("means of norms", heads, 4, x.unit)
        out = self.new_like(name, x, mean)
        return self.record(out, [x], self.scaled_twice)

    @scoped
    def layer_norm(self, x: Tracked, weights: list[Tracked], heads: int, name: Name) -> Tracked:
        """One kernel: saves its input, mean and deviation, of all columns or of those of each head."""
        if self.autocast:
            x = self.cast(x, 4, "inputs of norms in 32 bits")
            weights = [self.cast_weight(weight, 4, "weights in 32 bits") for weight in weights]
        out, statistics = self.new_like(name, x), self.new("means and deviations of norms", 2 * heads, 4, x.unit)
        return self.record(out, [x, *weights], self.gradients_of_all(x, *weights), [x.storage, statistics.storage])

    def fused_norm(self, x: Tracked, weights: list[Tracked], heads: int, name: Name) -> Tracked:
        """RMSNorm in one kernel: saves its input and 1 / rms."""
        out, statistics = self.new_like(name, x), self.new("1 / rms of norms", heads, 4, x.unit)
        return self.record(out, [x, *weights], self.gradients_of_all(x, *weights), [x.storage, statistics.storage])

    def fused_gate(self, gate: Tracked, up: Tracked, name: Name) -> Tracked:
        """act(gate)·up in one kernel: saves both."""
        return self.record(
            self.new_like(name, up), [gate, up], self.gradients_of_all(gate, up), [gate.storage, up.storage]
        )

    @scoped
    def flash_attention(self, q: Tracked, k: Tracked, v: Tracked, heads: int, columns: int) -> Tracked:
        """One kernel: saves queries, keys, values, its output and a log-sum-exp for each head."""
        if self.autocast:
            q, k, v = (self.cast(x, self.width, "inputs of attention in 16 bits") for x in (q, k, v))
        out = self.new("output of attention", columns, q.width, q.unit, by_heads=q.by_heads)
        exponents = self.new("log-sum-exp of attention", heads, 4, q.unit)
        saved = [q.storage, k.storage, v.storage, out.storage, exponents.storage]
        return self.record(out, [q, k, v], self.gradients_of_all(q, k, v), saved)

    # Differences, exponentials, choices

    def subtract(self, a: Tracked, b: Tracked, name: Name) -> Tracked:
        """a - b; the gradient of b is negated."""
        out = self.new(name, a.columns, max(a.width, b.width), a.unit, by_heads=a.by_heads)

        def backward(gradient: Tracked) -> Gradients:
            first = self.in_type(gradient, a.width)
            negated = self.gradient_like(gradient)
            self.free(gradient)
            return [first, self.in_type(negated, b.width)]

        return self.record(out, [a, b], backward)

    @scoped
    def exponential(self, x: Tracked, name: Name) -> Tracked:
        """eˣ in 32 bits under autocast: saves its output."""
        return self.result_saved(self.cast(x, 4, name) if self.autocast else x, name)

    @scoped
    def expm1(self, x: Tracked, name: Name) -> Tracked:
        """eˣ - 1 in 32 bits under autocast: saves its output."""
        if self.autocast:
            x = self.recast(x, 4, name)
        out = self.new_like(name, x)
        return self.record(out, [x], self.scaled_twice, [out.storage])

    def difference_of_all(self, x: Tracked, columns: int, name: Name) -> Tracked:
        """xᵢ - xⱼ for all pairs of so many elements; its gradient is negated whole, and summed on either side."""
        out = self.new(name, columns, x.width, x.unit)
        return self.record(out, [x], lambda gradient: [self.gradient(x, self.gradient_like(gradient))])

    def outer_product(self, a: Tracked, b: Tracked, columns: int, name: Name) -> Tracked:
        """a·b, each repeated for the other's channels: both are saved; the gradient of either is a product as large as
        the result, summed."""
        out = self.new(name, columns, max(a.width, b.width), a.unit)

        def backward(gradient: Tracked) -> Gradients:
            products = [self.gradient_like(gradient) if x.node else None for x in (a, b)]
            self.free(gradient)
            pairs = zip((a, b), products, strict=True)
            return [self.gradient(x, part) if part and x.columns != columns else part for x, part in pairs]

        return self.record(out, [a, b], backward, saved_for_each_other(a, b))

    def inverse_norm(self, x: Tracked, heads: int, name: Name) -> Tracked:
        """1 / √(x·x + ε) of each head: x is saved as both factors, and the result."""
        out = self.new(name, heads, x.width, x.unit, self.new_like(name, x))
        return self.record(out, [x], lambda gradient: [self.gradient_by_steps(x, 3)], [x.storage, out.storage])

    def clamped_below(self, x: Tracked, name: Name) -> Tracked:
        """torch.min of x and a number: saves x."""
        return self.record(self.new_like(name, x), [x], self.scaled_twice, [x.storage])

    def where(self, mask: Tracked, a: Tracked, b: Tracked, name: Name) -> Tracked:
        """torch.where: saves the mask; each side's gradient is as large as both."""
        out = self.new(name, a.columns, max(a.width, b.width), a.unit, by_heads=a.by_heads)

        def backward(gradient: Tracked) -> Gradients:
            sides = [self.gradient_like(gradient), self.gradient_like(gradient)]
            self.free(gradient)
            return [self.in_type(side, x.width) for side, x in zip(sides, (a, b), strict=True)]

        return self.record(out, [a, b], backward, [mask.storage])

    # What takes tensors apart and puts them together

    def slice(self, x: Tracked, columns: int) -> Tracked:
        """x[..., a:b]: a view, whose gradient is as large as the whole."""
        return self.record(x.view(columns, by_heads=x.by_heads), [x], lambda gradient: [self.gradient(x)])

    def earlier_keys(self, columns: int, width: int) -> Tracked:
        """Keys or values of an earlier layer, which holds them; the gradient is added to those that wait there."""
        made = Tracked(None, columns, width, CountedBy.TOKEN, Node())

        def backward(gradient: Tracked) -> Gradients:
            self.gradient(made)
            return [None]

        return self.record(made.view(), [made], backward)

    def split(self, x: Tracked, *columns: int) -> list[Tracked]:
        """x.split(...): views, whose gradients are put together at once."""
        views = [x.view(count, by_heads=x.by_heads) for count in columns]
        if x.node is not None and self.recording:
            node = Node([(x.node, x.slot)], lambda gradient: [self.gradient(x)], gradients=[None] * len(views))
            self.nodes.append(node)
            for slot, view in enumerate(views):
                view.node, view.slot = node, slot
        return views

    def chunks(self, x: Tracked, count: int) -> list[Tracked]:
        """x.chunk(...) along the tokens: views, each counted as so much less of every token."""
        return self.split(x, *[-(-x.columns // count)] * count)

    def concatenate(self, parts: Sequence[Tracked], name: Name, *, by_heads: bool = False) -> Tracked:
        """torch.cat along the columns; the gradients of its parts are views of its own."""
        out = self.new(name, sum(part.columns for part in parts), parts[0].width, parts[0].unit, by_heads=by_heads)

        def backward(gradient: Tracked) -> Gradients:
            return [gradient.view(part.columns, by_heads=gradient.by_heads) for part in parts]

        return self.record(out, parts, backward)

    def copied_in(self, x: Tracked, width: int, name: Name) -> Tracked:
        """x.to(dtype) in another order of sides: a copy in any type."""
        out = self.new(name, x.columns, width, x.unit)
        return self.record(out, [x], lambda gradient: [self.in_type(gradient, x.width)])

    def resized(
        self,
        x: Tracked,
        columns: int,
        name: Name,
        *,
        width: int | None = None,
        unit: CountedBy | None = None,
        by_heads: bool = False,
    ) -> Tracked:
        """A tensor that repeats x, pads it, sums its parts or cuts it, in memory of its own; its gradient is as large
        as x. By default it has the type and the unit of x."""
        unit = x.unit if unit is None else unit
        out = self.new(name, columns, width or x.width, unit, by_heads=by_heads)
        return self.record(out, [x], lambda gradient: [self.gradient(x, by_heads=by_heads)])

    def add_weight(self, x: Tracked, weight: Tracked, name: Name) -> Tracked:
        """x + b for all rows, in the wider type: saves nothing."""
        out = self.new(name, x.columns, max(x.width, weight.width), x.unit)
        return self.record(out, [x, weight], lambda gradient: [gradient, self.required_gradient(weight)])

    @scoped
    def matmul(self, a: Tracked, b: Tracked, columns: int, name: Name) -> Tracked:
        """torch.matmul of what lies head by head: saves both, in 16 bits under autocast."""
        if self.autocast:
            a, b = (self.local(self.cast(x, self.width, "inputs of products in 16 bits")) for x in (a, b))
        return self.product(a, b, columns, a.unit, name)

    def solve_triangular(self, system: Tracked, x: Tracked, name: Name) -> Tracked:
        """torch.linalg.solve_triangular: saves the system and the solution; going back, the gradient of the system is a
        product, negated, of which a triangle is taken."""
        out = self.new_like(name, x)

        def backward(gradient: Tracked) -> Gradients:
            of_x, of_system = self.required_gradient(x), self.required_gradient(system)
            return [of_system and self.gradient_like(self.gradient_like(of_system)), of_x]

        return self.record(out, [system, x], backward, [system.storage, out.storage])

    def gather(self, x: Tracked, indices: Tracked, columns: int, name: Name) -> Tracked:
        """x[indices]: saves the indices; its gradient is put into zeros."""
        out = self.new(name, columns, x.width, indices.unit, indices)
        return self.record(out, [x], lambda gradient: self.into_zeros(x), [indices.storage])

    def into_zeros(self, x: Tracked) -> Gradients:
        """The gradient of what picks elements: zeros as large as the whole, and the sum of both."""
        return [self.gradient(x, self.gradient(x))]

    def through_copy(self, x: Tracked) -> Backward:
        """The backward of an operation that makes the gradient of x from a copy of its own."""

        def backward(gradient: Tracked) -> Gradients:
            copy = self.gradient_like(gradient)
            self.free(gradient)
            return [self.gradient(x, copy)]

        return backward

    def topk(self, scores: Tracked, k: int) -> tuple[Tracked, Tracked]:
        """torch.topk: values, and their indices in 64 bits."""
        indices = self.new("numbers of experts", k, 8, scores.unit)
        return self.gather(scores, indices, k, "weights of experts"), indices

    def divide_by_sum(self, x: Tracked, name: Name) -> Tracked:
        """x /= its sum, in place: what it was is kept for its gradient."""
        total = self.new(name, 1, x.width, x.unit)
        before = self.new_like(name, x, total)
        return self.record(x.view(), [x], self.scaled_gradient, [total.storage, before.storage])

    def rotate_half(self, x: Tracked, name: Name) -> Tracked:
        """rotate_half(x): one half negated and put before the other."""
        half = self.new(name, x.columns // 2, x.width, x.unit)
        out = self.new(name, x.columns, x.width, x.unit, half, by_heads=True)

        def backward(gradient: Tracked) -> Gradients:
            first = self.gradient(x, self.gradient((x.columns // 2, x.width, x.unit)))
            second = self.gradient(x)
            self.free(gradient)
            return [self.gradient(x, first, second, by_heads=True)]

        return self.record(out, [x], backward)

    def copied_into(self, own: Tracked, shared: Tracked, columns: int, name: Name) -> Tracked:
        """A new tensor into which one part is copied for each head and another for all of them."""
        out = self.new(name, columns, own.width, own.unit, by_heads=True)

        def backward(gradient: Tracked) -> Gradients:
            first = self.gradient(out)
            of_shared = self.gradient((columns - own.columns, own.width, own.unit))
            self.free(gradient)
            second = self.gradient(out)
            of_own = self.gradient(own, first, second, by_heads=True)
            return [of_own, self.gradient(shared, of_shared) if shared.node else None]  # the sum over heads

        return self.record(out, [own, shared], backward)

    def repeat(self, x: Tracked, times: int, name: Name) -> Tracked:
        """Keys or values for every query head."""
        return x if times == 1 else self.resized(x, times * x.columns, name, by_heads=True)

    def expanded(self, x: Tracked, times: int) -> Tracked:
        """A single head for every query head: a view."""
        view = x.view(times * x.columns, by_heads=True)
        return self.record(view, [x], lambda gradient: [self.required_gradient(x, by_heads=True)])


def saved_for_each_other(a: Tracked, b: Tracked) -> list[int | None]:
    """Storages that a product saves: each factor where the other has a gradient."""
    return [b.storage if a.node is not None else None, a.storage if b.node is not None else None]
