"""Operations that take tensors apart and put them together: what they make and save, forward and back."""

from collections.abc import Sequence

from calc.training.autograd import CountedBy, Name, Node, TrackedTensor, scoped
from calc.training.elementwise import Elementwise
from calc.training.training_operations import MatrixSide, sides_of


class Rearranging(Elementwise):
    """A tape with these too."""

    def slice(self, x: TrackedTensor, columns: int) -> TrackedTensor:
        """x[..., a:b]: a view, whose gradient is as large as the whole."""
        whole = x.columns, x.width, x.unit
        view = TrackedTensor(x.storage, columns, x.width, x.unit, by_heads=x.by_heads)
        return self.record(view, [x], lambda gradient: [self.gradient(whole)])

    def shared(self, columns: int, width: int) -> TrackedTensor:
        """What an earlier layer made and holds; the gradient is added to those of other layers, which wait there."""
        made = TrackedTensor(None, columns, width, CountedBy.TOKEN, Node())
        side = columns, width, CountedBy.TOKEN

        def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
            self.gradient(side)
            return [None]

        return self.record(TrackedTensor(None, columns, width, CountedBy.TOKEN), [made], backward)

    def split(self, x: TrackedTensor, *columns: int) -> list[TrackedTensor]:
        """x.split(...): views, whose gradients are put together at once."""
        views = [TrackedTensor(x.storage, count, x.width, x.unit, by_heads=x.by_heads) for count in columns]
        if x.node is not None and self.recording:
            whole = x.columns, x.width, x.unit
            node = Node([(x.node, x.slot)], lambda gradient: [self.gradient(whole)], outputs=len(views))
            self.nodes.append(node)
            for slot, view in enumerate(views):
                view.node, view.slot = node, slot
        return views

    def chunks(self, x: TrackedTensor, count: int) -> list[TrackedTensor]:
        """x.chunk(...) along the tokens: views, each counted as so much less of every token."""
        return self.split(x, *[-(-x.columns // count)] * count)

    def concatenate(self, parts: Sequence[TrackedTensor], name: Name, *, by_heads: bool = False) -> TrackedTensor:
        """torch.cat along the columns; the gradients of its parts are views of its own."""
        out = self.new(name, sum(part.columns for part in parts), parts[0].width, parts[0].unit, by_heads=by_heads)
        columns = [part.columns for part in parts]

        def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
            heads = gradient.by_heads
            return [TrackedTensor(gradient.storage, n, gradient.width, gradient.unit, by_heads=heads) for n in columns]

        return self.record(out, parts, backward)

    def copied_view(self, x: TrackedTensor, name: Name) -> TrackedTensor:
        """A reshape of a view that its strides do not allow: a copy."""
        return self.record(self.like(name, x), [x], self.passing)

    def copied_in(self, x: TrackedTensor, width: int, name: Name) -> TrackedTensor:
        """x.to(dtype) in another order of sides: a copy in any type."""
        out, before = self.new(name, x.columns, width, x.unit), x.width
        return self.record(out, [x], lambda gradient: [self.in_type(gradient, before)])

    def unchunked(self, x: TrackedTensor, columns: int, width: int, name: Name) -> TrackedTensor:
        """The tokens of all chunks, without those that fill up the last, in another order and type: a copy."""
        out, side = self.new(name, columns, width, CountedBy.TOKEN), (x.columns, x.width, x.unit)
        return self.record(out, [x], lambda gradient: [self.gradient(side)])

    def convolution(self, x: TrackedTensor, name: Name) -> TrackedTensor:
        """A kernel of its own for each channel: saves its input."""
        return self.activation(x, name)

    def add_weight(self, x: TrackedTensor, weight: TrackedTensor, name: Name) -> TrackedTensor:
        """x + b for all rows, in the wider type: saves nothing."""
        out, sides = self.new(name, x.columns, max(x.width, weight.width), x.unit), sides_of(x, weight)
        return self.record(out, [x, weight], lambda gradient: [gradient, sides[1] and self.gradient(sides[1])])

    @scoped
    def matmul(self, a: TrackedTensor, b: TrackedTensor, columns: int, name: Name) -> TrackedTensor:
        """torch.matmul of what lies head by head: saves both, in 16 bits under autocast."""
        if self.autocast:
            a, b = (self.local(self.cast(x, self.width, "inputs of products in 16 bits")) for x in (a, b))
        return self.product(a, b, columns, a.unit, name)

    def solved(self, system: TrackedTensor, x: TrackedTensor, name: Name) -> TrackedTensor:
        """torch.linalg.solve_triangular: saves the system and the solution; going back, the gradient of the system is a
        product, negated, of which a triangle is taken."""
        out, sides = self.like(name, x), sides_of(system, x)

        def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
            of_x = self.gradient(sides[1]) if sides[1] else None
            return [sides[0] and self.again(self.again(self.gradient(sides[0]))), of_x]

        return self.record(out, [system, x], backward, [system.storage, out.storage])

    def gather(self, x: TrackedTensor, indices: TrackedTensor, columns: int, name: Name) -> TrackedTensor:
        """x[indices]: saves the indices; its gradient is put into zeros."""
        out, side = self.new(name, columns, x.width, indices.unit, indices), (x.columns, x.width, x.unit)

        def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
            return [self.gradient(side, self.gradient(side))]  # of zeros

        return self.record(out, [x], backward, [indices.storage])

    def largest(self, scores: TrackedTensor, k: int) -> tuple[TrackedTensor, TrackedTensor]:
        """torch.topk: values, and their indices in 64 bits."""
        indices = self.new("numbers of experts", k, 8, scores.unit)
        return self.gather(scores, indices, k, "weights of experts"), indices

    def total(self, x: TrackedTensor, columns: int, name: Name) -> TrackedTensor:
        """The sum of the parts of each row; its gradient is repeated for them."""
        side = x.columns, x.width, x.unit
        out = self.new(name, columns, x.width, x.unit)
        return self.record(out, [x], lambda gradient: [self.gradient(side)])

    def divided(self, x: TrackedTensor, name: Name) -> TrackedTensor:
        """x /= its sum, in place: what it was is kept for its gradient."""
        total = self.new(name, 1, x.width, x.unit)
        before = self.like(name, x, total)
        view = TrackedTensor(x.storage, x.columns, x.width, x.unit)
        return self.record(view, [x], self.multiplied, [total.storage, before.storage])

    def turn_half(self, x: TrackedTensor, name: Name) -> TrackedTensor:
        """rotate_half(x): one half negated and put before the other."""
        half = self.new(name, x.columns // 2, x.width, x.unit)
        out = self.new(name, x.columns, x.width, x.unit, half, by_heads=True)
        whole = x.columns, x.width, x.unit

        def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
            half = self.gradient((whole[0] // 2, *whole[1:]))
            first = self.gradient(whole, half)
            second = self.gradient(whole)
            self.free(gradient)
            return [self.gradient(whole, first, second, by_heads=True)]

        return self.record(out, [x], backward)

    def filled(self, own: TrackedTensor, shared: TrackedTensor, columns: int, name: Name) -> TrackedTensor:
        """A new tensor into which one part is copied for each head and another for all of them."""
        out = self.new(name, columns, own.width, own.unit, by_heads=True)
        whole, part, once = (columns, own.width, own.unit), (own.columns, own.width, own.unit), sides_of(shared)[0]

        def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
            first = self.gradient(whole)
            of_shared = self.gradient((columns - part[0], part[1], part[2]))
            self.free(gradient)
            second = self.gradient(whole)
            of_own = self.gradient(part, first, second, by_heads=True)
            return [of_own, once and self.summed(of_shared, once)]

        return self.record(out, [own, shared], backward)

    def summed(self, gradient: TrackedTensor, side: MatrixSide) -> TrackedTensor:
        """The sum over heads."""
        return self.gradient(side, gradient)

    def padded(self, x: TrackedTensor, columns: int, name: Name) -> TrackedTensor:
        """Zeros behind the columns of each head."""
        out = self.new(name, columns, x.width, x.unit, by_heads=True)
        side = x.columns, x.width, x.unit
        return self.record(out, [x], lambda gradient: [self.gradient(side, by_heads=True)])

    def copied(self, x: TrackedTensor, name: Name) -> TrackedTensor:
        """Another of the same size, for whose gradient the input is saved."""
        return self.activation(x, name)

    def repeat(self, x: TrackedTensor, times: int, name: Name) -> TrackedTensor:
        """Keys or values for every query head."""
        if times == 1:
            return x
        out, once = self.new(name, times * x.columns, x.width, x.unit, by_heads=True), (x.columns, x.width, x.unit)
        return self.record(out, [x], lambda gradient: [self.gradient(once, by_heads=True)])

    def expanded(self, x: TrackedTensor, times: int) -> TrackedTensor:
        """The same of a single head: a view."""
        view, once = TrackedTensor(x.storage, times * x.columns, x.width, x.unit, by_heads=True), sides_of(x)[0]
        return self.record(view, [x], lambda gradient: [once and self.gradient(once, by_heads=True)])
