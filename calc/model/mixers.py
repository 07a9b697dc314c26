from calc.model.attention import GQA
from calc.model.compressed_attention import CompressedAttention
from calc.model.linear_attention import GatedDeltaNet, KimiDelta, LightningAttention
from calc.model.mla import LatentAttention
from calc.model.recurrent import GatedLRU, Mamba, Mamba2, Recurrent, ShortConv, SideConvs

RecurrentMixer = Mamba | Mamba2 | GatedDeltaNet | KimiDelta | LightningAttention | ShortConv | SideConvs | GatedLRU
Mixer = GQA | LatentAttention | CompressedAttention | RecurrentMixer

__all__ = ["CompressedAttention", "Mixer", "Recurrent", "RecurrentMixer"]
