"""Working memory of transformers' forward passes without gradients: what is alive at the fullest moment, above weights
and cache.

Each moment is written as its tensors, which were read off its modules by tracking every storage of full-size passes
(transformers 5.23); the largest decides, for a layer's memory is free again before the next one.
"""

from collections.abc import Iterable

from calc.formats import CACHE_BITS, Precision
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.feedforward import MLP, FeedForward, MoE
from calc.model.kernels import Kernels
from calc.model.mixers import CompressedAttention, Mixer, Recurrent
from calc.model.mla import LatentAttention
from calc.serving.workload import Workload


def prefill_bytes(architecture: Architecture, workload: Workload, precision: Precision, *, cached: bool = True) -> int:
    """Peak of a pass over the prompts: the fullest moment of a layer, or the logits. Without a cache, keys and values
    are counted here."""
    blocks = architecture.all_blocks
    layers = (layer_bytes(block, architecture, workload, precision, cached=cached) for block in blocks)
    return max(*layers, logits_bytes(architecture, workload, precision))


def decode_bytes(
    blocks: Iterable[Block], architecture: Architecture, workload: Workload, precision: Precision, last: bool = True
) -> int:
    """Peak of a pass over one token a sequence: a layer's old keys live on while they are copied beside the new one,
    half of its cache; eager attention also repeats keys and values for every query head. Or a latent is expanded."""
    tokens, width, eager = workload.batch * workload.context, precision.activation_bytes, workload.attention == "eager"
    one = workload.model_copy(update={"logits": "last"})
    logits = logits_bytes(architecture, one, precision) if last else 0
    moments = [logits]
    for mixer in (mixer for block in blocks for mixer in block.mixers):
        if isinstance(mixer, LatentAttention):
            scores = mixer.n_q * softmax_bytes(mixer, width, architecture.kernels) if eager else 0
            moments.append(tokens * (expanded_elements(mixer, eager=eager) * width + scores))
            continue
        old = int(mixer.cached_elements() * CACHE_BITS[precision.kv]) // 16
        repeated = 0
        if isinstance(mixer, GQA) and mixer.n_q != mixer.n_kv and eager:
            repeated = 2 * mixer.n_q * mixer.d_head * width
        moments.append(tokens * (old + repeated) + logits)
    return max(moments)


def expanded_elements(mixer: LatentAttention, *, eager: bool) -> int:
    """Elements a cached token that a latent is expanded to: keys without positions and values of every head; keys with
    them; and for flash attention values padded to their width."""
    key = mixer.d_nope + mixer.d_rope
    return mixer.n_q * (mixer.d_nope + mixer.d_v + (key if eager else 2 * key))


def logits_bytes(architecture: Architecture, workload: Workload, precision: Precision) -> int:
    """Logits of one token a sequence and their fp32 copy for sampling; or of every token beside the last state, with
    an fp32 copy in transformers up to 4.44, or with the quotient where they are capped."""
    row, hidden = architecture.vocab * precision.activation_bytes, architecture.hidden * precision.activation_bytes
    upcast = architecture.vocab * 4
    if workload.rows_of_logits == "last":
        return workload.batch * (row + upcast)
    copies = upcast if workload.rows_of_logits == "all_fp32" else row if architecture.kernels.capped_logits else 0
    return workload.step_tokens * (row + copies + hidden)


def layer_bytes(
    block: Block, architecture: Architecture, workload: Workload, precision: Precision, *, cached: bool = True
) -> int:
    """The fullest moment of one layer: in a mixer, or in the feed-forward."""
    width, tokens, sequence = precision.activation_bytes, workload.step_tokens, workload.prompt
    eager = workload.attention == "eager"
    attentions = [mixer for mixer in block.mixers if not isinstance(mixer, Recurrent)]
    around = (16 if architecture.positions else 8) * sequence
    if not architecture.positions:
        around += table_bytes(architecture, width) * sequence
    if eager:
        around += width * tokens * sequence * masks(architecture)
    scores = tokens * sequence * max((mixer.n_q for mixer in attentions), default=0) if eager else 0
    held = architecture.kernels.held_states if len(block.norms) > 1 else 0
    states = ((6 if architecture.positions else 3 + block.norms_first) + held) * architecture.hidden
    moments = [width * (tokens * (states + feedforward_elements(block.ffn, architecture)) + scores)]
    moments[0] += router_bytes(block.ffn) * tokens
    for mixer in block.mixers:
        elements = mixer_elements(mixer, architecture, eager=eager, cached=cached)
        elements -= 0 if block.norms_first else architecture.hidden
        moments.append(width * tokens * elements + scores * softmax_bytes(mixer, width, architecture.kernels))
    return around + max(moments)


