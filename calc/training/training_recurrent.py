"""Recurrent mixers in training, as transformers' own code computes them."""

from calc.model.linear_attention import GatedDeltaNet, LightningAttention
from calc.model.mixers import RecurrentMixer
from calc.model.recurrent import Mamba, Mamba2, ShortConv
from calc.training.autograd import CountedBy, TrackedTensor, scoped
from calc.training.delta import gated_delta
from calc.training.lightning import lightning
from calc.training.modules import Modules
from calc.training.selective_scan import selective_scan
from calc.training.state_space import state_space

OUTPUT = "output of the recurrent block"


@scoped
def recurrent(t: Modules, mixer: RecurrentMixer, x: TrackedTensor) -> TrackedTensor:
    """Those that `calc.training.modelled` lets through."""
    if isinstance(mixer, GatedDeltaNet):
        return gated_delta(t, mixer, x)
    if isinstance(mixer, Mamba2):
        return state_space(t, mixer, x)
    if isinstance(mixer, Mamba):
        return selective_scan(t, mixer, x)
    if isinstance(mixer, LightningAttention):
        return lightning(t, mixer, x)
    assert isinstance(mixer, ShortConv)
    return short_convolution(t, mixer, x)


@scoped
def short_convolution(t: Modules, mixer: ShortConv, x: TrackedTensor) -> TrackedTensor:
    """Two gates round a convolution of a few positions: LFM2."""
    h = mixer.d_inner
    projected = t.local(t.matrix(x, "in_proj", 3 * h, "gates and states of the convolution"))
    first, second, third = t.split(projected, h, h, h)
    y = t.activation(t.multiply(first, third, "gated states"), "output of the convolution")
    y = t.by_tokens(t.multiply(second, y, "gated output of the convolution"), "gated output of the convolution")
    return t.matrix(t.local(y), "out_proj", x.columns, OUTPUT, unit=CountedBy.STREAM)
