"""Operations on single elements: differences, exponentials, choices (torch 2.13's `derivatives.yaml`)."""

from calc.training.autograd import Name, TrackedTensor, scoped
from calc.training.training_operations import Operations, saved_for_each_other, sides_of


class Elementwise(Operations):
    """A tape with these too."""

    def subtract(self, a: TrackedTensor, b: TrackedTensor, name: Name) -> TrackedTensor:
        """a - b; the gradient of b is negated."""
        out = self.new(name, a.columns, max(a.width, b.width), a.unit, by_heads=a.by_heads)
        widths = a.width, b.width

        def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
            first = self.in_type(gradient, widths[0])
            negated = self.again(gradient)
            self.free(gradient)
            return [first, self.in_type(negated, widths[1])]

        return self.record(out, [a, b], backward)

    @scoped
    def exponential(self, x: TrackedTensor, name: Name) -> TrackedTensor:
        """eˣ in 32 bits under autocast: saves its output."""
        return self.result_saved(self.cast(x, 4, name) if self.autocast else x, name)

    @scoped
    def exponential_less_one(self, x: TrackedTensor, name: Name) -> TrackedTensor:
        """eˣ - 1 in 32 bits under autocast: saves its output."""
        if self.autocast:
            x = self.become(x, 4, name)
        out = self.like(name, x)
        return self.record(out, [x], self.by_way_of(self.again, self.again), [out.storage])

    def difference_of_all(self, x: TrackedTensor, columns: int, name: Name) -> TrackedTensor:
        """xᵢ - xⱼ for all pairs of so many elements; its gradient is negated whole, and summed on either side."""
        out, side = self.new(name, columns, x.width, x.unit), (x.columns, x.width, x.unit)

        def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
            return [self.gradient(side, self.again(gradient))]

        return self.record(out, [x], backward)

    def outer(self, a: TrackedTensor, b: TrackedTensor, columns: int, name: Name) -> TrackedTensor:
        """a·b, each repeated for the other's channels: both are saved; the gradient of either is a product as large as
        the result, summed."""
        out, sides = self.new(name, columns, max(a.width, b.width), a.unit), sides_of(a, b)

        def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
            products = [side and self.again(gradient) for side in sides]
            self.free(gradient)
            return [
                product if side is None or side[0] == columns else self.gradient(side, product)
                for side, product in zip(sides, products, strict=True)
            ]

        return self.record(out, [a, b], backward, saved_for_each_other(a, b))

    def inverse_norm(self, x: TrackedTensor, heads: int, name: Name) -> TrackedTensor:
        """1 / √(x·x + ε) of each head: x is saved as both factors, and the result."""
        squares, side = self.like(name, x), (x.columns, x.width, x.unit)
        out = self.new(name, heads, x.width, x.unit, squares)

        def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
            first, second = self.gradient(side), self.gradient(side)
            return [self.gradient(side, first, second)]

        return self.record(out, [x], backward, [x.storage, out.storage])

    def clamped_below(self, x: TrackedTensor, name: Name) -> TrackedTensor:
        """torch.min of x and a number: saves x."""
        half_way = self.by_way_of(self.again, self.again)
        return self.record(self.like(name, x), [x], half_way, [x.storage])

    def chosen(self, mask: TrackedTensor, a: TrackedTensor, b: TrackedTensor, name: Name) -> TrackedTensor:
        """torch.where: saves the mask; each side's gradient is as large as both."""
        out = self.new(name, a.columns, max(a.width, b.width), a.unit, by_heads=a.by_heads)
        widths = a.width, b.width

        def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
            sides = [self.again(gradient) for _ in widths]
            self.free(gradient)
            return [self.in_type(side, width) for side, width in zip(sides, widths, strict=True)]

        return self.record(out, [a, b], backward, [mask.storage])