def mixer_elements(mixer: Mixer, architecture: Architecture, *, eager: bool = False, cached: bool = True) -> int:
    """Elements a token in a mixer: embedding, residual, normed input; its projections. Flash attention is fullest where
    queries are rotated (with q/k norm in fp32), eager attention at the softmax, with keys and values repeated."""
    hidden, kernels = architecture.hidden, architecture.kernels
    if isinstance(mixer, Recurrent):
        return 3 * hidden + 2 * mixer.projected(hidden)
    if isinstance(mixer, GQA):
        q, kv = mixer.n_q * mixer.d_head, mixer.n_kv * mixer.d_head
        if eager:
            repeated = 2 * q if mixer.n_q != mixer.n_kv else 0
            if kernels.joins_rotated:
                repeated += q + kv + (mixer.n_q + mixer.n_kv) * sum(columns for _, columns in architecture.rotary)
            return 3 * hidden + q + repeated + (0 if cached else 2 * kv)
        return 3 * hidden + rotated_elements(mixer, kernels)
    if isinstance(mixer, CompressedAttention):
        return 3 * hidden + 3 * mixer.n_q * mixer.d_head
    key = mixer.d_nope + mixer.d_rope
    return 3 * hidden + mixer.n_q * (mixer.d_nope + mixer.d_v + 3 * key + mixer.d_rope)


def rotated_elements(mixer: GQA, kernels: Kernels) -> int:
    """Elements a token where queries and keys are rotated, in 16 bits, in which one of fp32 counts twice. In fp32 the
    projections stay beside the two products and their sum (or what is turned by 90 degrees) of queries, or beside
    rotated queries those of keys."""
    q, kv = mixer.n_q * mixer.d_head, mixer.n_kv * mixer.d_head
    if kernels.rotation == "16_bits":
        return 2 * q + 2 * kv if mixer.qk_norm == "none" else 5 * q
    copies = 2 * (q + kv) if kernels.rotation == "fp32_copies" else 0
    spread = 4 * mixer.d_head if kernels.rotation == "fp32_spread" else 0
    return q + 2 * kv + copies + spread + max(6 * q, 2 * q + 6 * kv)


def softmax_bytes(mixer: Mixer, width: int, kernels: Kernels) -> int:
    """Bytes of each score of eager attention: once in 16 bits and twice in fp32; or twice in 16, with sinks thrice."""
    if isinstance(mixer, GQA) and (mixer.sinks or not kernels.fp32_softmax):
        return (2 + mixer.sinks) * width
    return width + 8


def feedforward_elements(ffn: FeedForward | None, architecture: Architecture) -> int:
    """Elements a token in the feed-forward. Experts hold copies of the token for each that it is sent to: at their
    fullest with the activation, or when their outputs are weighted (in fp32 by routers that compute so) and sorted
    back."""
    hidden, kernels = architecture.hidden, architecture.kernels
    if ffn is None:
        return 0
    if isinstance(ffn, MLP):
        packed = any({"gate_proj", "up_proj"} <= set(parts) for parts in architecture.names.packed.values())
        return mlp_elements(ffn, kernels, packed=packed)
    fp32_weights = ffn.router_correction == "buffer" if kernels.fp32_weights is None else kernels.fp32_weights
    outputs = 6 if fp32_weights else 4
    shared = hidden if ffn.shared_gate or kernels.passes_all else 0
    copies = ffn.n_experts if kernels.passes_all else ffn.top_k
    return shared + copies * max(hidden + mlp_elements(ffn.expert, kernels, packed=True), outputs * hidden)


def mlp_elements(mlp: MLP, kernels: Kernels, *, packed: bool) -> int:
    """Elements a token: what the matrices in give, of which a gate of its own is gone by the end, the steps of the
    activation and, in a gated one, its product with up."""
    into = 2 if mlp.gated and packed else 1
    steps = {"one_kernel": 1, "squared": 2, "written_out": 3, "clamped": 6}[kernels.activation]
    return mlp.intermediate * (into + steps + mlp.gated)


def router_bytes(ffn: FeedForward | None) -> int:
    """Bytes a token of the router's logits, in 16 bits, and of three lists of choices, in 64."""
    return 2 * ffn.n_experts + 24 * ffn.top_k if isinstance(ffn, MoE) else 0


def table_bytes(architecture: Architecture, width: int) -> int:
    """Bytes a position of the tables of cosines and sines, which are in fp32 where rotation is by them."""
    fp32 = architecture.kernels.rotation in ("fp32", "fp32_spread")
    return 2 * (4 if fp32 else width) * sum(columns for _, columns in architecture.rotary)


def masks(architecture: Architecture) -> int:
    """Masks of eager attention: one for each window, of one head."""
    return len({mixer.window for block in architecture.blocks for mixer in block.mixers if hasattr(mixer, "n_q")})
