"""Operations on single elements: differences, exponentials, choices (torch 2.13's `derivatives.yaml`)."""

from calc.training.autograd import Name, TrackedTensor
from calc.training.training_operations import Operations


class Elementwise(Operations):
    """A tape with these too."""

    def subtract(self, a: TrackedTensor, b: TrackedTensor, name: Name) -> TrackedTensor:
        """a - b; the gradient of b is negated."""
        out = self.new(name, a.columns, max(a.width, b.width), a.unit, by_heads=a.by_heads)
        widths = a.width, b.width

        def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
            first = self.in_type(gradient, widths[0])
            negated = self.again(gradient)
            del gradient
            return [first, self.in_type(negated, widths[1])]

        return self.record(out, [a, b], backward)

    def exponential(self, x: TrackedTensor, name: Name) -> TrackedTensor:
        """eˣ - 1 in 32 bits under autocast: saves its output."""
        if self.autocast:
            x = self.cast(x, 4, name)
        out = self.like(name, x)
        return self.record(out, [x], self.by_way_of(self.again, self.again), [out.storage])

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
            del gradient
            return [self.in_type(side, width) for side, width in zip(sides, widths, strict=True)]

        return self.record(out, [a, b], backward, [mask.storage])
