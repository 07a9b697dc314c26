"""State spaces and the like without attention, by several makers."""

from calc.families.family import Family
from calc.families.feedforward import no_feedforward
from calc.families.recurrent import Mamba, Mamba2
from calc.model.names import Names

MAMBA_NAMES = Names(
    embedding="backbone.embeddings",
    layer="backbone.layers.{layer}",
    recurrent="mixer",
    attention="mixer",
    mlp="mixer",
    router="mixer.gate",
    correction="mixer.gate.e_score_correction_bias",
    expert="mixer.experts.{expert}",
    shared_expert="mixer.shared_experts",
    final_norm="backbone.norm_f",
)
UNBOUNDED = {"max_position_embeddings": None}

MAMBA: dict[str, Family] = {
    "mamba": Family(
        maker="Gu and Dao",
        mixer=Mamba(inner="intermediate_size"),
        ffn=no_feedforward,
        norms=("norm",),
        names=MAMBA_NAMES,
        own=UNBOUNDED,
    ),
    "mamba2": Family(
        maker="Dao and Gu", mixer=Mamba2(), ffn=no_feedforward, norms=("norm",), names=MAMBA_NAMES, own=UNBOUNDED
    ),
}
