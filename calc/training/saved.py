"""What torchtitan's selective checkpointing keeps of a layer."""

from calc.model.block import Block
from calc.model.feedforward import MoE
from calc.model.mixers import Recurrent


def alternate_bytes(block: Block, hidden: int, w: int) -> int:
    """Bytes a token of attention's outputs and of every other matrix product in a layer, from the first on."""
    outputs = 0
    rows: list[int] = []  # of each matrix, once for each expert that a token passes through
    for mixer in block.mixers:
        matrices = [shape for shape in mixer.shapes(hidden).values() if len(shape) == 2]
        rows += [shape[0] for shape in matrices]
        if not isinstance(mixer, Recurrent):
            outputs += w * matrices[-1][1] + 4 * mixer.n_q
    if isinstance(block.ffn, MoE):
        rows += [block.ffn.top_k * shape[0] for shape in block.ffn.expert_shapes(hidden).values() if len(shape) == 2]
    elif block.ffn is not None:
        rows += [shape[0] for shape in block.ffn.shapes(hidden).values() if len(shape) == 2]
    return outputs + w * sum(rows[::2])
