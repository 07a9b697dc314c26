"""What the scores of attention take in a prefill: written out, or never."""

from calc.errors import Frozen
from calc.model.kernels import Kernels
from calc.model.mixers import Mixer

WIDTH = 2  # bytes of an element in 16 bits


class Scores(Frozen):
    """Bytes of one layer, which the next one uses again."""

    matrix: int  # [batch, heads, length, length], once, in 16 bits
    eager: int  # at the softmax of transformers' eager attention, with its copies in fp32
    flash: int  # of FlashAttention, which keeps one fp32 number for each row: arXiv:2307.08691 section 3.1


def scores(mixer: Mixer, kernels: Kernels, batch: int, length: int) -> Scores | None:
    """Scores of a prefill of `batch` sequences of `length` tokens; None where there are none."""
    if not mixer.score_heads:
        return None
    rows = batch * mixer.score_heads * length
    each = mixer.softmax_bytes(WIDTH, kernels)
    return Scores(matrix=rows * length * WIDTH, eager=rows * length * each, flash=rows * 4)
