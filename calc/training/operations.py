"""What single operations make and save, forward and back: torch 2.13's formulas (`derivatives.yaml`), with what each of
them allocates on the way."""

from collections.abc import Callable, Sequence

from calc.training.autograd import Accumulator, Backward, Name, Node, Storage, Tape, Tensor, Unit

ACTIVATION_GRADIENTS = "gradients of activations"
WEIGHT_GRADIENTS = "gradients of weights"
Side = tuple[int, int, Unit]
"""Columns, width and unit of a gradient."""


class Operations(Tape):
    """A tape with the operations that models are made of. `width` is the bytes of what matrices multiply."""

    def __init__(self, width: int, *, autocast: bool = False) -> None:
        super().__init__()
        self.width, self.autocast = width, autocast
        self.gradient_names: dict[int, str] = {}  # by the columns of what they belong to

    def weight(self, size: int, width: int, *, trained: bool, uses: int = 1) -> Tensor:
        """A weight of so many elements, whose memory is counted elsewhere."""
        return Tensor(None, size, width, Unit.ONCE, Accumulator(uses) if trained else None)

    def gradient(self, side: Tensor | Side, *, by_heads: bool = False) -> Tensor:
        """A gradient as large as a tensor."""
        columns, width, unit = (side.columns, side.width, side.unit) if isinstance(side, Tensor) else side
        name = WEIGHT_GRADIENTS if unit == Unit.ONCE else self.gradient_names.get(columns, ACTIVATION_GRADIENTS)
        return self.new(name, columns, width, unit, by_heads=by_heads)

    def again(self, gradient: Tensor) -> Tensor:
        """A gradient as large as another, laid out like it."""
        return self.gradient(gradient, by_heads=gradient.by_heads)

    def passing(self, gradient: Tensor) -> list[Tensor | None]:
        """The gradient of what changes no value of a gradient."""
        return [gradient]

    def multiplied(self, gradient: Tensor) -> list[Tensor | None]:
        """The gradient of an operation that multiplies it, element by element, with something saved or fixed."""
        return [self.again(gradient)]

    def checkpoint(self, run: Callable[[Tensor], Tensor], x: Tensor, *, reentrant: bool) -> Tensor:
        """Activation checkpointing, arXiv:1604.06174: only the input is saved; going back, it all runs again. The
        reentrant kind holds the output and its gradient meanwhile."""
        recording, self.recording = self.recording, False
        out = run(Tensor(x.storage, x.columns, x.width, x.unit))
        self.recording = recording
        storage, columns, width, unit = x.storage, x.columns, x.width, x.unit

        def backward(gradient: Tensor) -> list[Tensor | None]:
            nodes, self.nodes = self.nodes, []
            casts, self.casts = self.casts, {}
            source = self.leaf(again := Tensor(storage, columns, width, unit))
            out = run(again)
            self.casts = casts
            waiting = [gradient]
            del again, gradient
            if out.node is not None:
                end = out.node, out.slot
                if not reentrant:
                    del out
                self.backward(end, waiting[0] if reentrant else waiting.pop())
            self.nodes = nodes
            return [source.gradients[0]]

        return self.record(out, [x], backward, [x.storage])

    # Types and layouts

    def cast(self, x: Tensor, width: int, name: Name) -> Tensor:
        """x.to(dtype): nothing happens where it has that type."""
        if x.width == width:
            return x
        out, before = self.new(name, x.columns, width, x.unit, by_heads=x.by_heads), x.width
        return self.record(out, [x], lambda gradient: [self.in_type(gradient, before)])

    def add_in_place(self, a: Tensor, b: Tensor) -> Tensor:
        """a.add_(b)."""
        return self.record(Tensor(a.storage, a.columns, a.width, a.unit), [a, b], lambda gradient: [gradient, gradient])

    def scaled_in_place(self, x: Tensor) -> Tensor:
        """x times a number, in place."""
        return self.record(Tensor(x.storage, x.columns, x.width, x.unit), [x], self.multiplied)

    def in_type(self, gradient: Tensor, width: int) -> Tensor:
        """A gradient in the type of what it belongs to."""
        if gradient.width == width:
            return gradient
        return self.gradient((gradient.columns, width, gradient.unit), by_heads=gradient.by_heads)

    def cast_weight(self, weight: Tensor, width: int, name: Name) -> Tensor:
        """Autocast's copy of a weight, which it makes once; a frozen one it makes for each use."""
        if weight.width == width:
            return weight
        if weight.node is None:
            return self.new(name, weight.columns, width, Unit.ONCE)
        if weight not in self.casts:
            self.casts[weight] = self.cast(weight, width, name)
        return self.casts[weight]

    def by_tokens(self, x: Tensor, name: Name) -> Tensor:
        """x.contiguous(), token by token: a copy where it lies head by head."""
        if not x.by_heads:
            return x
        return self.record(self.new(name, x.columns, x.width, x.unit), [x], self.passing)

    # Matrices

    def linear(self, x: Tensor, weight: Tensor, columns: int, name: Name, unit: Unit = Unit.TOKEN) -> Tensor:
        """x·W: saves x for the gradient of W, and W for that of x."""
        if self.autocast:
            weight = self.cast_weight(weight, self.width, "weights in 16 bits")
            x = self.cast(x, self.width, "inputs of matrices in 16 bits")
        out = self.new(name, columns, weight.width, unit)
        sides = sides_of(x, weight)

        def backward(gradient: Tensor) -> list[Tensor | None]:
            if gradient.by_heads:  # the reshape to a matrix copies it
                gradient = self.gradient(gradient)
            of_weight = sides[1] and self.gradient(sides[1])
            return [sides[0] and self.gradient(sides[0]), of_weight]

        return self.record(out, [x, weight], backward, saved_for_each_other(x, weight))

    def product(self, a: Tensor, b: Tensor, columns: int, unit: Unit, name: Name) -> Tensor:
        """torch.bmm: saves both."""
        out, sides = self.new(name, columns, a.width, unit, by_heads=True), sides_of(a, b)

        def backward(gradient: Tensor) -> list[Tensor | None]:
            return [side and self.gradient(side, by_heads=True) for side in sides]

        return self.record(out, [a, b], backward, saved_for_each_other(a, b))

    # Element by element

    def add(self, a: Tensor, b: Tensor, name: Name) -> Tensor:
        """a + b; both get the same gradient, each in its type."""
        out = self.new(name, a.columns, max(a.width, b.width), a.unit, by_heads=a.by_heads)
        widths = a.width, b.width
        return self.record(out, [a, b], lambda gradient: [self.in_type(gradient, width) for width in widths])

    def scale(self, x: Tensor, name: Name) -> Tensor:
        """x times a number: saves nothing."""
        return self.record(self.like(name, x), [x], self.multiplied)

    def shift(self, x: Tensor, name: Name) -> Tensor:
        """x plus a number: saves nothing."""
        return self.record(self.like(name, x), [x], self.passing)

    def multiply(self, a: Tensor, b: Tensor, name: Name) -> Tensor:
        """a·b, of which either may be one column or one row for all: each is saved for the gradient of the other."""
        wide = b if a.unit == Unit.ONCE or a.columns < b.columns else a
        out = self.new(name, wide.columns, max(a.width, b.width), wide.unit, by_heads=wide.by_heads)
        sides, full = sides_of(a, b), (out.columns, out.unit)

        def backward(gradient: Tensor) -> list[Tensor | None]:
            products = [side and self.again(gradient) for side in sides]
            results: list[Tensor | None] = []
            for side in sides:  # the engine sums over what was repeated, and casts, once both are there
                product = products.pop(0)
                if product is not None and side is not None:
                    if (side[0], side[2]) != full:
                        product = self.gradient((side[0], product.width, side[2]))
                    product = self.in_type(product, side[1])
                results.append(product)
            return results

        return self.record(out, [a, b], backward, saved_for_each_other(a, b))

    def activation(self, x: Tensor, name: Name) -> Tensor:
        """silu(x), gelu(x) and the like in one kernel, which saves its input."""
        return self.record(self.like(name, x), [x], self.multiplied, [x.storage])

    def result_saved(self, x: Tensor, name: Name) -> Tensor:
        """tanh(x), relu(x), softmax(x): saves its output."""
        out = self.like(name, x)
        return self.record(out, [x], self.multiplied, [out.storage])

    def power(self, x: Tensor, name: Name) -> Tensor:
        """x to a power, which autocast takes in 32 bits: saves its input."""
        if self.autocast:
            x = self.cast(x, 4, ("{tensor} in 32 bits", self.name_of(x)))
        whole = x.columns, x.width, x.unit

        def backward(gradient: Tensor) -> list[Tensor | None]:
            return [[self.gradient(whole) for _ in range(3)][-1]]  # the power below, times its exponent, times that

        return self.record(self.like(name, x), [x], backward, [x.storage])

    def dropout(self, x: Tensor, name: Name) -> Tensor:
        """In training: a mask of a byte for each element is saved."""
        out, mask = self.like(name, x), self.new("masks of dropout", x.columns, 1, x.unit)
        return self.record(out, [x], self.multiplied, [mask.storage])

    def name_of(self, x: Tensor) -> str:
        """The words of a tensor's name."""
        name = "weights" if x.storage is None else self.sizes[x.storage.number][0]
        return name if isinstance(name, str) else name[1]

    def mark_loss(self) -> None:
        """What follows is the loss."""
        self.top()
        self.mark = len(self.tops)

    # Parts of tensors

    def slice(self, x: Tensor, columns: int) -> Tensor:
        """x[..., a:b]: a view, whose gradient is as large as the whole."""
        whole = x.columns, x.width, x.unit
        view = Tensor(x.storage, columns, x.width, x.unit, by_heads=x.by_heads)
        return self.record(view, [x], lambda gradient: [self.gradient(whole)])

    def split(self, x: Tensor, *columns: int) -> list[Tensor]:
        """x.split(...): views, whose gradients are put together at once."""
        views = [Tensor(x.storage, count, x.width, x.unit, by_heads=x.by_heads) for count in columns]
        if x.node is not None and self.recording:
            whole = x.columns, x.width, x.unit
            node = Node([(x.node, x.slot)], lambda gradient: [self.gradient(whole)], outputs=len(views))
            self.nodes.append(node)
            for slot, view in enumerate(views):
                view.node, view.slot = node, slot
        return views

    def chunks(self, x: Tensor, count: int) -> list[Tensor]:
        """x.chunk(...) along the tokens: views, each counted as so much less of every token."""
        return self.split(x, *[-(-x.columns // count)] * count)

    def concatenate(self, parts: Sequence[Tensor], name: Name, *, by_heads: bool = False) -> Tensor:
        """torch.cat along the columns; the gradients of its parts are views of its own."""
        out = self.new(name, sum(part.columns for part in parts), parts[0].width, parts[0].unit, by_heads=by_heads)
        columns = [part.columns for part in parts]

        def backward(gradient: Tensor) -> list[Tensor | None]:
            heads = gradient.by_heads
            return [Tensor(gradient.storage, n, gradient.width, gradient.unit, by_heads=heads) for n in columns]

        return self.record(out, parts, backward)

    def gather(self, x: Tensor, indices: Tensor, columns: int, name: Name) -> Tensor:
        """x[indices]: saves the indices; its gradient is put into zeros."""
        out, side = self.new(name, columns, x.width, indices.unit), (x.columns, x.width, x.unit)

        def backward(gradient: Tensor) -> list[Tensor | None]:
            zeros = self.gradient(side)
            total = self.gradient(side)
            del zeros
            return [total]

        return self.record(out, [x], backward, [indices.storage])

    def largest(self, scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """torch.topk: values, and their indices in 64 bits."""
        indices = self.new("numbers of experts", k, 8, scores.unit)
        return self.gather(scores, indices, k, "weights of experts"), indices

    def total(self, x: Tensor, columns: int, name: Name) -> Tensor:
        """The sum of the parts of each row; its gradient is repeated for them."""
        side = x.columns, x.width, x.unit
        out = self.new(name, columns, x.width, x.unit)
        return self.record(out, [x], lambda gradient: [self.gradient(side)])

    def divided(self, x: Tensor, name: Name) -> Tensor:
        """x /= its sum, in place: what it was is kept for its gradient."""
        total, before = self.new(name, 1, x.width, x.unit), self.like(name, x)
        view = Tensor(x.storage, x.columns, x.width, x.unit)
        return self.record(view, [x], self.multiplied, [total.storage, before.storage])

    def turn_half(self, x: Tensor, name: Name) -> Tensor:
        """rotate_half(x): one half negated and put before the other."""
        half = self.new(name, x.columns // 2, x.width, x.unit)
        out = self.new(name, x.columns, x.width, x.unit, by_heads=True)
        del half
        whole = x.columns, x.width, x.unit

        def backward(gradient: Tensor) -> list[Tensor | None]:
            half = self.gradient((whole[0] // 2, *whole[1:]))
            first = self.gradient(whole)
            del half
            second = self.gradient(whole)
            del gradient
            total = self.gradient(whole, by_heads=True)
            del first, second
            return [total]

        return self.record(out, [x], backward)

    def filled(self, own: Tensor, shared: Tensor, columns: int, name: Name) -> Tensor:
        """A new tensor into which one part is copied for each head and another for all of them."""
        out = self.new(name, columns, own.width, own.unit, by_heads=True)
        whole, part, once = (columns, own.width, own.unit), (own.columns, own.width, own.unit), sides_of(shared)[0]

        def backward(gradient: Tensor) -> list[Tensor | None]:
            first = self.gradient(whole)
            of_shared = self.gradient((columns - part[0], part[1], part[2]))
            del gradient
            second = self.gradient(whole)
            of_own = self.gradient(part, by_heads=True)
            del first, second
            return [of_own, once and self.summed(of_shared, once)]

        return self.record(out, [own, shared], backward)

    def summed(self, gradient: Tensor, side: Side) -> Tensor:
        """The sum over heads."""
        return self.gradient(side)

    def padded(self, x: Tensor, columns: int, name: Name) -> Tensor:
        """Zeros behind the columns of each head."""
        out = self.new(name, columns, x.width, x.unit, by_heads=True)
        side = x.columns, x.width, x.unit
        return self.record(out, [x], lambda gradient: [self.gradient(side, by_heads=True)])

    def copied(self, x: Tensor, name: Name) -> Tensor:
        """Another of the same size, for whose gradient the input is saved."""
        return self.activation(x, name)

    def scanned(self, x: Tensor, columns: int, name: Name) -> Tensor:
        """Of another size, for whose gradient the input is saved."""
        out, side = self.new(name, columns, x.width, x.unit), (x.columns, x.width, x.unit)
        return self.record(out, [x], lambda gradient: [self.gradient(side)], [x.storage])

    def repeat(self, x: Tensor, times: int, name: Name) -> Tensor:
        """Keys or values for every query head."""
        if times == 1:
            return x
        out, once = self.new(name, times * x.columns, x.width, x.unit, by_heads=True), (x.columns, x.width, x.unit)
        return self.record(out, [x], lambda gradient: [self.gradient(once, by_heads=True)])

    # Norms

    def inverse_rms(self, x: Tensor, heads: int) -> Tensor:
        """rsqrt(mean of x² + ε) over all columns or those of each head, in steps."""
        name = "1 / rms of norms"
        squares = self.like("squares", x)
        mean = self.new(name, heads, 4, x.unit)
        del squares
        out = self.new(name, heads, 4, x.unit)
        del mean
        whole = x.columns, x.width, x.unit

        def backward(gradient: Tensor) -> list[Tensor | None]:
            return [[self.gradient(whole) for _ in range(4)][-1]]  # of the mean, then of the square

        return self.record(out, [x], backward, [x.storage, out.storage])

    def centred(self, x: Tensor, heads: int, name: Name) -> Tensor:
        """x less its mean."""
        mean = self.new("means of norms", heads, 4, x.unit)
        out = self.like(name, x)
        del mean

        def backward(gradient: Tensor) -> list[Tensor | None]:
            of_mean = self.again(gradient)
            total = self.again(gradient)
            del of_mean
            return [total]

        return self.record(out, [x], backward)

    def layer_norm(self, x: Tensor, weights: list[Tensor], heads: int, name: Name) -> Tensor:
        """One kernel: saves its input, mean and deviation, of all columns or of those of each head."""
        if self.autocast:
            x = self.cast(x, 4, "inputs of norms in 32 bits")
            weights = [self.cast_weight(weight, 4, "weights in 32 bits") for weight in weights]
        out, statistics = self.like(name, x), self.new("means and deviations of norms", 2 * heads, 4, x.unit)
        return self.record(out, [x, *weights], self.to_each(x, *weights), [x.storage, statistics.storage])

    def fused_norm(self, x: Tensor, weight: Tensor, heads: int, name: Name) -> Tensor:
        """RMSNorm in one kernel: saves its input and 1 / rms."""
        out, statistics = self.like(name, x), self.new("1 / rms of norms", heads, 4, x.unit)
        return self.record(out, [x, weight], self.to_each(x, weight), [x.storage, statistics.storage])

    def fused_gate(self, gate: Tensor, up: Tensor, name: Name) -> Tensor:
        """act(gate)·up in one kernel: saves both."""
        return self.record(self.like(name, up), [gate, up], self.to_each(gate, up), [gate.storage, up.storage])

    def flash_attention(self, q: Tensor, k: Tensor, v: Tensor, heads: int, columns: int) -> Tensor:
        """One kernel: saves queries, keys, values, its output and a log-sum-exp for each head."""
        if self.autocast:
            q, k, v = (self.cast(x, self.width, "inputs of attention in 16 bits") for x in (q, k, v))
        out = self.new("output of attention", columns, q.width, q.unit, by_heads=q.by_heads)
        exponents = self.new("log-sum-exp of attention", heads, 4, q.unit)
        saved = [q.storage, k.storage, v.storage, out.storage, exponents.storage]
        return self.record(out, [q, k, v], self.to_each(q, k, v), saved)

    def to_each(self, *inputs: Tensor) -> Backward:
        """The backward of a kernel that makes the gradients of all its inputs at once."""
        sides, heads = sides_of(*inputs), [x.by_heads for x in inputs]

        def backward(gradient: Tensor) -> list[Tensor | None]:
            return [side and self.gradient(side, by_heads=by) for side, by in zip(sides, heads, strict=True)]

        return backward


def sides_of(*inputs: Tensor) -> list[Side | None]:
    """The size of each input's gradient; None where none is asked for."""
    return [(x.columns, x.width, x.unit) if x.node is not None else None for x in inputs]


def saved_for_each_other(a: Tensor, b: Tensor) -> list[Storage | None]:
    """What a product saves: each factor where the other has a gradient."""
    return [b.storage if a.node is not None else None, a.storage if b.node is not None else None]
