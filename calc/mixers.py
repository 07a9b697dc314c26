from calc.attention import GQA, LatentAttention
from calc.compressed import CompressedAttention
from calc.recurrent import Recurrent, RecurrentMixer

Mixer = GQA | LatentAttention | CompressedAttention | RecurrentMixer

__all__ = ["CompressedAttention", "Mixer", "Recurrent"]
