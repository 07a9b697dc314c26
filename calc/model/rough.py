"""The rough formula that articles use, to lay beside the exact count."""

from calc.errors import Frozen
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.feedforward import MLP


class Rough(Frozen):
    """The rough count beside the exact one."""

    total: int
    error: float
    """Share of the exact count by which it is more."""


def rough(architecture: Architecture) -> Rough | None:
    """What the rough formula gives for a model that it describes."""
    total = rough_total(architecture)
    return None if total is None else Rough(total=total, error=total / architecture.parameters().total - 1)


def rough_total(architecture: Architecture) -> int | None:
    """V*H*2 + L*(4*H^2 + 3*M*H^2) with feed-forward width M*H: square attention, an untied head, no norms or biases.

    None for models that it does not describe: experts, latent attention, a feed-forward without gate.
    """
    mixers = {type(mixer) for block in architecture.blocks for mixer in block.mixers}
    widths = {block.ffn.intermediate for block in architecture.blocks if isinstance(block.ffn, MLP) and block.ffn.gated}
    if mixers != {GQA} or len(widths) != 1 or not all(isinstance(block.ffn, MLP) for block in architecture.blocks):
        return None
    hidden, (width,) = architecture.hidden, widths
    layer = 4 * hidden * hidden + 3 * hidden * width
    return 2 * architecture.vocab * hidden + architecture.num_layers * layer
