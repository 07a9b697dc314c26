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
from calc.model.block import Block
from calc.model.conventions import Kernels
from calc.model.feedforward import MLP
from calc.model.named import Peak
from calc.model.tensor import Elements
from calc.serving.engines.transformers.options import Attention, Logits


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
    on while they are copied next to the new one, half of its cache; eager attention also repeats keys and values for
    every query head. Or a latent is expanded. A cache in fp8 is read back whole, by way of fp32, and lies next to what
    it was before the token (`Fp8QuantizedLayer`)."""
    tokens = step.sequences * step.length
    made: dict[str, Any] = dict(logits_peak(model, step).tensors) if logits else {}
    yield Peak(Message("the logits of a token"), made)
    for mixer in (mixer for block in blocks for mixer in block.mixers):
        if expanded := mixer.expanded_bytes(step.width, model.kernels, eager=step.eager):
            latent = {"cached latent, read back": mixer.cached_elements() * step.width} if kv == "fp8" else {}
            tensors = {name: tokens * size for name, size in (latent | expanded).items()}
            yield Peak(Message("a cached latent, expanded"), tensors)
            continue
        elements = mixer.cached_elements()
        copies = {"old keys beside the new ones": tokens * (elements * CACHE_BITS[kv] // 16)}
        if kv == "fp8":
            keys = {"keys, read back": tokens * (elements // 2 * step.width)}
            values = {"values in fp32 and scaled": tokens * (elements // 2 * 8)}
            old = {"old keys and values beside the new ones": tokens * elements}
            yield Peak(Message("a layer's cache as it is read back"), keys | values | old | made)
            copies = {"keys and values, read back": tokens * (elements * step.width)}
        if step.eager and (repeated := mixer.repeated_elements()):
            copies["keys and values, repeated for every query head"] = tokens * repeated * step.width
        yield Peak(Message("a layer's cache as it grows"), copies | made)


def logits_peak(model: Architecture, step: Pass) -> Peak:
    """Logits of one token a sequence and their fp32 copy for sampling; or of every token and the last state, with
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
    outside = surroundings(model, prompt)
    heads = max((mixer.n_q for mixer in block.attentions), default=0)
    scores = tokens * prompt.length * heads if prompt.eager else 0
    residual_states = model.kernels.residual_states if len(block.norms) > 1 else 0
    states = (6 if model.positions else 3 + block.norms_first) + residual_states
    if model.encodes:
        states = 3 + bool(model.rotary)
    for what, elements in feedforward_elements(block, model):
        named: Elements = {"hidden states": states * model.hidden} | elements
        tensors = outside | {name: width * tokens * size for name, size in named.items()}
        tensors |= {"scores": width * scores} if prompt.eager else {}
        if moe := block.moe:  # logits in 16 bits, and three lists of choices in 64
            tensors |= {"router's logits": 2 * moe.n_experts * tokens, "router's choices": 24 * moe.top_k * tokens}
        yield Peak(what, tensors)
    normed_sums = model.encodes and model.kernels.norms_sums
    inputs = (2 + (block.norms_first and not normed_sums)) * model.hidden
    for mixer in block.mixers:
        peaks = mixer.module_peaks(
            model.hidden, model.kernels, rotated_channels(model), eager=prompt.eager, cached=prompt.cached
        )
        for what, elements in peaks:
            named = {"embedding, residual and input": inputs} | elements
            tensors = outside | {name: width * tokens * size for name, size in named.items()}
            if prompt.eager:
                tensors["scores and their softmax"] = scores * mixer.softmax_bytes(width, model.kernels)
            yield Peak(what, tensors)


def surroundings(model: Architecture, prompt: Pass) -> Elements:
    """Tensors outside every layer: indices of positions, tables of cosines and sines (in fp32 where rotation is),
    masks."""
    each = 16 if model.positions else 8
    tensors: Elements = {} if model.encodes and model.positions else {"indices of positions": each * prompt.length}
    if not model.positions and model.rotary:
        fp32 = model.kernels.rotation in ("fp32", "fp32_spread")
        tensors["cosines and sines"] = 2 * (4 if fp32 else prompt.width) * rotated_channels(model) * prompt.length
    if prompt.eager:  # a mask for each window, of one head
        masks = len({mixer.window for block in model.all_blocks for mixer in block.attentions})
        tensors["masks"] = prompt.width * prompt.tokens * prompt.length * masks
    return tensors


def feedforward_elements(block: Block, model: Architecture) -> Iterator[tuple[Message, Elements]]:
    """Experts hold copies of the token for each that it is sent to: at their peak with the activation, or when their
    outputs are weighted (in fp32 by routers that compute so) and sorted back."""
    kernels, moe = model.kernels, block.moe
    if block.ffn is None:
        yield Message("the end of a layer"), {}
    if block.dense is not None:
        packed = any({"gate_proj", "up_proj"} <= set(parts) for parts in model.packed_modules)
        yield Message("the feed-forward"), mlp_elements(block.dense, 1, kernels, packed=packed)
    if moe is not None:
        copies = moe.n_experts if kernels.passes_all else moe.top_k
        shares = moe.shared_gate or kernels.passes_all
        shared: Elements = {"output of the shared expert": model.hidden} if shares else {}
        inside = mlp_elements(moe.expert, copies, kernels, packed=True)
        yield Message("the routed experts"), shared | {"copies of each token": copies * model.hidden} | inside
        fp32 = moe.router_correction == "buffer" if kernels.fp32_weights is None else kernels.fp32_weights
        outputs = (6 if fp32 else 4) * model.hidden
        yield Message("the outputs of routed experts"), shared | {"outputs, weighted and sorted": copies * outputs}


def mlp_elements(mlp: MLP, copies: Any, kernels: Kernels, *, packed: bool) -> Elements:
    """Outputs of the first matrices, of which a gate of its own is gone by the end, the steps of the activation and, in
    a gated one, its product with up."""
    wide = copies * mlp.intermediate
    steps = {"one_kernel": 1, "relu": 1, "squared": 2, "written_out": 3, "xielu": 4, "clamped": 6}[kernels.activation]
    elements: Elements = {"gate and up": (2 if mlp.gated and packed else 1) * wide, "activation": steps * wide}
    return elements | ({"product of gate and up": wide} if mlp.gated else {})


def rotated_channels(model: Architecture) -> int:
    """Channels that all tables of cosines and sines turn."""
    return sum(columns for _, columns in model.rotary)
