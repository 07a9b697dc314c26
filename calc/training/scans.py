"""What the scans of recurrent layers are made of in transformers' own code."""

from calc.training.autograd import CountedBy, Name, TrackedTensor, scoped
from calc.training.modules import Modules


@scoped
def mixed_by_convolution(t: Modules, x: TrackedTensor) -> TrackedTensor:
    """silu of a convolution over a few positions (`causal_conv1d_fn`), which saves its input."""
    label = "output of the convolution"
    if t.autocast:
        x = t.local(t.cast(t.cast(x, 4, label), t.width, "inputs of the convolution in 16 bits"))
    out = t.local(t.convolution(x, label))
    return t.activation(t.slice(out, out.columns), "states behind the convolution")


@scoped
def chunked(t: Modules, x: TrackedTensor, chunk: int, name: Name) -> TrackedTensor:
    """F.pad to whole chunks: a copy."""
    out, side = t.new(name, chunk * x.columns, x.width, CountedBy.CHUNK), (x.columns, x.width, x.unit)
    return t.record(out, [x], lambda gradient: [t.gradient(side)])


@scoped
def gated_norm(t: Modules, x: TrackedTensor, gate: TrackedTensor, heads: int, size: int) -> TrackedTensor:
    """norm(x)·silu(gate) with the gate in 32 bits (`Qwen3_5RMSNormGated`)."""
    before, label = x.width, "normed output of the scan"
    wide = t.local(t.cast(x, 4, label))
    normed = t.local(t.cast(t.multiply(wide, t.inverse_rms(wide, heads), label), before, label))
    weight = t.weight(size, t.settings.rest, trained=t.settings.trains)
    x = t.local(t.multiply(weight, normed, label))
    t.free(wide, normed)
    gate = t.local(t.activation(t.cast(gate, 4, "gate in 32 bits"), "gate in 32 bits"))
    return t.cast(t.multiply(x, gate, "gated output of the scan"), before, "gated output of the scan")


@scoped
def scan_over_chunks(
    t: Modules,
    out: TrackedTensor,
    new_values: TrackedTensor,
    parts: tuple[TrackedTensor, ...],
    *,
    values: int,
    state: int,
) -> TrackedTensor:
    """One chunk after the other: each saves its part of all inputs, the values that it adds and the state before it; in
    copies of 16 bits under autocast, where the first chunk needs no input but for its products within, and the last
    none for a state that nobody reads. Going back, the gradient of each input is put into zeros as large as the whole,
    chunk by chunk, and added up."""
    saved = [] if t.autocast else [part.storage for part in parts]
    if t.saves:
        saved += [t.local(tensor).storage for tensor in saved_by_chunks(t, parts, values, state)]
    t.new("states of chunks", 4 * state, 4, CountedBy.SEQUENCE)  # in passing
    inputs = [new_values, *parts]
    sides = [(part.columns, part.width, part.unit) for part in inputs]

    def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
        copy = t.again(gradient)
        t.free(gradient)
        of_inputs: list[TrackedTensor | None] = [t.gradient(side) for side in sides]
        zeros = t.gradient(max(sides))
        t.gradient(max(sides), copy, zeros)
        return of_inputs

    view = TrackedTensor(out.storage, out.columns, out.width, out.unit)
    return t.record(view, inputs, backward, saved)


def saved_by_chunks(t: Modules, parts: tuple[TrackedTensor, ...], values: int, state: int) -> list[TrackedTensor]:
    """What the chunks save beside their parts of the inputs."""
    if not t.autocast:
        columns = {"values of chunks": values, "states of chunks": state}
        return [t.new(name, size, 4, CountedBy.CHUNK) for name, size in columns.items()]
    kept = "inputs of the scan in 16 bits"
    corrections, query, within, key = (part.columns for part in parts)
    return [
        t.new(kept, within + values + 2 * state, 2, CountedBy.CHUNK),
        t.new(kept, corrections + query + key + values, 2, CountedBy.FOLLOWED),
        t.new("states of chunks", state, 4, CountedBy.FOLLOWED),
    ]


@scoped
def spread(t: Modules, x: TrackedTensor, columns: int, name: Name) -> TrackedTensor:
    """x.repeat_interleave(...): what groups share, for each of their heads; a copy even where each has one."""
    side = x.columns, x.width, x.unit
    return t.record(t.new(name, columns, x.width, x.unit), [x], lambda gradient: [t.gradient(side)])


@scoped
def einsum(
    t: Modules, a: TrackedTensor, b: TrackedTensor, columns: int, name: Name, copies: tuple[bool, bool] = (True, True)
) -> TrackedTensor:
    """torch.einsum as one product, for which factors are copied that do not lie so; in 16 bits under autocast."""
    label = "factors of products within chunks"
    if t.autocast:
        a, b = t.local(t.cast(a, t.width, label)), t.local(t.cast(b, t.width, label))
    first, second = (t.copied_view(x, label) if copied else x for x, copied in zip((a, b), copies, strict=True))
    return t.product(first, second, columns, CountedBy.CHUNK, name)


@scoped
def as_tokens(t: Modules, x: TrackedTensor, columns: int) -> TrackedTensor:
    """The same memory by tokens, not by chunks."""
    side = x.columns, x.width, x.unit
    view = TrackedTensor(x.storage, columns, x.width, CountedBy.TOKEN)
    return t.record(view, [x], lambda gradient: [TrackedTensor(gradient.storage, *side)])
