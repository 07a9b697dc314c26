"""What a layer keeps for the backward pass, in bytes: every tensor that autograd saves, once for each storage.

The sums are those of transformers' own modules, checked by listing what autograd saved in full-size layers; `fused`
stands for kernels that keep the inputs of a norm and of SwiGLU alone (Liger, Transformer Engine, torch.compile).
h is hidden, w the bytes of an activation, T the tokens of a micro-batch; all else as the classes name it.
"""

from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.feedforward import MLP, FeedForward, MoE
from calc.model.kernels import Kernels, NormKind, RMSKind
from calc.model.mixers import CompressedAttention, Mixer, RecurrentMixer
from calc.model.mla import LatentAttention
from calc.training.training_workload import TrainingWorkload


def layer_bytes(
    block: Block, kernels: Kernels, hidden: int, work: TrainingWorkload, tokens: int, w: int = 2, shards: int = 1
) -> int:
    """Bytes that one layer saves of a micro-batch of T tokens. What is as wide as the model is divided over `shards`
    ranks (sequence parallelism, arXiv:2205.05198 section 4.2.2); heads and columns are divided already."""
    mixers = sum(mixer_bytes(mixer, hidden, kernels.norm, work, w) for mixer in block.mixers)
    inner = mixers + feedforward_bytes(block.ffn, hidden, work, w, kernels)
    return tokens * (stream_bytes(block, hidden, work, w, kernels) // shards + inner) + router_copy(block.ffn, hidden)


def kept_bytes(
    block: Block, kernels: Kernels, hidden: int, work: TrainingWorkload, tokens: int, w: int = 2, shards: int = 1
) -> int:
    """Bytes of a layer that wait for its backward pass: all it saves, or its input alone, from which the rest is
    computed again (arXiv:1604.06174); none where they wait in host memory."""
    if work.offload_activations:
        return 0
    if work.recompute == "full":
        return tokens * w * hidden // shards
    if work.recompute == "alternate":
        return tokens * (w * hidden // shards + alternate_bytes(block, hidden, w))
    return layer_bytes(block, kernels, hidden, work, tokens, w, shards)


def returning_bytes(
    block: Block, kernels: Kernels, hidden: int, work: TrainingWorkload, tokens: int, w: int = 2, shards: int = 1
) -> int:
    """Bytes that come back for a layer's backward pass, computed again or fetched, beside what was kept."""
    whole = layer_bytes(block, kernels, hidden, work.model_copy(update={"recompute": "none"}), tokens, w, shards)
    if work.recompute in ("full", "alternate"):
        return whole
    return whole - kept_bytes(block, kernels, hidden, work, tokens, w, shards)


def alternate_bytes(block: Block, hidden: int, w: int) -> int:
    """Bytes a token of attention's outputs and of every other matrix product in a layer, from the first on."""
    outputs = 0
    rows: list[int] = []  # of each matrix, once for each expert that a token passes through
    for mixer in block.mixers:
        matrices = [shape for shape in mixer.shapes(hidden).values() if len(shape) == 2]
        rows += [shape[0] for shape in matrices]
        if not isinstance(mixer, RecurrentMixer):
            outputs += w * matrices[-1][1] + 4 * mixer.n_q
    if isinstance(block.ffn, MoE):
        rows += [block.ffn.top_k * shape[0] for shape in block.ffn.expert_shapes(hidden).values() if len(shape) == 2]
    elif block.ffn is not None:
        rows += [shape[0] for shape in block.ffn.shapes(hidden).values() if len(shape) == 2]
    return outputs + w * sum(rows[::2])


def stream_bytes(block: Block, hidden: int, work: TrainingWorkload, w: int, kernels: Kernels) -> int:
    """Bytes a token as wide as the model: norms, what the matrices read, and the masks of dropout behind them."""
    count = len(block.norms) if block.norm != "none" else bool(block.mixers) + (block.ffn is not None)
    norms = count * norm_bytes(hidden, kernels.norm_kind(block.norm), work, w)
    mixes, feeds = bool(block.mixers), block.ffn is not None and work.trains_feedforward
    inputs = 1 if mixes and feeds and len(block.norms) == 1 else mixes + feeds  # parallel branches read the same
    masks = (mixes + (block.ffn is not None)) * mask_bytes(work, w) if kernels.dropout else 0
    return norms + inputs * w * hidden + masks * hidden


def norm_bytes(size: int, kind: NormKind, work: TrainingWorkload, w: int) -> int:
    """RMSNorm: an fp32 copy, the normalised, and 1/rms; where the mean is taken off, that difference too; fused: its
    input and 1/rms. LayerNorm is one kernel: its input, mean and deviation; without weights on an fp32 copy."""
    if kind == "layer":
        return w * size + 8
    if kind == "none":
        return 4 * size + 8
    if work.fused:
        return w * size + 4
    wide = w if kind == "rms" else 4  # the normalised, for the gradient of the weight
    centred = 4 * size + 4 if kind == "centred" else 0
    return 4 * size + 4 + centred + (wide * size if work.trains_base else 0)


def mask_bytes(work: TrainingWorkload, w: int) -> int:
    """Of one dropped element: PyTorch's CUDA kernel keeps a byte; written out, as tracked on a CPU, an activation."""
    return 1 if work.fused else w


def mixer_bytes(mixer: Mixer, hidden: int, norm: RMSKind, work: TrainingWorkload, w: int) -> int:
    """Bytes a token inside a mixer, behind its input."""
    if isinstance(mixer, GQA):
        return gqa_bytes(mixer, norm, work, w)
    if isinstance(mixer, LatentAttention):
        return latent_bytes(mixer, work, w)
    if isinstance(mixer, CompressedAttention):
        q = mixer.n_q * mixer.d_head
        return w * (2 * mixer.q_rank + 3 * q + 2 * mixer.d_head + mixer.o_groups * mixer.o_rank) + 4 * mixer.n_q
    return recurrent_bytes(mixer, hidden, w)


def gqa_bytes(mixer: GQA, norm: RMSKind, work: TrainingWorkload, w: int) -> int:
    """Flash: queries, keys, values, output, and a log-sum-exp for each head. Eager: keys and values repeated for every
    query head, the scores, and the output where a matrix that is trained reads it. Sinks: one more score, all in 16
    bits."""
    d_v = mixer.d_v or mixer.d_head
    q, out = mixer.n_q * mixer.d_head, mixer.n_q * d_v
    k, v = (mixer.n_kv * mixer.d_head, mixer.n_kv * d_v) if mixer.own_keys else (0, 0)
    if work.attention == "flash":
        kept = w * (q + k + v + out) + 4 * mixer.n_q
    else:
        read = out if work.trains_output else 0
        kept = w * (2 * q + out + read) + score_bytes(mixer.n_q, work, w, sinks=mixer.sinks)
    if mixer.qk_norm != "none":
        norms = 2 if mixer.qk_norm == "full" else mixer.n_q + mixer.n_kv
        kept += norm_bytes(q + k, norm, work, w) + 4 * (norms - 1)  # 1/rms of each
    return kept + 2 * w * out if mixer.gated else kept  # the gate's sigmoid and the gated output


def score_bytes(n_q: int, work: TrainingWorkload, w: int, *, sinks: bool = False) -> int:
    """Scores of eager attention a token: the fp32 softmax and its copy for the product with the values. Selective
    recomputation keeps none (arXiv:2205.05198 section 5)."""
    if work.recompute == "selective":
        return 0
    return n_q * (work.sequence + 1) * w if sinks else n_q * work.sequence * (4 + w if w < 4 else 4)


def latent_bytes(mixer: LatentAttention, work: TrainingWorkload, w: int) -> int:
    """Latents before and after their norms, then attention with keys of all heads. Flash pads values to the keys'
    width; eager keeps values, which for a single sequence are a view that keeps the whole up-projection."""
    key, n_q = mixer.d_nope + mixer.d_rope, mixer.n_q
    latents = w * mixer.kv_rank + norm_bytes(mixer.kv_rank, "rms", work, w)
    if work.fused:
        latents += w * mixer.d_rope  # the norm's input is a view of latent and rotary key together
    if mixer.q_rank is not None:
        latents += w * mixer.q_rank + norm_bytes(mixer.q_rank, "rms", work, w)
    out = w * n_q * mixer.d_v
    if work.attention == "flash":
        return latents + 4 * w * n_q * key + out + 4 * n_q
    values = n_q * (mixer.d_v + (mixer.d_nope if work.micro_batch == 1 else 0))
    return latents + w * (2 * n_q * key + values) + out + score_bytes(n_q, work, w)


def recurrent_bytes(mixer: RecurrentMixer, hidden: int, w: int) -> int:
    """An assumption: what the projections make, the same behind the convolution, and the output; the scan's own kernels
    recompute the rest (Mamba-2, arXiv:2405.21060 section 6)."""
    out = sum(shape[1] for shape in mixer.shapes(hidden).values() if len(shape) == 2 and shape[0] == hidden)
    return w * (2 * mixer.projected(hidden) + out)


def feedforward_bytes(ffn: FeedForward | None, hidden: int, work: TrainingWorkload, w: int, kernels: Kernels) -> int:
    """Bytes a token inside a feed-forward, behind its input."""
    if isinstance(ffn, MoE):
        return moe_bytes(ffn, hidden, work, w, kernels)
    return 0 if ffn is None else mlp_bytes(ffn, work, w, kernels)


def mlp_bytes(mlp: MLP, work: TrainingWorkload, w: int, kernels: Kernels) -> int:
    """SwiGLU: gate, its silu, up and their product; fused without the silu. Ungated: before and after the activation,
    and three steps between where GELU is written out."""
    made = 1 if work.trains_feedforward else 0  # what the down-projection reads
    if mlp.gated:
        return w * mlp.intermediate * ((2 if work.fused else 3) + made)
    written_out = kernels.activation == "written_out" and not work.fused
    return w * mlp.intermediate * ((4 if written_out else 1) + made)


def moe_bytes(moe: MoE, hidden: int, work: TrainingWorkload, w: int, kernels: Kernels) -> int:
    """For each of top_k copies of the token: the copy, gate with up, silu, product, and the output that is weighted;
    three more steps where gate and up are clamped and the gate is written out.
    The router: its probabilities, and indices in 64 bits."""
    wide, f = moe.latent or hidden, moe.expert.intermediate
    steps = (3 if moe.expert.gated else 1) + (3 if kernels.activation == "clamped" else 0)
    copies = moe.top_k * (w * wide + w * f * steps)
    if work.trains_base:
        copies += moe.top_k * (w * wide + w * f)
    return (
        copies
        + router_bytes(moe, hidden)
        + sum(mlp_bytes(part, work, w, kernels) for part in (moe.shared, moe.beside) if part is not None)
        + (w * hidden if moe.shared_gate else 0)
    )


def router_bytes(moe: MoE, hidden: int) -> int:
    """Bytes a token. Routers that balance by a correction read an fp32 copy, and mask the experts out."""
    probabilities = 4 * moe.n_experts + 40 * moe.top_k
    return probabilities + (4 * hidden + moe.n_experts if balanced(moe) else 0)


def router_copy(ffn: FeedForward | None, hidden: int) -> int:
    """Bytes, whatever the tokens: such a router's weights in fp32."""
    return 4 * ffn.n_experts * hidden if isinstance(ffn, MoE) and balanced(ffn) else 0


def balanced(moe: MoE) -> bool:
    """Whether a bias balances the experts' load: DeepSeek-V3 section 2.1.2, arXiv:2412.19437."""
    return moe.router_correction != "none"
