"""Working memory of transformers' forward passes without gradients: what is alive at the peak, above weights
and cache.

Each moment is written as its tensors, which were read off its modules by tracking every storage of full-size passes
(transformers 5.23); the largest decides, for a layer's memory is free again before the next one. Sizes are numbers, or
symbols, of which the same functions make formulas.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from calc.errors import Message
from calc.formats import CACHE_BITS, CacheFormat
from calc.model.architecture import Architecture
from calc.model.attention import GQA
from calc.model.block import Block
from calc.model.feedforward import MLP, FeedForward, MoE
from calc.model.kernels import Kernels
from calc.model.mixers import CompressedAttention, Mixer, Recurrent
from calc.model.mla import LatentAttention
from calc.model.named import Peak
from calc.serving.engines.transformers.options import Attention, Logits

Elements = dict[str, Any]
"""Elements a token, by name; numbers or formulas."""


@dataclass(frozen=True)
class Pass:
    """A forward pass over prompts."""

    sequences: Any
    length: Any  # tokens of each sequence
    tokens: Any  # of all sequences, in this pass
    width: int  # bytes of an element
    attention: Attention
    logits: Logits
    cached: bool = True  # keys and values lie in a cache, not here

    @property
    def eager(self) -> bool:
        return self.attention == "eager"


def prefill_peaks(blocks: Iterable[Block], model: Architecture, prompt: Pass, *, logits: bool = True) -> list[Peak]:
    """The moments of a pass over the prompts: in each layer, and at the logits where this stage makes them."""
    peaks = [peak for block in blocks for peak in layer_peaks(block, model, prompt)]
    return [*peaks, logits_peak(model, prompt)] if logits else peaks


def decode_peaks(
    blocks: Iterable[Block], model: Architecture, step: Pass, kv: CacheFormat, *, logits: bool = True
) -> Iterator[Peak]:
    """The moments of a pass over one token a sequence, `step.length` of which lie in the cache: a layer's old keys live
    on while they are copied beside the new one, half of its cache; eager attention also repeats keys and values for
    every query head. Or a latent is expanded."""
    tokens = step.sequences * step.length
    made: dict[str, Any] = dict(logits_peak(model, step).tensors) if logits else {}
    yield Peak(Message("the logits of a token"), made)
    for mixer in (mixer for block in blocks for mixer in block.mixers):
        if isinstance(mixer, LatentAttention):
            yield Peak(
                Message("a cached latent, expanded"),
                {name: tokens * size for name, size in expanded(mixer, step, model.kernels).items()},
            )
            continue
        copies = {"old keys beside the new ones": tokens * (mixer.cached_elements() * CACHE_BITS[kv] // 16)}
        if step.eager and isinstance(mixer, GQA) and mixer.n_q != mixer.n_kv:
            repeated = 2 * mixer.n_q * mixer.d_head * step.width
            copies["keys and values, repeated for every query head"] = tokens * repeated
        yield Peak(Message("a layer's cache as it grows"), copies | made)


def expanded(mixer: LatentAttention, step: Pass, kernels: Kernels) -> Elements:
    """Bytes a cached token that a latent is expanded to: keys without positions and values of every head; keys with
    them; and for flash attention values padded to their width."""
    key, n, width = mixer.d_nope + mixer.d_rope, mixer.n_q, step.width
    parts = {
        "keys without positions and values": n * (mixer.d_nope + mixer.d_v) * width,
        "keys with positions": n * key * width,
    }
    if step.eager:
        return parts | {"scores and their softmax": n * softmax_bytes(mixer, width, kernels)}
    return parts | {"values, as wide as keys": n * key * width}


def logits_peak(model: Architecture, step: Pass) -> Peak:
    """Logits of one token a sequence and their fp32 copy for sampling; or of every token beside the last state, with
    an fp32 copy in transformers up to 4.44, or with the quotient where they are capped."""
    row, state = model.vocab * step.width, model.hidden * step.width
    if step.logits == "last":
        sampled = {"logits": step.sequences * row, "logits in fp32": step.sequences * model.vocab * 4}
        return Peak(Message("the logits of a token"), sampled)
    tensors = {"logits": step.tokens * row, "last states": step.tokens * state}
    if step.logits == "all_fp32":
        tensors["logits in fp32"] = step.tokens * model.vocab * 4
    elif model.kernels.capped_logits:
        tensors["logits before their cap"] = step.tokens * row
    return Peak(Message("the logits of every token"), tensors)


def layer_peaks(block: Block, model: Architecture, prompt: Pass) -> Iterator[Peak]:
    """The moments of one layer: in its feed-forward, and in each mixer."""
    width, tokens = prompt.width, prompt.tokens
    around = surroundings(model, prompt)
    heads = max((mixer.n_q for mixer in block.mixers if not isinstance(mixer, Recurrent)), default=0)
    scores = tokens * prompt.length * heads if prompt.eager else 0
    residual_states = model.kernels.residual_states if len(block.norms) > 1 else 0
    states = (6 if model.positions else 3 + block.norms_first) + residual_states
    for what, elements in feedforward_elements(block.ffn, model):
        named: Elements = {"hidden states": states * model.hidden} | elements
        tensors = around | {name: width * tokens * size for name, size in named.items()}
        tensors |= {"scores": width * scores} if prompt.eager else {}
        yield Peak(what, tensors | router_tensors(block.ffn, tokens))
    inputs = (2 + block.norms_first) * model.hidden
    for mixer in block.mixers:
        for what, elements in mixer_elements(mixer, model, prompt):
            named = {"embedding, residual and input": inputs} | elements
            tensors = around | {name: width * tokens * size for name, size in named.items()}
            if prompt.eager:
                tensors["scores and their softmax"] = scores * softmax_bytes(mixer, width, model.kernels)
            yield Peak(what, tensors)


def surroundings(model: Architecture, prompt: Pass) -> Elements:
    """What lies beside every layer: indices of positions, tables of cosines and sines, masks."""
    tensors: Elements = {"indices of positions": (16 if model.positions else 8) * prompt.length}
    if not model.positions and model.rotary:
        tensors["cosines and sines"] = table_bytes(model, prompt.width) * prompt.length
    if prompt.eager:
        tensors["masks"] = prompt.width * prompt.tokens * prompt.length * masks(model)
    return tensors


def mixer_elements(mixer: Mixer, model: Architecture, prompt: Pass) -> Iterator[tuple[Message, Elements]]:
    """A mixer beside its input. Flash attention peaks where queries are rotated, eager attention at the softmax,
    with keys and values repeated."""
    if isinstance(mixer, Recurrent):
        yield Message("a recurrent layer"), {"projections and what becomes of them": 2 * mixer.projected(model.hidden)}
    elif isinstance(mixer, GQA) and prompt.eager:
        yield Message("the softmax of attention"), eager_elements(mixer, model, cached=prompt.cached)
    elif isinstance(mixer, GQA):
        yield from rotated_elements(mixer, model.kernels, cached=prompt.cached)
    elif isinstance(mixer, CompressedAttention):
        yield Message("compressed attention"), {"queries, rotated, and output": 3 * mixer.n_q * mixer.d_head}
    else:
        key = mixer.d_nope + mixer.d_rope
        yield (
            Message("latent attention"),
            {
                "keys without positions and values": mixer.n_q * (mixer.d_nope + mixer.d_v),
                "queries and keys, before and after they are joined": mixer.n_q * 3 * key,
                "rotated channels": mixer.n_q * mixer.d_rope,
            },
        )


def eager_elements(mixer: GQA, model: Architecture, *, cached: bool) -> Elements:
    q, kv = mixer.n_q * mixer.d_head, mixer.n_kv * mixer.d_head
    elements: Elements = {"queries": q}
    if mixer.n_q != mixer.n_kv:
        elements["keys and values, repeated for every query head"] = 2 * q
    if model.kernels.joins_rotated:
        rotated = sum(columns for _, columns in model.rotary)
        elements["queries and keys, joined after rotation"] = q + kv + (mixer.n_q + mixer.n_kv) * rotated
    if not cached:
        elements["keys and values"] = 2 * kv
    return elements


def rotated_elements(mixer: GQA, kernels: Kernels, *, cached: bool) -> Iterator[tuple[Message, Elements]]:
    """Where queries and keys are rotated, in 16 bits, in which one of fp32 counts twice. In fp32 the projections stay
    beside the two products and their sum (or what is turned by 90 degrees) of queries, or beside rotated queries those
    of keys; keys and values are not in the cache yet, which counts them."""
    q, kv = mixer.n_q * mixer.d_head, mixer.n_kv * mixer.d_head
    if kernels.rotation == "16_bits":
        if mixer.qk_norm == "none":
            yield Message("the rotation of queries"), {"queries, and rotated": 2 * q, "keys and values": 2 * kv}
        else:
            yield Message("the norm of queries, in fp32"), {"queries, in 16 bits and twice in fp32": 5 * q}
        return
    alive: Elements = {"queries": q} if cached else {"queries": q, "keys and values": 2 * kv}
    if kernels.rotation == "fp32_copies":
        alive["copies in fp32"] = 2 * (q + kv)
    if kernels.rotation == "fp32_spread":
        alive["cosines and sines, spread over pairs"] = 4 * mixer.d_head
    yield Message("the rotation of queries, in fp32"), alive | {"products of queries and their sum": 6 * q}
    yield (
        Message("the rotation of keys, in fp32"),
        alive | {"rotated queries": 2 * q, "products of keys and their sum": 6 * kv},
    )


def softmax_bytes(mixer: Mixer, width: int, kernels: Kernels) -> int:
    """Bytes of each score of eager attention: once in 16 bits and twice in fp32; or twice in 16, with sinks thrice."""
    if isinstance(mixer, GQA) and (mixer.sinks or not kernels.fp32_softmax):
        return (2 + mixer.sinks) * width
    return width + 8


def feedforward_elements(ffn: FeedForward | None, model: Architecture) -> Iterator[tuple[Message, Elements]]:
    """Experts hold copies of the token for each that it is sent to: at their peak with the activation, or when their
    outputs are weighted (in fp32 by routers that compute so) and sorted back."""
    if ffn is None:
        yield Message("the end of a layer"), {}
    elif isinstance(ffn, MLP):
        packed = any({"gate_proj", "up_proj"} <= set(parts) for parts in model.names.packed.values())
        yield Message("the feed-forward"), mlp_elements(ffn, 1, model.kernels, packed=packed)
    else:
        kernels = model.kernels
        copies = ffn.n_experts if kernels.passes_all else ffn.top_k
        shares = ffn.shared_gate or kernels.passes_all
        shared: Elements = {"output of the shared expert": model.hidden} if shares else {}
        inside = mlp_elements(ffn.expert, copies, kernels, packed=True)
        yield Message("the routed experts"), shared | {"copies of each token": copies * model.hidden} | inside
        fp32 = ffn.router_correction == "buffer" if kernels.fp32_weights is None else kernels.fp32_weights
        outputs = (6 if fp32 else 4) * model.hidden
        yield Message("the outputs of routed experts"), shared | {"outputs, weighted and sorted": copies * outputs}


def mlp_elements(mlp: MLP, copies: Any, kernels: Kernels, *, packed: bool) -> Elements:
    """What the matrices in give, of which a gate of its own is gone by the end, the steps of the activation and, in a
    gated one, its product with up."""
    wide = copies * mlp.intermediate
    steps = {"one_kernel": 1, "relu": 1, "squared": 2, "written_out": 3, "xielu": 4, "clamped": 6}[kernels.activation]
    elements: Elements = {"gate and up": (2 if mlp.gated and packed else 1) * wide, "activation": steps * wide}
    return elements | ({"product of gate and up": wide} if mlp.gated else {})


def router_tensors(ffn: FeedForward | None, tokens: Any) -> Elements:
    """The router's logits, in 16 bits, and three lists of choices, in 64."""
    if not isinstance(ffn, MoE):
        return {}
    return {"router's logits": 2 * ffn.n_experts * tokens, "router's choices": 24 * ffn.top_k * tokens}


def table_bytes(model: Architecture, width: int) -> int:
    """Bytes a position of the tables of cosines and sines, which are in fp32 where rotation is by them."""
    fp32 = model.kernels.rotation in ("fp32", "fp32_spread")
    return 2 * (4 if fp32 else width) * sum(columns for _, columns in model.rotary)


def masks(model: Architecture) -> int:
    """Masks of eager attention: one for each window, of one head."""
    return len({mixer.window for block in model.blocks for mixer in block.mixers if hasattr(mixer, "n_q")})
