"""How vLLM divides a GPU: what its profile run takes, and its defaults.

Read in its source (0.33: `gpu_worker.py`, `mem_utils.py`, `arg_utils.py`) and compared with start-up logs.
"""

from collections.abc import Iterable

from calc.hardware.gpu import GPU
from calc.model.block import Block
from calc.model.feedforward import FeedForward, MoE
from calc.model.mixers import CompressedAttention, Mixer, Recurrent
from calc.model.mla import LatentAttention
from calc.serving.workload import Workload
from calc.units import GIB

SAMPLER_BYTES = 39
"""Bytes for each logit of the sampler's dummy run: logits in 16 and 32 bits, sorted values with 64-bit indices,
probabilities, their sums, masks. Fitted to ten start-up logs (median 1.3 %, most 5.4 % off)."""


def profile_bytes(blocks: Iterable[Block], hidden: int, vocab: int, *, tokens: int, seqs: int, width: int = 2) -> int:
    """Peak of the profile run on one rank: the fullest layer with as many tokens as a step takes, or sampling for so
    many sequences over the whole vocabulary, which every rank gathers; `vocab` is 0 on stages that do not sample."""
    layers = [width * tokens * layer_elements(block, hidden) for block in blocks]
    return max([*layers, SAMPLER_BYTES * seqs * vocab])


def layer_elements(block: Block, hidden: int) -> int:
    """Elements a token alive in one layer: input, residual and output beside the products."""
    inner = [projections(mixer, hidden) for mixer in block.mixers] + [feedforward(block.ffn, hidden)]
    return 3 * hidden + max(inner)


def projections(mixer: Mixer, hidden: int) -> int:
    """Elements a token of queries, keys, values and what attention returns."""
    if isinstance(mixer, Recurrent):
        return 2 * mixer.projected(hidden)
    if isinstance(mixer, LatentAttention):
        return mixer.n_q * (mixer.d_nope + 2 * mixer.d_v + 2 * (mixer.d_nope + mixer.d_rope))
    if isinstance(mixer, CompressedAttention):
        return 2 * mixer.n_q * mixer.d_head
    return 2 * (mixer.n_q + mixer.n_kv) * mixer.d_head


def feedforward(ffn: FeedForward | None, hidden: int) -> int:
    """Elements a token: gate and up in one, and their product; with experts for each copy of the token, where the first
    makes room for the output (`fused_moe.py`)."""
    if isinstance(ffn, MoE):
        wide = (2 if ffn.expert.gated else 1) * ffn.expert.intermediate
        return ffn.top_k * (max(wide, hidden) + ffn.expert.intermediate)
    return 0 if ffn is None else (3 if ffn.gated else 2) * ffn.intermediate


def step_tokens(workload: Workload, gpu: GPU) -> int:
    """`max_num_batched_tokens`: of the server, more on large GPUs but A100; before 0.8 a whole prompt, unless it is
    longer than 32k and cut."""
    if workload.prefill_tokens is not None:
        return workload.prefill_tokens
    if workload.older(0, 8):
        return workload.context if 2048 < workload.context <= 32_768 else 2048
    large = is_large(gpu)
    return 16_384 if large and gpu.memory_bytes >= 160 * GIB else 8192 if large else 2048


def sequences(workload: Workload, gpu: GPU) -> int:
    """`max_num_seqs`: 1,024 on large GPUs since 0.8, else 256."""
    if workload.max_num_seqs is not None:
        return workload.max_num_seqs
    return 1024 if is_large(gpu) and not workload.older(0, 8) else 256


def is_large(gpu: GPU) -> bool:
    """Of 70 GiB or more, but no A100, which got slower with large steps (`get_batch_defaults`)."""
    return gpu.memory_bytes >= 70 * GIB and "A100" not in gpu.name


def utilization(workload: Workload) -> float:
    """`gpu_memory_utilization`: 0.92 by default, 0.9 in the versions that our logs are of."""
    if workload.gpu_memory_utilization is not None:
        return workload.gpu_memory_utilization
    return 0.9 if workload.older(0, 33) else 0.92
