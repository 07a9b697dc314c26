"""What torchtitan's selective checkpointing keeps of a layer."""

from calc.model.block import Block
from calc.model.feedforward import MoE
from calc.model.mixers import Recurrent


def alternate_bytes(block: Block, hidden: int, w: int, *, compiled: bool) -> int:
    """Bytes a token of attention's outputs and of every other matrix product in a layer, from the first on. Compiled,
    what is only added to the residual stream is not saved, for nothing reads it going back (torch 2.13,
    `_functorch/partitioners.py`, `solve_min_cut`)."""
    outputs = 0
    rows: list[int] = []  # of each matrix, once for each expert that a token passes through
    added: set[int] = set()  # places of those whose product is only added
    for mixer in block.mixers:
        matrices = [shape for shape in mixer.shapes(hidden).values() if len(shape) == 2]
        rows += [shape[0] for shape in matrices]
        added.add(len(rows) - 1)
        if not isinstance(mixer, Recurrent):
            outputs += w * matrices[-1][1] + 4 * mixer.n_q
    if isinstance(block.ffn, MoE):
        rows += [block.ffn.top_k * shape[0] for shape in block.ffn.expert_shapes(hidden).values() if len(shape) == 2]
    elif block.ffn is not None:
        rows += [shape[0] for shape in block.ffn.shapes(hidden).values() if len(shape) == 2]
        added.add(len(rows) - 1)
    unread = added if compiled and block.norms_first and len(block.norms) < 4 else set()
    saved = [columns for place, columns in enumerate(rows) if place % 2 == 0 and place not in unread]
    return outputs + w * sum(saved)
