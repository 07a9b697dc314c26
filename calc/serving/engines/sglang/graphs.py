"""SGLang's CUDA graphs: for which batches and prompts they are captured, and what is kept free for them.

Read in SGLang 0.5.23: `arg_groups/cuda_graph_hook.py`, `arg_groups/memory_hook.py` (`reserve_for_graph_mb`).
"""

from calc.hardware.parallel import Layout
from calc.model.architecture import Architecture
from calc.model.linear_attention import KimiDelta
from calc.model.mixers import CompressedAttention


def batches(most: int, *, guesses: bool = False) -> list[int]:
    """Batches of sequences that graphs are captured for, up to the largest (`generate_decode_cuda_graph_batch_sizes`);
    finer steps where tokens are guessed."""
    steps = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, most + 1, 32)]
    if guesses:
        steps = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, most + 1, 16)]
    return [*(batch for batch in steps if batch < most), most]


def decode_graphs(batch: int, dp: int) -> float:
    """MiB that are kept free for CUDA graphs up to a batch; copies of the attention are padded to each other's size."""
    padding = (3 if batch <= 300 else 4.5) * batch * dp if dp > 1 else 0
    return 2 * batch + padding


def prefill_graphs(most: int, architecture: Architecture, layout: Layout, images: bool) -> int:
    """The same for graphs of prompts up to so many tokens, which some models and pipelines go without
    (`disable_breakable_cudagraph_if_incompatible`): 8 MiB for each, 1,536 for all with a latent. `images`: the model
    reads them and has no such graphs for that."""
    mixers = [mixer for block in architecture.blocks for mixer in block.mixers]
    if layout.pp > 1 or images or any(isinstance(m, KimiDelta | CompressedAttention) for m in mixers):
        return 0
    if any(mixer.absorbs for mixer in mixers):
        return 1536
    lengths = [*range(4, 33, 4), *range(48, 257, 16), *range(288, 513, 32), *range(576, 1025, 64)]
    lengths += [*range(1280, 4097, 256), *range(4608, most + 1, 512)]
    return 8 * len([length for length in lengths if length <= most])
