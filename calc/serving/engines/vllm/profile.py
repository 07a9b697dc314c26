"""Profiling: what vLLM finds that a forward pass takes, before it sets the cache aside.

Read in vLLM 0.33 (`gpu_worker.py`, `gpu/model_runner.py: profile_run`): one pass over as many tokens as a step takes,
then sampling for as many sequences as may run at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from calc.errors import Message
from calc.model.block import Block
from calc.model.feedforward import FeedForward, MoE
from calc.model.mixers import CompressedAttention, Mixer, Recurrent
from calc.model.mla import LatentAttention
from calc.model.named import Peak
from calc.serving.engines.vllm.sampler import MASKS, UNUSED, Sampler

ATTENTION, SAMPLING = Message("a pass in a layer's attention"), Message("sampling for all sequences")
EXPERTS, OUTPUT_OF_EXPERTS = Message("a pass in the routed experts"), Message("the output of the routed experts")
FEED_FORWARD = Message("a pass in the feed-forward")
ENCODER = Message("a pass in the vision encoder")
COUNTS_SAVED, MASKS_SAVED = "counts of each sequence's words, for penalties", "masks of each sequence's words"

Elements = dict[str, Any]
"""Elements a token, by name; numbers or formulas."""


def profile_peaks(
    blocks: Iterable[Block],
    hidden: Any,
    vocab: Any,
    *,
    tokens: Any,
    sequences: Any,
    width: int = 2,
    sampler: Sampler = UNUSED,
    auxiliary: int = 0,
    encoder_bytes: Any = 0,
    encoder: Mapping[str, Any] = MappingProxyType({}),
) -> list[Peak]:
    """The moments of the run on one rank. `vocab` is 0 on stages that do not sample; else all its logits are gathered
    on every rank. States of so many auxiliary layers stay for a draft. The largest images or video pass the encoder
    before, where `encoder` is alive; `encoder_bytes` of them stay, as does what the sampler keeps."""
    counts = sequences * vocab if sampler.counts else 0
    states = {COUNTS_SAVED: sampler.counts * counts, MASKS_SAVED: counts // MASKS} if counts else {}
    images = {"kept of images": encoder_bytes} if encoder_bytes else {}
    peaks = [Peak(ENCODER, {**encoder, **states})] if encoder else []
    for block in blocks:
        for what, elements in layer_elements(block, hidden):
            tensors = {"input, residual and output": 3 * hidden} | elements
            if auxiliary:
                tensors["states for the draft"] = auxiliary * hidden
            peaks.append(Peak(what, {name: width * tokens * size for name, size in tensors.items()} | images | states))
    if vocab:
        logits = {"logits, their copies and what sampling takes": sampler.peak * sequences * vocab}
        peaks.append(Peak(SAMPLING, logits | images | states))
    return peaks


def layer_elements(block: Block, hidden: Any) -> Iterator[tuple[Message, Elements]]:
    """What a layer holds beside its input and output, in its mixers and in its feed-forward."""
    for mixer in block.mixers:
        yield ATTENTION, mixer_elements(mixer, hidden)
    yield from feedforward_elements(block.ffn, hidden)


def mixer_elements(mixer: Mixer, hidden: Any) -> Elements:
    if isinstance(mixer, Recurrent):
        return {"projections and what becomes of them": 2 * mixer.projected(hidden)}
    if isinstance(mixer, LatentAttention):
        key = mixer.d_nope + mixer.d_rope
        return {
            "queries": mixer.n_q * key,
            "keys": mixer.n_q * key,
            "values and output": mixer.n_q * 2 * mixer.d_v,
            "keys without positions, from the latent": mixer.n_q * mixer.d_nope,
        }
    if isinstance(mixer, CompressedAttention):
        return {"queries and output": 2 * mixer.n_q * mixer.d_head}
    return {"queries and output": 2 * mixer.n_q * mixer.d_head, "keys and values": 2 * mixer.n_kv * mixer.d_head}


def feedforward_elements(ffn: FeedForward | None, hidden: Any) -> Iterator[tuple[Message, Elements]]:
    """Gate and up in one, and their product; with experts for each copy of the token, where the first makes room for
    the output (`fused_moe.py`)."""
    if isinstance(ffn, MoE):
        inner = ffn.expert.intermediate
        wide = (2 if ffn.expert.gated else 1) * inner
        product = {"product of each expert": ffn.top_k * inner}
        yield EXPERTS, {"gate and up of each expert": ffn.top_k * wide} | product
        yield OUTPUT_OF_EXPERTS, {"output of each expert": ffn.top_k * hidden} | product
    elif ffn is not None:
        wide = (2 if ffn.gated else 1) * ffn.intermediate
        yield FEED_FORWARD, {"gate and up": wide, "product": ffn.intermediate}
