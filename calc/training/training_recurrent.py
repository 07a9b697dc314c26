"""Recurrent mixers in training: short convolutions as transformers computes them, and an assumption for all others."""

from calc.model.mixers import RecurrentMixer
from calc.model.recurrent import ShortConv
from calc.training.autograd import CountedBy, TrackedTensor
from calc.training.modules import Modules

OUTPUT = "output of the recurrent block"


def recurrent(t: Modules, mixer: RecurrentMixer, x: TrackedTensor) -> TrackedTensor:
    """An assumption: what the projections make, the same behind the convolution, and the output; the scan's own kernels
    compute the rest again (Mamba-2, arXiv:2405.21060 section 6)."""
    if isinstance(mixer, ShortConv):
        return short_convolution(t, mixer, x)
    hidden = x.columns
    out = sum(shape[1] for shape in mixer.shapes(hidden).values() if len(shape) == 2 and shape[0] == hidden)
    projected = t.matrix(x, "in_proj", mixer.projected(hidden), "projected states")
    behind = t.activation(projected, "states behind the convolution")
    scanned = t.scanned(behind, out, "output of the scan")
    return t.matrix(scanned, "out_proj", hidden, OUTPUT, unit=CountedBy.STREAM)


def short_convolution(t: Modules, mixer: ShortConv, x: TrackedTensor) -> TrackedTensor:
    """Two gates round a convolution of a few positions: LFM2."""
    h = mixer.d_inner
    first, second, third = t.split(t.matrix(x, "in_proj", 3 * h, "gates and states of the convolution"), h, h, h)
    y = t.activation(t.multiply(first, third, "gated states"), "output of the convolution")
    y = t.by_tokens(t.multiply(second, y, "gated output of the convolution"), "gated output of the convolution")
    return t.matrix(y, "out_proj", x.columns, OUTPUT, unit=CountedBy.STREAM)
