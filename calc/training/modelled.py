"""Which models' steps are computed: those whose layers were laid beside torch's own account."""

from collections.abc import Iterator

from calc.errors import ConfigError, Message
from calc.model.architecture import Architecture
from calc.model.linear_attention import GatedDeltaNet, LightningAttention
from calc.model.mixers import Recurrent
from calc.model.recurrent import Mamba, Mamba2, ShortConv

MODELLED = (GatedDeltaNet, LightningAttention, Mamba, Mamba2, ShortConv)
UNMODELLED_EXTRAS = ("altup.",)  # weights of what no pass computes: Gemma 3n's streams side by side


def check_modelled(architecture: Architecture) -> None:
    """Raise ConfigError for layers of which nobody has laid beside anything what they keep for the way back."""
    if next(unmodelled(architecture), None) is not None:
        sentence = (
            "What the layers of {model_type} keep for the backward pass isn't modelled, so its training step isn't "
            "shown. Recurrent layers that are: gated delta rule, Mamba, Mamba-2, lightning attention and short "
            "convolutions."
        )
        raise ConfigError(Message(sentence, model_type=architecture.model_type), "model_type")


def unmodelled(architecture: Architecture) -> Iterator[str]:
    """Kinds of mixers, and names of weights, that no pass computes."""
    for block in architecture.all_blocks:
        for mixer in block.mixers:
            by_heads = isinstance(mixer, Mamba) and mixer.n_heads is not None
            if isinstance(mixer, Recurrent) and (by_heads or not isinstance(mixer, MODELLED)):
                yield mixer.kind
        yield from (extra.name for extra in block.extras if extra.name.startswith(UNMODELLED_EXTRAS))
