"""Refusals that hold for every engine: formats of the cache, and more tokens than a model has positions for."""

from collections.abc import Iterator

from calc.errors import Message, Refusal
from calc.formats import CacheFormat
from calc.model.architecture import Architecture
from calc.serving.kv_cache import growth, state_bytes


def without_cache(architecture: Architecture) -> Iterator[Refusal]:
    """Why an engine that sets its cache aside does not serve a model that keeps none."""
    if not any(any(growth([block], "bf16").values()) or state_bytes([block]) for block in architecture.all_blocks):
        sentence = Message(
            "No layer of this model keeps a cache: it drafts for a larger model and is served beside it only."
        )
        yield Refusal(sentence, "engine")


def beyond_positions(architecture: Architecture, context: int) -> Iterator[Refusal]:
    """Why a model can't read so many tokens: of learned positions there is a row for each token and no more."""
    most = architecture.learned_positions
    if most is not None and context > most:
        sentence = Message(
            "The model has learned positions for {most:,} tokens and none beyond; {context:,} can't be read.",
            most=most,
            context=context,
        )
        yield Refusal(sentence, "context", [most])


def without_latents(architecture: Architecture, kv: CacheFormat) -> Iterator[Refusal]:
    """Why a model has nothing that a format is for."""
    if kv != "fp8_ds_mla":
        return
    if not any(mixer.absorbs for block in architecture.blocks for mixer in block.mixers):
        sentence = Message("fp8_ds_mla stores the latent of MLA, which this model does not have; fp8 does.")
        yield Refusal(sentence, "kv", ["fp8"])
