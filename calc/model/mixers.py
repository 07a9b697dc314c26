from calc.model.attention import GQA
from calc.model.compressed_attention import CompressedAttention
from calc.model.linear_attention import MLSTM, GatedDeltaNet, KimiDelta, LightningAttention
from calc.model.mla import LatentAttention
from calc.model.recurrent import RWKV, GatedLRU, Mamba, Mamba2, QKConvs, Recurrent, ShortConv, SideConvs

RecurrentMixer = (
    Mamba
    | Mamba2
    | GatedDeltaNet
    | KimiDelta
    | LightningAttention
    | ShortConv
    | SideConvs
    | QKConvs
    | GatedLRU
    | RWKV
    | MLSTM
)
AttentionMixer = GQA | LatentAttention | CompressedAttention
Mixer = AttentionMixer | RecurrentMixer

__all__ = ["AttentionMixer", "CompressedAttention", "Mixer", "Recurrent", "RecurrentMixer"]
