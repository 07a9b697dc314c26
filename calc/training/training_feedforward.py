"""Feed-forwards as transformers' classes compute them in training."""

from calc.model.feedforward import MLP
from calc.training.autograd import CountedBy, TrackedTensor, scoped
from calc.training.modules import Modules


@scoped
def mlp(t: Modules, ffn: MLP, x: TrackedTensor) -> TrackedTensor:
    """down(act(gate(x))·up(x)), or down(act(up(x)))."""
    columns, f = x.columns, ffn.intermediate
    if ffn.gated:
        y = t.gated(x, f, bias=ffn.bias)
    else:
        y = t.activated(t.matrix(x, "up_proj", f, "states of the feed-forward", bias=ffn.bias))
    if t.kernels.norms_inside:
        with t.alive(y):
            y = t.norm(y, "rms", "normed gated states")
    return t.matrix(
        t.local(y), "down_proj", columns, "output of the feed-forward", bias=ffn.bias, unit=CountedBy.STREAM
    )
