"""Working memory of one forward pass without gradients: what is alive at its fullest moment, above weights and cache.

Elements are those of transformers' own modules, checked by tracking every storage of a full-size forward pass; the
largest layer decides, for its memory is free again before the next one.
"""

from calc.architecture import Architecture, Block
from calc.attention import GQA
from calc.feedforward import FeedForward, MoE
from calc.mixers import CompressedAttention, Mixer, Recurrent
from calc.precision import Precision
from calc.workload import Workload


def forward_bytes(architecture: Architecture, workload: Workload, precision: Precision) -> int:
    """Peak bytes of a prefill step: the largest layer, or the logits of the last tokens."""
    width = precision.activation_bytes
    elements = max(
        layer_elements(block, architecture.hidden, workload) for block in (*architecture.blocks, *architecture.shared)
    )
    return max(width * workload.step_tokens * elements, logits_bytes(architecture, workload, precision))


def logits_bytes(architecture: Architecture, workload: Workload, precision: Precision) -> int:
    """Logits of one token a sequence, and their fp32 copy for sampling."""
    return workload.batch * architecture.vocab * (precision.activation_bytes + 4)


def layer_elements(block: Block, hidden: int, workload: Workload) -> int:
    """Elements a token alive in one layer: its mixer or its feed-forward, whichever holds more."""
    mixers = [mixer_elements(mixer, hidden, workload) for mixer in block.mixers]
    return max([*mixers, feedforward_elements(block.ffn, hidden)])


def mixer_elements(mixer: Mixer, hidden: int, workload: Workload) -> int:
    """Elements a token in a mixer: residual, normed input, and its projections (with q/k norm also the fp32 copies of
    queries). Eager attention also holds each head's row of scores in 16 bits and twice in fp32; gpt-oss thrice in 16
    bits."""
    if isinstance(mixer, Recurrent):
        return 3 * hidden + 2 * sum(shape[0] for shape in mixer.shapes(hidden).values() if shape[1:] == (hidden,))
    if isinstance(mixer, GQA):
        q, kv = mixer.n_q * mixer.d_head, mixer.n_kv * mixer.d_head
        live = 3 * hidden + (2 * q + 2 * kv if mixer.qk_norm == "none" else 5 * q)
        eager = 3 * hidden + 3 * q + 2 * kv
    elif isinstance(mixer, CompressedAttention):
        live = eager = 3 * hidden + 3 * mixer.n_q * mixer.d_head
    else:
        live = eager = 3 * hidden + mixer.n_q * 2 * (mixer.d_nope + mixer.d_rope + mixer.d_v)
    scores = 3 if isinstance(mixer, GQA) and mixer.sinks else 5
    return eager + scores * mixer.n_q * workload.context if workload.attention == "eager" else live


def feedforward_elements(ffn: FeedForward | None, hidden: int) -> int:
    """Elements a token in the feed-forward: gate, up and their product beside four of the hidden width; with experts,
    the same for each of the top_k copies of the token."""
    if isinstance(ffn, MoE):
        return 4 * hidden + max(ffn.top_k * (4 * ffn.expert.intermediate + hidden), 4 * ffn.top_k * hidden)
    return 4 * hidden + (0 if ffn is None else 3 * ffn.intermediate)
