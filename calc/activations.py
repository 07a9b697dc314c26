"""Working memory of one forward pass without gradients: what is alive at its fullest moment, above weights and cache.

Elements are those of transformers' own modules, checked by tracking every storage of a full-size forward pass; the
largest layer decides, for its memory is free again before the next one.
"""

from calc.architecture import Architecture, Block
from calc.attention import GQA, Mixer
from calc.feedforward import MoE
from calc.precision import Precision
from calc.workload import Workload


def forward_bytes(architecture: Architecture, workload: Workload, precision: Precision) -> int:
    """Peak bytes of a prefill step: the largest layer, or the logits of the last tokens."""
    width = precision.activation_bytes
    layers = max(layer_elements(block, architecture.hidden, workload) for block in architecture.blocks)
    return max(width * layers, logits_bytes(architecture, workload, precision))


def logits_bytes(architecture: Architecture, workload: Workload, precision: Precision) -> int:
    """Logits of one token a sequence, and their fp32 copy for sampling."""
    return workload.batch * architecture.vocab * (precision.activation_bytes + 4)


def layer_elements(block: Block, hidden: int, workload: Workload) -> int:
    """Elements alive in one layer: its attention or its feed-forward, whichever holds more."""
    tokens = workload.step_tokens
    return tokens * max(attention_elements(block.mixer, hidden, workload), feedforward_elements(block, hidden))


def attention_elements(mixer: Mixer, hidden: int, workload: Workload) -> int:
    """Elements a token in attention: residual, normed input, and q, k, v, output (normed and rotated copies in fp32
    with q/k norm). Eager attention also holds each head's row of scores in 16 bits and twice in fp32."""
    if isinstance(mixer, GQA):
        q, kv, heads = mixer.n_q * mixer.d_head, mixer.n_kv * mixer.d_head, mixer.n_q
        live = 3 * hidden + (5 * q if mixer.qk_norm else 2 * q + 2 * kv)
        repeated = 3 * hidden + 3 * q + 2 * kv
    else:
        heads = mixer.n_q
        live = repeated = 3 * hidden + heads * (2 * (mixer.d_nope + mixer.d_rope) + 2 * mixer.d_v)
    return repeated + 5 * heads * workload.context if workload.attention == "eager" else live


def feedforward_elements(block: Block, hidden: int) -> int:
    """Elements a token in the feed-forward: gate, up and their product beside four of the hidden width; with experts,
    the same for each of the top_k copies of the token."""
    ffn = block.ffn
    if isinstance(ffn, MoE):
        return 4 * hidden + max(ffn.top_k * (4 * ffn.expert.intermediate + hidden), 4 * ffn.top_k * hidden)
    return 4 * hidden + 3 * ffn.intermediate
