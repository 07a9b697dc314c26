"""Lightning attention as transformers computes it (`modeling_minimax.py`, class `MiniMaxLightningAttention`): blocks of
tokens with a matrix of keys times values carried from one to the next."""

from calc.model.linear_attention import LightningAttention
from calc.training.autograd import CountedBy, TrackedTensor, scoped
from calc.training.modules import Modules

LABEL = "states within chunks"


@scoped
def lightning(t: Modules, mixer: LightningAttention, x: TrackedTensor) -> TrackedTensor:
    """Activated queries, keys and values, attention block by block, a norm and a gate."""
    wide, label = mixer.n_heads * mixer.d_head, "queries, keys and values"
    packed = t.local(t.activation(t.matrix(x, "qkv_proj", 3 * wide, label), label))
    out = t.copied_view(by_blocks(t, mixer, *t.split(packed, wide, wide, wide)), "output of the scan")
    with t.alive(out):
        out = t.norm(out, "rms", "normed output of the scan")
    label = "gate of the recurrent block"
    gate = t.local(t.result_saved(t.matrix(x, "output_gate", wide, label), label))
    out = t.multiply(gate, out, "gated output of the scan")
    return t.matrix(t.local(out), "out_proj", x.columns, "output of the recurrent block", unit=CountedBy.STREAM)


@scoped
def by_blocks(
    t: Modules, mixer: LightningAttention, q: TrackedTensor, k: TrackedTensor, v: TrackedTensor
) -> TrackedTensor:
    """Each block saves its decayed scores, decayed queries and keys for the states of other blocks, and the state
    before it. Going back, the gradients of blocks are put into zeros as large as the whole."""
    n, c, wide, width = mixer.n_heads, mixer.chunk, q.columns, t.width if t.autocast else q.width
    inputs = (q, k, v)
    kept = [part.storage for part in inputs]
    if t.saves:
        kept.append(t.local(t.new(LABEL, n * c * c, width, CountedBy.CHUNK)).storage)
        kept.append(t.local(t.new(LABEL, 2 * c * wide, width, CountedBy.FOLLOWED)).storage)
        kept.append(t.local(t.new("states of chunks", wide * mixer.d_head, width, CountedBy.CHUNK)).storage)
    blocks = t.new("output of the scan", wide, q.width, q.unit)
    out = t.new("output of the scan", wide, q.width, q.unit, blocks)
    sides = [(part.columns, part.width, part.unit) for part in inputs]

    def backward(gradient: TrackedTensor) -> list[TrackedTensor | None]:
        of_inputs: list[TrackedTensor | None] = [t.gradient(side) for side in sides]
        t.gradient(sides[0], t.gradient(sides[0]))  # of zeros
        return of_inputs

    return t.record(out, inputs, backward, kept)
