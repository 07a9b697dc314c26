from calc.attention import GQA, LatentAttention
from calc.recurrent import Recurrent, RecurrentMixer

Mixer = GQA | LatentAttention | RecurrentMixer

__all__ = ["Mixer", "Recurrent"]
