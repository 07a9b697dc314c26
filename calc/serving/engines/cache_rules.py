"""What any engine asks of a model, its cache and its positions."""

from calc.errors import ConfigError, Message
from calc.formats import CacheFormat
from calc.model.architecture import Architecture
from calc.model.mla import LatentAttention
from calc.serving.kv_cache import growth, state_bytes


def reads_another_cache(architecture: Architecture) -> Message | None:
    """Why an engine that sets its cache aside does not serve a model that keeps none."""
    blocks = architecture.all_blocks
    if any(growth(blocks, "bf16").values()) or state_bytes(blocks):
        return None
    return Message("No layer of this model keeps a cache: it drafts for a larger model and is served beside it only.")


def check_positions(architecture: Architecture, context: int) -> None:
    """Raise ConfigError where a context is longer than the model's learned positions, of which there is a row for each
    token and no more."""
    most = architecture.learned_positions
    if most is not None and context > most:
        raise ConfigError(
            Message(
                "The model has learned positions for {most:,} tokens and none beyond; {context:,} can't be read.",
                most=most,
                context=context,
            ),
            "context",
            [most],
        )


def check_cache(architecture: Architecture, kv: CacheFormat) -> None:
    """Raise ConfigError where the model has nothing that the format is for."""
    mixers = [mixer for block in architecture.blocks for mixer in block.mixers]
    if kv == "fp8_ds_mla" and not any(isinstance(mixer, LatentAttention) for mixer in mixers):
        raise ConfigError(
            Message("fp8_ds_mla stores the latent of MLA, which this model does not have; fp8 does."), "kv", ["fp8"]
        )
