from calc.attention import GQA, LatentAttention
from calc.compressed import CompressedAttention
from calc.linear_attention import GatedDeltaNet, KimiDelta, LightningAttention
from calc.recurrent import GatedLRU, Mamba, Mamba2, Recurrent, ShortConv, SideConvs

RecurrentMixer = Mamba | Mamba2 | GatedDeltaNet | KimiDelta | LightningAttention | ShortConv | SideConvs | GatedLRU
Mixer = GQA | LatentAttention | CompressedAttention | RecurrentMixer

__all__ = ["CompressedAttention", "Mixer", "Recurrent", "RecurrentMixer"]
